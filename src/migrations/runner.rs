//! Runs migrations, and records them in Diesel's own table: the Diesel CLI and `diesel_migrations` see what this crate has
//! run, and this crate sees what they have run.
//!
//! Not by the harness of `diesel_migrations`, which needs a connection that blocks.

use std::error::Error as StdError;

use diesel::QueryDsl;
use diesel::deserialize::FromSqlRow;
use diesel::dsl::Select;
use diesel::expression::QueryMetadata;
use diesel::migration::CREATE_MIGRATIONS_TABLE;
use diesel::query_builder::QueryFragment;
use diesel::sql_types::Text;

use super::files::{BackendMigrations, MigrationFile};
use crate::Error;
use crate::link::{self, Link};

diesel::table! {
    __diesel_schema_migrations (version) {
        version -> VarChar,
        run_on -> Timestamp,
    }
}

/// The versions of the migrations that have run.
type Versions = Select<__diesel_schema_migrations::table, __diesel_schema_migrations::version>;

/// What [`Error::Migration`] returns: an error of Diesel, or a [`Failed`].
type Failure = Box<dyn StdError + Send + Sync>;

/// A statement of a migration has failed.
#[derive(Debug, thiserror::Error)]
#[error("Failed to run {migration} with: {error}")]
struct Failed {
    migration: &'static str,
    error: diesel::result::Error,
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
    pub(crate) async fn run(self, conn: &mut impl Link) -> Result<String, Error> {
        self.run_nested(conn).await.map_err(Error::Migration)
    }

    async fn run_nested(self, conn: &mut impl Link) -> Result<String, Failure> {
        conn.begin_nested().await?;
        let ran = self.run_and_record(conn).await;
        link::end(conn, ran).await
    }

    async fn run_and_record(self, conn: &mut impl Link) -> Result<String, Failure> {
        let migration = self.0.migration;
        let ran = conn.batch(self.0.text).await;
        ran.map_err(|error| Failed { migration, error })?;
        let version = self.version();
        // Of letters and digits.
        let values = format!("(version) VALUES ('{version}')");
        let record = format!("INSERT INTO __diesel_schema_migrations {values}");
        conn.batch(&record).await?;
        Ok(version)
    }
}

/// The migrations that the database lacks, in the order of their versions. Creates Diesel's table if that is missing.
pub(crate) async fn pending<C>(conn: &mut C) -> Result<Vec<Migration>, Error>
where
    C: Link<Backend: BackendMigrations + QueryMetadata<Text>>,
    Versions: QueryFragment<C::Backend>,
    String: FromSqlRow<Text, C::Backend>,
{
    let applied = applied(conn).await;
    let applied = applied.map_err(|error| Error::Migration(Box::new(error)))?;
    let all = Migration::all::<C::Backend>();
    let lacks = |migration: &Migration| !applied.contains(&migration.version());
    Ok(all.filter(lacks).collect())
}

async fn applied<C>(conn: &mut C) -> diesel::QueryResult<Vec<String>>
where
    C: Link<Backend: QueryMetadata<Text>>,
    Versions: QueryFragment<C::Backend>,
    String: FromSqlRow<Text, C::Backend>,
{
    conn.batch(CREATE_MIGRATIONS_TABLE).await?;
    let versions: Versions =
        __diesel_schema_migrations::table.select(__diesel_schema_migrations::version);
    conn.load(versions).await
}

/// Runs migrations in this order. Returns their versions.
#[cfg(any(feature = "_postgres", feature = "_sqlite"))]
pub(crate) async fn run_all(
    conn: &mut impl Link,
    migrations: Vec<Migration>,
) -> Result<Vec<String>, Error> {
    let mut ran = Vec::with_capacity(migrations.len());
    for migration in migrations {
        ran.push(migration.run(conn).await?);
    }
    Ok(ran)
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
