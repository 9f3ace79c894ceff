//! Runs migrations, and records them in Diesel's own table: the Diesel CLI and `diesel_migrations` see what this crate has
//! run, and this crate sees what they have run.
//!
//! Not by the harness of `diesel_migrations`, which needs a connection that blocks.

use diesel::QueryDsl;
use diesel::deserialize::FromSqlRow;
use diesel::dsl::Select;
use diesel::expression::QueryMetadata;
use diesel::migration::CREATE_MIGRATIONS_TABLE;
use diesel::query_builder::QueryFragment;
use diesel::sql_types::Text;

use super::files::{BackendMigrations, MigrationFile};
use crate::Error;
use crate::error::classify::{ErrorClass, RequiredPrivilege};
use crate::link::{self, Link};

diesel::table! {
    __diesel_schema_migrations (version) {
        version -> VarChar,
        run_on -> Timestamp,
    }
}

/// The versions of the migrations that have run.
type Versions = Select<__diesel_schema_migrations::table, __diesel_schema_migrations::version>;

/// A statement of a migration has failed.
#[derive(Debug, thiserror::Error)]
#[error("Failed to run {migration} with: {error}")]
struct Failed {
    migration: &'static str,
    error: diesel::result::Error,
}

/// Diesel's table of the migrations that have run.
const RECORDS: &str = "__diesel_schema_migrations";

/// What the user needs in the schema or database of this name to create the tables.
#[allow(dead_code, reason = "SQLite has no privileges")]
pub(crate) const fn to_create_in(object: &'static str) -> RequiredPrivilege {
    RequiredPrivilege {
        object,
        privileges: "CREATE, and SELECT and INSERT on __diesel_schema_migrations,",
    }
}

/// Finds out why a statement of a migration has failed.
pub(crate) trait FailureClass<C> {
    /// The class of the error of the last statement.
    fn class(
        conn: &mut C,
        error: &diesel::result::Error,
    ) -> impl Future<Output = ErrorClass> + Send;
}

/// A migration that the database may lack.
#[derive(Clone, Copy)]
pub(crate) struct Migration(&'static MigrationFile);

impl Migration {
    /// The migrations of a back end, in the order of their versions.
    fn all<B: BackendMigrations>() -> impl Iterator<Item = Self> {
        let runs = |file: &&MigrationFile| file.name == "up.sql";
        B::FILES.iter().filter(runs).map(Self)
    }

    /// The version, as Diesel derives it from the name of the folder.
    fn version(self) -> String {
        let dashed = self.0.migration.split('_').next().unwrap_or_default();
        dashed.replace('-', "")
    }

    /// Runs the migration and records it, in a transaction, or in a savepoint of the open one. Returns its version.
    pub(crate) async fn run<C>(self, conn: &mut C) -> Result<String, Error>
    where
        C: Link<Backend: FailureClass<C>>,
    {
        let begun = conn.begin_nested().await;
        begun.map_err(|error| Error::Migration(Box::new(error)))?;
        let ran = self.run_and_record(conn).await;
        link::end(conn, ran).await
    }

    async fn run_and_record<C>(self, conn: &mut C) -> Result<String, Error>
    where
        C: Link<Backend: FailureClass<C>>,
    {
        run_part(conn, self.0.migration, self.0.text).await?;
        let version = self.version();
        // Of letters and digits.
        let record = format!("INSERT INTO {RECORDS} (version) VALUES ('{version}')");
        run_part(conn, self.0.migration, &record).await?;
        Ok(version)
    }
}

/// Runs statements of a migration.
async fn run_part<C>(conn: &mut C, migration: &'static str, sql: &str) -> Result<(), Error>
where
    C: Link<Backend: FailureClass<C>>,
{
    let Err(error) = conn.batch(sql).await else {
        return Ok(());
    };
    Err(match C::Backend::class(conn, &error).await {
        class @ (ErrorClass::ReadOnly | ErrorClass::InsufficientPrivilege(_)) => {
            Error::from_class(class, error)
        }
        _ => Error::Migration(Box::new(Failed { migration, error })),
    })
}

/// The error of a user who lacks a privilege, in place of that of the statement that needs it.
#[cfg(feature = "_postgres")]
pub(crate) fn not_privileged(privilege: RequiredPrivilege, error: Error) -> Error {
    let Error::Migration(cause) = error else {
        return error;
    };
    match cause.downcast::<Failed>() {
        Ok(failed) => Error::from_class(ErrorClass::InsufficientPrivilege(privilege), failed.error),
        Err(cause) => Error::Migration(cause),
    }
}

/// What there is to do.
pub(crate) struct Plan {
    /// In the order of their versions.
    pub(crate) pending: Vec<Migration>,
    records_exist: bool,
}

impl Plan {
    /// Compares the parts of the tables that exist with those of this version, and with the versions that are recorded.
    /// Without `records`, because Diesel's table does not exist or the user may not read it, only the parts count.
    pub(crate) async fn new<C>(
        conn: &mut C,
        parts: &[String],
        records: Records,
    ) -> Result<Self, Error>
    where
        C: Link<Backend: BackendMigrations + QueryMetadata<Text>>,
        Versions: QueryFragment<C::Backend>,
        String: FromSqlRow<Text, C::Backend>,
    {
        let lacks = |part: &&str| !parts.iter().any(|found| found == part);
        let missing = C::Backend::PARTS.iter().copied().find(lacks);
        let all = Migration::all::<C::Backend>();
        let pending: Vec<Migration> = match records {
            Records::Readable => {
                let recorded = recorded(conn).await;
                let recorded = recorded.map_err(|error| Error::Migration(Box::new(error)))?;
                let lacks = |migration: &Migration| !recorded.contains(&migration.version());
                let pending: Vec<Migration> = all.filter(lacks).collect();
                match missing {
                    Some(missing) if pending.is_empty() => {
                        return Err(Error::DifferentTables { missing });
                    }
                    _ => pending,
                }
            }
            Records::Missing | Records::Hidden if missing.is_none() => Vec::new(),
            Records::Missing | Records::Hidden => all.collect(),
        };
        Ok(Self {
            pending,
            records_exist: records != Records::Missing,
        })
    }

    /// Creates Diesel's table if it is missing.
    pub(crate) async fn create_records<C>(&self, conn: &mut C) -> Result<(), Error>
    where
        C: Link<Backend: FailureClass<C>>,
    {
        if self.records_exist {
            return Ok(());
        }
        run_part(conn, RECORDS, CREATE_MIGRATIONS_TABLE).await
    }

    /// Runs the migrations. Returns their versions.
    #[cfg(any(feature = "_postgres", feature = "_sqlite"))]
    pub(crate) async fn run_all<C>(self, conn: &mut C) -> Result<Vec<String>, Error>
    where
        C: Link<Backend: FailureClass<C>>,
    {
        self.create_records(conn).await?;
        let mut ran = Vec::with_capacity(self.pending.len());
        for migration in self.pending {
            ran.push(migration.run(conn).await?);
        }
        Ok(ran)
    }
}

/// Diesel's table of the migrations that have run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Records {
    Readable,
    /// The user may not read it.
    #[allow(dead_code, reason = "MySQL and SQLite show what the user may read")]
    Hidden,
    Missing,
}

impl Records {
    /// From a list of columns that the user may read.
    #[cfg(any(feature = "_mysql", feature = "_sqlite"))]
    pub(crate) fn among(parts: &[String]) -> Self {
        if parts.iter().any(|part| part.starts_with(RECORDS)) {
            Self::Readable
        } else {
            Self::Missing
        }
    }
}

async fn recorded<C>(conn: &mut C) -> diesel::QueryResult<Vec<String>>
where
    C: Link<Backend: QueryMetadata<Text>>,
    Versions: QueryFragment<C::Backend>,
    String: FromSqlRow<Text, C::Backend>,
{
    let versions: Versions =
        __diesel_schema_migrations::table.select(__diesel_schema_migrations::version);
    conn.load(versions).await
}

#[cfg(test)]
mod tests {
    use diesel::backend::Backend;
    use diesel::migration::MigrationSource;
    use diesel_migrations::EmbeddedMigrations;

    use super::{BackendMigrations, Migration};

    /// Diesel has put them in order.
    fn versions_are_those_of_diesel<B: Backend + BackendMigrations>(embedded: &EmbeddedMigrations) {
        let ours = Migration::all::<B>().map(Migration::version);
        let ours: Vec<String> = ours.collect();
        let embedded = MigrationSource::<B>::migrations(embedded).expect("migrations");
        let versions = embedded
            .iter()
            .map(|migration| migration.name().version().to_string());
        let mut versions: Vec<String> = versions.collect();
        versions.sort();
        assert_eq!(ours, versions);
        assert_eq!(ours.len(), 3);
        for version in ours {
            let plain = |c: char| c.is_ascii_alphanumeric();
            assert!(version.chars().all(plain), "{version} in quotes");
        }
    }

    #[cfg(feature = "_postgres")]
    #[test]
    fn versions_of_postgres_are_those_of_diesel() {
        versions_are_those_of_diesel::<diesel::pg::Pg>(&crate::migrations::POSTGRES);
    }

    #[cfg(feature = "_mysql")]
    #[test]
    fn versions_of_mysql_are_those_of_diesel() {
        versions_are_those_of_diesel::<diesel::mysql::Mysql>(&crate::migrations::MYSQL);
    }

    #[cfg(feature = "_sqlite")]
    #[test]
    fn versions_of_sqlite_are_those_of_diesel() {
        versions_are_those_of_diesel::<diesel::sqlite::Sqlite>(&crate::migrations::SQLITE);
    }
}
