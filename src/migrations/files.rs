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
