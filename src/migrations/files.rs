//! The files of the migrations.

use crate::engine::HasEngine;

/// A file of a migration.
#[derive(Debug)]
pub struct MigrationFile {
    /// The folder of the migration, which is its version and name.
    pub(crate) migration: &'static str,
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

/// The migrations of an engine. Sealed, as [`HasEngine`] is. Wrappers of connections have none.
#[diagnostic::on_unimplemented(
    message = "`diesel-locks` has no migrations for `{Self}`",
    label = "not `PgConnection`, `MysqlConnection` or `SqliteConnection`, or the engine's feature is off"
)]
pub trait MigrationFiles: HasEngine {
    /// The files of the migrations.
    #[doc(hidden)]
    const MIGRATION_FILES: &'static [MigrationFile];
}

/// The migrations of one of Diesel's back ends.
#[cfg(any(feature = "_postgres", feature = "_mysql", feature = "_sqlite"))]
pub trait BackendMigrations {
    /// The files of the migrations, in the order of their versions.
    const FILES: &'static [MigrationFile];

    /// The columns and functions that the migrations create, in the words of the engine's catalog. Later versions of this
    /// crate may add others.
    const PARTS: &'static [&'static str];
}

#[cfg(any(feature = "_postgres", feature = "_mysql", feature = "_sqlite"))]
#[diagnostic::do_not_recommend]
impl<C: crate::link::Link<Backend: BackendMigrations>> MigrationFiles for C {
    const MIGRATION_FILES: &'static [MigrationFile] = C::Backend::FILES;
}

/// The files of all migrations in a folder of this crate.
#[cfg(any(feature = "_postgres", feature = "_mysql", feature = "_sqlite"))]
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
        $crate::migrations::files::MigrationFile {
            migration: $migration,
            name: $name,
            text: include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"), "/migrations/", $folder, "/", $migration, "/", $name
            )),
        }
    };
}
#[cfg(any(feature = "_postgres", feature = "_mysql", feature = "_sqlite"))]
pub(crate) use migration_files;

#[cfg(test)]
mod tests {
    use super::BackendMigrations;

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
            0xc504_78f9_0974_671f,
            0x9bd5_5156_22e9_2aa1,
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
