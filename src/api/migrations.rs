//! The migrations that create the tables. [`migrate`](crate::migrate) and [`run_migrations`](crate::run_migrations) run them, and
//! [`write_to`] writes the files into a folder for the Diesel CLI.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[cfg(any(feature = "_postgres", feature = "_mysql", feature = "_sqlite"))]
use diesel_migrations::EmbeddedMigrations;

use crate::engine::dialect::Dialect;
use crate::engine::migration_runner::files;
use crate::link::Link;

/// The migrations for PostgreSQL.
#[cfg(feature = "_postgres")]
pub const POSTGRES: EmbeddedMigrations = <diesel::pg::Pg as Dialect>::MIGRATIONS;

/// The migrations for MySQL and MariaDB.
#[cfg(feature = "_mysql")]
pub const MYSQL: EmbeddedMigrations = <diesel::mysql::Mysql as Dialect>::MIGRATIONS;

/// The migrations for SQLite.
#[cfg(feature = "_sqlite")]
pub const SQLITE: EmbeddedMigrations = <diesel::sqlite::Sqlite as Dialect>::MIGRATIONS;

/// Why [`write_to`] has written no migrations, or not all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// A file of a migration exists with another text. Nothing was written.
    #[error("{} exists and is not the migration of this version of diesel-locks", path.display())]
    DifferentFile {
        /// The path of the file.
        path: PathBuf,
    },
    /// A file or folder can't be read, created or written. The files before it are written.
    #[error("can't read or write {}", path.display())]
    Io {
        /// The path of the file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// Writes the migrations of the engine of `C`, a connection of Diesel or of diesel-async, into a folder for the Diesel CLI, which
/// it creates if necessary. Returns the paths of the files that it has written.
///
/// A file that exists with the same text (with any line ends) is left alone: run the function again after an update of this crate
/// to add the new migrations. `diesel migration run` then runs the migrations, [`migrate`](crate::migrate) finds them done, and
/// `diesel migration revert --all` reverts them.
///
/// # Errors
///
/// - [`WriteError::DifferentFile`] if a file exists with another text. Then nothing is written.
/// - [`WriteError::Io`] if a file or folder can't be read or written.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use diesel::prelude::*;
/// use diesel_locks::migrations;
///
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path().join("migrations");
/// let written = migrations::write_to::<SqliteConnection>(&folder)?; // "migrations"
/// assert!(written[0].ends_with("00000000000000-diesellocks-0001_object_locks/up.sql"));
/// assert!(migrations::write_to::<SqliteConnection>(&folder)?.is_empty());
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sqlite"))]
/// # fn main() {}
/// ```
pub fn write_to<C: Link<Db: Dialect>>(
    folder: impl AsRef<Path>,
) -> Result<Vec<PathBuf>, WriteError> {
    let folder = folder.as_ref();
    let mut missing = Vec::new();
    for (path, text) in files::<C::Db>() {
        let path = folder.join(path);
        match fs::read_to_string(&path) {
            Ok(found) if found.replace("\r\n", "\n") == text => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push((path, text)),
            Err(source) if source.kind() != io::ErrorKind::InvalidData => {
                return Err(WriteError::Io { path, source });
            }
            _ => return Err(WriteError::DifferentFile { path }),
        }
    }
    let mut written = Vec::new();
    for (path, text) in missing {
        if let Err(source) = write(&path, &text) {
            return Err(WriteError::Io { path, source });
        }
        written.push(path);
    }
    Ok(written)
}

/// Creates a file. Removes it if it can't be written to its end.
fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let written = File::create_new(path)?.write_all(text.as_bytes());
    if written.is_err() {
        let _ = fs::remove_file(path);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::{WriteError, write_to};
    use crate::engine::dialect::Dialect;
    use crate::link::Link;

    fn files(folder: &Path) -> BTreeSet<(String, String, String)> {
        let mut files = BTreeSet::new();
        for migration in fs::read_dir(folder).expect("a folder") {
            let migration = migration.expect("a migration");
            for file in fs::read_dir(migration.path()).expect("a folder") {
                let file = file.expect("a file");
                files.insert((
                    migration.file_name().to_string_lossy().into_owned(),
                    file.file_name().to_string_lossy().into_owned(),
                    fs::read_to_string(file.path()).expect("SQL"),
                ));
            }
        }
        files
    }

    fn check<C: Link<Db: Dialect>>(engine: &str) {
        let temporary = tempfile::tempdir().expect("a folder");
        let folder = temporary.path().join("new").join("migrations");
        let written = write_to::<C>(&folder).expect("written");
        let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
        assert_eq!(files(&folder), files(&ours.join(engine)));

        let last = written.last().expect("a file");
        let text = fs::read_to_string(last).expect("SQL");
        fs::write(last, text.replace('\n', "\r\n")).expect("a file");
        assert!(write_to::<C>(&folder).expect("nothing to do").is_empty());

        fs::write(last, "SELECT 1").expect("a file");
        fs::remove_file(&written[0]).expect("a file");
        let error = write_to::<C>(&folder).expect_err("a different file");
        assert!(
            matches!(&error, WriteError::DifferentFile { path } if path == last),
            "{error}"
        );
        assert!(!written[0].exists(), "written before the check");
        assert_eq!(fs::read_to_string(last).expect("a file"), "SELECT 1");

        fs::remove_file(last).expect("a file");
        let again = write_to::<C>(&folder).expect("written");
        assert_eq!(again, [written[0].clone(), last.clone()]);
    }

    #[test]
    fn all_migrations_are_written_once_and_nothing_is_overwritten() {
        #[cfg(feature = "postgres")]
        check::<diesel::PgConnection>("postgres");
        #[cfg(feature = "mysql")]
        check::<diesel::MysqlConnection>("mysql");
        #[cfg(feature = "sqlite")]
        check::<diesel::SqliteConnection>("sqlite");
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn path_that_is_no_folder_is_an_io_error() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let error = write_to::<diesel::SqliteConnection>(file.path()).expect_err("no folder");
        assert!(matches!(error, WriteError::Io { .. }), "{error}");
    }
}
