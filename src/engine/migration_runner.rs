//! The migrations: their files, and how they are run and recorded in Diesel's own table. The Diesel CLI and
//! `diesel_migrations` see what this crate has run, and this crate sees what they have run.

use diesel::QueryDsl;
use diesel::deserialize::FromSqlRow;
use diesel::dsl::Select;
use diesel::expression::QueryMetadata;
use diesel::migration::CREATE_MIGRATIONS_TABLE;
use diesel::query_builder::QueryFragment;
use diesel::sql_types::Text;

use crate::Error;
use crate::engine::dialect::Dialect;
use crate::error::classify::{ErrorClass, RequiredPrivilege};
use crate::link::{self, Link};

#[derive(Debug)]
pub struct MigrationFile {
    /// The folder of the migration, which is its version and name.
    pub(crate) migration: &'static str,
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
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

/// The files that are run.
fn migrations<B: Dialect>() -> impl Iterator<Item = &'static MigrationFile> {
    B::FILES.iter().filter(|file| file.name == "up.sql")
}

impl MigrationFile {
    /// The version, as Diesel derives it from the name of the folder.
    fn version(&self) -> String {
        let dashed = self.migration.split('_').next().unwrap_or_default();
        dashed.replace('-', "")
    }

    /// Runs the migration and records it. Returns its version.
    pub(crate) async fn run<DB: Dialect>(
        &self,
        conn: &mut impl Link<Db = DB>,
    ) -> Result<String, Error> {
        let version = self.version();
        // Of letters and digits.
        let record = format!("INSERT INTO {RECORDS} (version) VALUES ('{version}')");
        run_part(conn, self.migration, self.text).await?;
        run_part(conn, self.migration, &record).await?;
        Ok(version)
    }
}

async fn run_part<DB: Dialect>(
    conn: &mut impl Link<Db = DB>,
    migration: &'static str,
    sql: &str,
) -> Result<(), Error> {
    let Err(error) = conn.batch(sql).await else {
        return Ok(());
    };
    Err(match DB::class_of_failure(conn, &error).await {
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
    pub(crate) pending: Vec<&'static MigrationFile>,
    records_exist: bool,
}

impl Plan {
    /// Compares the parts of the tables that exist with those of this version, and with the versions that are recorded. The
    /// engines repeat this after [`Error::DifferentTables`]: another session may have run migrations between the two looks.
    /// Without `records`, because Diesel's table does not exist or the user may not read it, only the parts count.
    pub(crate) async fn new<DB>(
        conn: &mut impl Link<Db = DB>,
        parts: &[String],
        records: Records,
    ) -> Result<Self, Error>
    where
        DB: Dialect + QueryMetadata<Text>,
        Versions: QueryFragment<DB>,
        String: FromSqlRow<Text, DB>,
    {
        let lacks = |part: &&str| !parts.iter().any(|found| found == part);
        let missing = DB::PARTS.iter().copied().find(lacks);
        let all = migrations::<DB>();
        let pending: Vec<_> = match records {
            Records::Readable => {
                let versions: Versions =
                    __diesel_schema_migrations::table.select(__diesel_schema_migrations::version);
                let recorded: diesel::QueryResult<Vec<String>> = conn.load(versions).await;
                let recorded = recorded.map_err(|error| Error::Migration(Box::new(error)))?;
                let lacks = |file: &&MigrationFile| !recorded.contains(&file.version());
                let pending: Vec<_> = all.filter(lacks).collect();
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

    pub(crate) async fn create_records<DB: Dialect>(
        &self,
        conn: &mut impl Link<Db = DB>,
    ) -> Result<(), Error> {
        if self.records_exist {
            return Ok(());
        }
        run_part(conn, RECORDS, CREATE_MIGRATIONS_TABLE).await
    }

    /// Runs each migration in a transaction, or in a savepoint of the open one.
    pub(crate) async fn run_all<DB: Dialect>(
        self,
        conn: &mut impl Link<Db = DB>,
    ) -> Result<Vec<String>, Error> {
        self.create_records(conn).await?;
        let mut ran = Vec::with_capacity(self.pending.len());
        for migration in self.pending {
            let begun = conn.begin_nested().await;
            begun.map_err(|error| Error::Migration(Box::new(error)))?;
            let version = migration.run(conn).await;
            ran.push(link::end(conn, version).await?);
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

    /// FNV-1a, which no version of Rust changes.
    fn digest(text: &str) -> u64 {
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
    }

    /// The versions are those of Diesel, and the files, in the order of their names, `up.sql` before `down.sql`, have these
    /// digests.
    ///
    /// After the first release the digests do not change: databases have run the files. A change of the tables is a new file,
    /// whose digests are added at the end.
    fn are_frozen<B: Dialect>(embedded: &EmbeddedMigrations, digests: [u64; 6]) {
        let ours: Vec<String> = migrations::<B>().map(MigrationFile::version).collect();
        let embedded = MigrationSource::<B>::migrations(embedded).expect("migrations");
        let versions = embedded
            .iter()
            .map(|migration| migration.name().version().to_string());
        let mut versions: Vec<String> = versions.collect();
        versions.sort();
        assert_eq!(ours, versions);
        for version in ours {
            let plain = |c: char| c.is_ascii_alphanumeric();
            assert!(version.chars().all(plain), "{version} in quotes");
        }
        let files: Vec<u64> = B::FILES.iter().map(|file| digest(file.text)).collect();
        assert_eq!(files, digests, "{files:#x?}");
    }

    #[cfg(feature = "_postgres")]
    #[test]
    fn migrations_of_postgres_are_frozen() {
        let digests = [
            0x1ff3_2777_c103_ab37,
            0xde05_c3eb_52fd_69b5,
            0x2fb3_02bc_0682_a490,
            0x65ac_86d9_4988_f53a,
            0x30ba_a652_4176_633c,
            0x0892_f63d_6746_e605,
        ];
        are_frozen::<diesel::pg::Pg>(&crate::api::migrations::POSTGRES, digests);
    }

    #[cfg(feature = "_mysql")]
    #[test]
    fn migrations_of_mysql_are_frozen() {
        let digests = [
            0xadf0_ef2e_22c7_58a2,
            0xc9b4_5035_d9a2_022c,
            0x5dcd_ee20_1941_3b5f,
            0xfd4f_364d_12a2_bcf2,
            0xb483_600e_a3d3_ae53,
            0xdcbb_0684_53fd_ca16,
        ];
        are_frozen::<diesel::mysql::Mysql>(&crate::api::migrations::MYSQL, digests);
    }

    #[cfg(feature = "_sqlite")]
    #[test]
    fn migrations_of_sqlite_are_frozen() {
        let digests = [
            0x2890_8d1a_3544_94ac,
            0x1942_e266_b347_4a3b,
            0x8403_c96d_7d6d_3817,
            0x7962_de26_fd68_cc8d,
            0x8064_7afb_d518_14de,
            0x0892_f63d_6746_e605,
        ];
        are_frozen::<diesel::sqlite::Sqlite>(&crate::api::migrations::SQLITE, digests);
    }
}
