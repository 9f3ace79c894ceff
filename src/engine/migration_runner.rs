//! The migrations: their files, and how they are run and recorded in Diesel's own table. The Diesel CLI and
//! `diesel_migrations` see what this crate has run, and this crate sees what they have run.

use std::future::ready;

use diesel::QueryDsl;
use diesel::backend::Backend;
use diesel::deserialize::FromSqlRow;
use diesel::dsl::Select;
use diesel::expression::QueryMetadata;
use diesel::migration::CREATE_MIGRATIONS_TABLE;
use diesel::query_builder::QueryFragment;
use diesel::sql_types::Text;

use crate::Error;
use crate::error::classify::{ErrorClass, RequiredPrivilege, classify};
use crate::link::{self, Link, On};

#[derive(Debug)]
pub struct MigrationFile {
    /// The folder of the migration, which is its version and name.
    pub(crate) migration: &'static str,
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

/// The migrations of an engine. Sealed: the module is private. Wrappers of connections have none.
#[diagnostic::on_unimplemented(
    message = "`diesel-locks` has no migrations for `{Self}`",
    label = "not `PgConnection`, `MysqlConnection` or `SqliteConnection`, or the engine's feature is off"
)]
pub trait MigrationFiles {
    #[doc(hidden)]
    const MIGRATION_FILES: &'static [MigrationFile];
}

pub(crate) trait BackendMigrations: Backend {
    /// The files of the migrations, in the order of their versions.
    const FILES: &'static [MigrationFile];

    /// The columns and functions that the migrations create, in the words of the engine's catalog. Later versions of this
    /// crate may add others.
    const PARTS: &'static [&'static str];

    /// The class of the error of the last statement, which is one of a migration.
    fn class_of_failure(
        _conn: &mut impl On<Self>,
        error: &diesel::result::Error,
    ) -> impl Future<Output = ErrorClass> + Send {
        ready(classify(error))
    }
}

#[diagnostic::do_not_recommend]
impl<C: Link<Backend: BackendMigrations>> MigrationFiles for C {
    const MIGRATION_FILES: &'static [MigrationFile] = C::Backend::FILES;
}

macro_rules! migration_files {
    ($folder:literal) => {
        migration_files!(
            $folder:
            "00000000000000-diesellocks-0001_object_locks",
            "00000000000000-diesellocks-0002_semaphores",
            "00000000000000-diesellocks-0003_sequences",
        )
    };
    ($folder:literal: $($migration:literal,)*) => {
        &[$(
            migration_files!(@file $folder, $migration, "up.sql"),
            migration_files!(@file $folder, $migration, "down.sql"),
        )*]
    };
    (@file $folder:literal, $migration:literal, $name:literal) => {
        $crate::engine::migration_runner::MigrationFile {
            migration: $migration,
            name: $name,
            text: include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"), "/migrations/", $folder, "/", $migration, "/", $name
            )),
        }
    };
}
pub(crate) use migration_files;

diesel::table! {
    __diesel_schema_migrations (version) {
        version -> VarChar,
        run_on -> Timestamp,
    }
}

type Versions = Select<__diesel_schema_migrations::table, __diesel_schema_migrations::version>;

#[derive(Debug, thiserror::Error)]
#[error("Failed to run {migration} with: {error}")]
struct Failed {
    migration: &'static str,
    error: diesel::result::Error,
}

const RECORDS: &str = "__diesel_schema_migrations";

/// What the user needs in the schema or database of this name to create the tables.
pub(crate) const fn to_create_in(object: &'static str) -> RequiredPrivilege {
    RequiredPrivilege {
        object,
        privileges: "CREATE, and SELECT and INSERT on __diesel_schema_migrations,",
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Migration(&'static MigrationFile);

impl Migration {
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
        C: Link<Backend: BackendMigrations>,
    {
        let begun = conn.begin_nested().await;
        begun.map_err(|error| Error::Migration(Box::new(error)))?;
        let ran = self.run_and_record(conn).await;
        link::end(conn, ran).await
    }

    async fn run_and_record<C>(self, conn: &mut C) -> Result<String, Error>
    where
        C: Link<Backend: BackendMigrations>,
    {
        run_part(conn, self.0.migration, self.0.text).await?;
        let version = self.version();
        // Of letters and digits.
        let record = format!("INSERT INTO {RECORDS} (version) VALUES ('{version}')");
        run_part(conn, self.0.migration, &record).await?;
        Ok(version)
    }
}

async fn run_part<C>(conn: &mut C, migration: &'static str, sql: &str) -> Result<(), Error>
where
    C: Link<Backend: BackendMigrations>,
{
    let Err(error) = conn.batch(sql).await else {
        return Ok(());
    };
    Err(match C::Backend::class_of_failure(conn, &error).await {
        class @ (ErrorClass::ReadOnly | ErrorClass::InsufficientPrivilege(_)) => {
            Error::from_class(class, error)
        }
        _ => Error::Migration(Box::new(Failed { migration, error })),
    })
}

pub(crate) fn not_privileged(privilege: RequiredPrivilege, error: Error) -> Error {
    let Error::Migration(cause) = error else {
        return error;
    };
    match cause.downcast::<Failed>() {
        Ok(failed) => Error::from_class(ErrorClass::InsufficientPrivilege(privilege), failed.error),
        Err(cause) => Error::Migration(cause),
    }
}

pub(crate) struct Plan {
    /// In the order of their versions.
    pub(crate) pending: Vec<Migration>,
    records_exist: bool,
}

impl Plan {
    /// Compares the parts of the tables that exist with those of this version, and with the versions that are recorded. The
    /// engines repeat this after [`Error::DifferentTables`]: another session may have run migrations between the two looks.
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
                let versions: Versions =
                    __diesel_schema_migrations::table.select(__diesel_schema_migrations::version);
                let recorded: diesel::QueryResult<Vec<String>> = conn.load(versions).await;
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

    pub(crate) async fn create_records<C>(&self, conn: &mut C) -> Result<(), Error>
    where
        C: Link<Backend: BackendMigrations>,
    {
        if self.records_exist {
            return Ok(());
        }
        run_part(conn, RECORDS, CREATE_MIGRATIONS_TABLE).await
    }

    pub(crate) async fn run_all<C>(self, conn: &mut C) -> Result<Vec<String>, Error>
    where
        C: Link<Backend: BackendMigrations>,
    {
        self.create_records(conn).await?;
        let mut ran = Vec::with_capacity(self.pending.len());
        for migration in self.pending {
            ran.push(migration.run(conn).await?);
        }
        Ok(ran)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Records {
    Readable,
    /// The user may not read it.
    Hidden,
    Missing,
}

impl Records {
    pub(crate) fn among(parts: &[String]) -> Self {
        if parts.iter().any(|part| part.starts_with(RECORDS)) {
            Self::Readable
        } else {
            Self::Missing
        }
    }
}

#[cfg(test)]
mod tests {
    use diesel::migration::MigrationSource;
    use diesel_migrations::EmbeddedMigrations;

    use super::*;

    /// Diesel has put them in order.
    fn versions_are_those_of_diesel<B: BackendMigrations>(embedded: &EmbeddedMigrations) {
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
        versions_are_those_of_diesel::<diesel::pg::Pg>(&crate::api::migrations::POSTGRES);
    }

    #[cfg(feature = "_mysql")]
    #[test]
    fn versions_of_mysql_are_those_of_diesel() {
        versions_are_those_of_diesel::<diesel::mysql::Mysql>(&crate::api::migrations::MYSQL);
    }

    #[cfg(feature = "_sqlite")]
    #[test]
    fn versions_of_sqlite_are_those_of_diesel() {
        versions_are_those_of_diesel::<diesel::sqlite::Sqlite>(&crate::api::migrations::SQLITE);
    }

    /// FNV-1a, which no version of Rust changes.
    fn digest(text: &str) -> u64 {
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
    }

    /// The files in the order of their names, `up.sql` before `down.sql`.
    ///
    /// After the first release these digests do not change: databases have run the files. A change of the tables is a new
    /// file, whose digests are added at the end.
    fn files_are_frozen<B: BackendMigrations>(digests: &[u64]) {
        let ours: Vec<u64> = B::FILES.iter().map(|file| digest(file.text)).collect();
        assert_eq!(ours, digests, "{ours:#x?}");
    }

    #[cfg(feature = "_postgres")]
    #[test]
    fn files_of_postgres_are_frozen() {
        files_are_frozen::<diesel::pg::Pg>(&[
            0x7a73_703b_eda2_f181,
            0xa29e_3998_a077_67f8,
            0x1cde_93d8_5e5f_c1a0,
            0x4782_a160_06a6_0596,
            0x30ba_a652_4176_633c,
            0x0892_f63d_6746_e605,
        ]);
    }

    #[cfg(feature = "_mysql")]
    #[test]
    fn files_of_mysql_are_frozen() {
        files_are_frozen::<diesel::mysql::Mysql>(&[
            0xa7a1_79a9_47ea_0932,
            0xf80f_e523_35d2_e01c,
            0x0604_3072_ca6f_088b,
            0xfd4f_364d_12a2_bcf2,
            0xb483_600e_a3d3_ae53,
            0xdcbb_0684_53fd_ca16,
        ]);
    }

    #[cfg(feature = "_sqlite")]
    #[test]
    fn files_of_sqlite_are_frozen() {
        files_are_frozen::<diesel::sqlite::Sqlite>(&[
            0x2890_8d1a_3544_94ac,
            0x1942_e266_b347_4a3b,
            0xef83_0550_f4d3_3ecb,
            0x7962_de26_fd68_cc8d,
            0x8064_7afb_d518_14de,
            0x0892_f63d_6746_e605,
        ]);
    }
}
