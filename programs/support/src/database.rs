//! Which database a URL means, how a program gets support for it, and the connection type.

use std::env;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

/// A program of this workspace, as it was built: see [`program!`](crate::program).
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The name of its package.
    pub name: &'static str,
    /// The path of its `Cargo.toml`.
    pub manifest: &'static str,
    /// It was built with the feature `postgres`.
    pub has_postgres: bool,
    /// It was built with the feature `mysql`.
    pub has_mysql: bool,
}

/// The [`Program`] in which this macro is called.
#[macro_export]
macro_rules! program {
    () => {
        $crate::database::Program {
            name: env!("CARGO_PKG_NAME"),
            manifest: concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
            has_postgres: cfg!(feature = "postgres"),
            has_mysql: cfg!(feature = "mysql"),
        }
    };
}

/// The kind of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// An SQLite file.
    Sqlite,
    /// PostgreSQL.
    Postgres,
    /// MySQL or MariaDB.
    Mysql,
}

/// A database, with a URL that Diesel accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Database {
    /// The kind of the database.
    pub engine: Engine,
    /// The URL; the path of an SQLite file without `sqlite:`.
    pub url: String,
}

impl Database {
    /// Reads `postgres://..`, `mysql://..`, or the path of an SQLite file, with or without `sqlite://`.
    ///
    /// # Errors
    ///
    /// If the URL begins otherwise, or names an SQLite database in memory.
    pub fn from_url(url: &str) -> Result<Self> {
        let (engine, url) = match url.split_once("://") {
            Some(("postgres" | "postgresql", _)) => (Engine::Postgres, url),
            Some(("mysql", _)) => (Engine::Mysql, url),
            Some(("sqlite", path)) => (Engine::Sqlite, path),
            Some((scheme, _)) => {
                bail!(
                    "a database URL begins with postgres://, mysql:// or sqlite://, not {scheme}://"
                )
            }
            None => (Engine::Sqlite, url.strip_prefix("sqlite:").unwrap_or(url)),
        };
        ensure!(
            engine != Engine::Sqlite || !(url.is_empty() || url.contains(":memory:")),
            "several connections can't share an SQLite database in memory: name a file"
        );
        Ok(Self {
            engine,
            url: url.to_owned(),
        })
    }

    /// Returns if the program supports this database. Otherwise it builds the program again with the
    /// feature that is missing, and replaces this process by the new program.
    ///
    /// # Errors
    ///
    /// If the program was not started by `cargo run`, or the build fails.
    pub fn require_support(&self, program: &Program) -> Result<()> {
        let (engine, feature, debian_package, supported) = match self.engine {
            Engine::Sqlite => return Ok(()),
            Engine::Postgres => ("PostgreSQL", "postgres", "libpq-dev", program.has_postgres),
            Engine::Mysql => ("MySQL", "mysql", "libmariadb-dev", program.has_mysql),
        };
        if supported {
            return Ok(());
        }
        let name = program.name;
        // `cargo run` sets this variable.
        let cargo = env::var_os("CARGO").with_context(|| {
            format!(
                "{name} was built without {engine}; build it with --features {feature} \
                 (needs {debian_package} on Debian and Ubuntu)"
            )
        })?;
        eprintln!("{name} was built without {engine}: building it again with --features {feature}");
        let built = program
            .rebuild_command(&cargo, "build", feature)
            .status()
            .context("can't start cargo")?;
        ensure!(
            built.success(),
            "building with {engine} failed; its client library must be installed \
             ({debian_package} on Debian and Ubuntu)"
        );
        let error = program
            .rebuild_command(&cargo, "run", feature)
            .arg("--quiet")
            .arg("--")
            .args(env::args_os().skip(1))
            .exec();
        Err(error).context("can't start cargo")
    }
}

impl Program {
    /// `cargo build` or `cargo run` of this program with one more feature.
    fn rebuild_command(&self, cargo: &OsStr, action: &str, feature: &str) -> Command {
        let mut command = Command::new(cargo);
        command.args([action, "--manifest-path", self.manifest]);
        // The features of this build stay: a program may need several.
        let present = [("postgres", self.has_postgres), ("mysql", self.has_mysql)];
        let present = present.iter().filter(|(_, supported)| *supported);
        let features: Vec<&str> = present.map(|(name, _)| *name).chain([feature]).collect();
        command.args(["--features", &features.join(",")]);
        if !cfg!(debug_assertions) {
            command.arg("--release");
        }
        command
    }
}

/// Where the database is.
pub enum DatabaseLocation {
    /// A database that the user named. It stays.
    Given(Database),
    /// An SQLite file, which is deleted with this value.
    Temporary(Database, TempDir),
}

impl DatabaseLocation {
    /// The database of the URL, or a temporary SQLite file if there is none.
    ///
    /// # Errors
    ///
    /// If the URL is unusable, or the file's directory can't be created.
    pub fn new(program: &Program, url: Option<&str>) -> Result<Self> {
        if let Some(url) = url {
            return Ok(Self::Given(Database::from_url(url)?));
        }
        let directory = tempfile::Builder::new()
            .prefix(program.name)
            .tempdir()
            .context("can't create a directory for temporary files")?;
        let path = directory.path().join("database.sqlite");
        let url = path
            .to_str()
            .context("the directory for temporary files is not UTF-8")?;
        Ok(Self::Temporary(Database::from_url(url)?, directory))
    }

    /// The database.
    pub fn database(&self) -> &Database {
        match self {
            Self::Given(database) | Self::Temporary(database, _) => database,
        }
    }
}

/// Evaluates an expression with the connection type of an engine, which the calling program must support:
/// see [`Database::require_support`].
#[macro_export]
macro_rules! with_connection {
    ($engine:expr, $connection:ident => $value:expr) => {
        match $engine {
            $crate::database::Engine::Sqlite => {
                type $connection = diesel::SqliteConnection;
                $value
            }
            #[cfg(feature = "postgres")]
            $crate::database::Engine::Postgres => {
                type $connection = diesel::PgConnection;
                $value
            }
            #[cfg(feature = "mysql")]
            $crate::database::Engine::Mysql => {
                type $connection = diesel::MysqlConnection;
                $value
            }
            #[cfg(not(all(feature = "postgres", feature = "mysql")))]
            _ => anyhow::bail!("this program was built without support for that database"),
        }
    };
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::{Database, DatabaseLocation, Engine, Program};

    const PROGRAM: Program = Program {
        name: "a-program",
        manifest: "/somewhere/Cargo.toml",
        has_postgres: true,
        has_mysql: false,
    };

    #[test]
    fn urls_name_engines() {
        for (url, engine, kept) in [
            ("postgres://h/d", Engine::Postgres, "postgres://h/d"),
            ("postgresql://h/d", Engine::Postgres, "postgresql://h/d"),
            ("mysql://h/d", Engine::Mysql, "mysql://h/d"),
            ("sqlite:///a/b", Engine::Sqlite, "/a/b"),
            ("sqlite:b", Engine::Sqlite, "b"),
            ("b.sqlite", Engine::Sqlite, "b.sqlite"),
        ] {
            let expected = Database {
                engine,
                url: kept.to_owned(),
            };
            assert_eq!(Database::from_url(url).expect(url), expected);
        }
        for url in ["oracle://x", ":memory:", "sqlite://:memory:", ""] {
            assert!(Database::from_url(url).is_err(), "{url}");
        }
    }

    #[test]
    fn rebuild_keeps_the_features() {
        let command = PROGRAM.rebuild_command(OsStr::new("cargo"), "build", "mysql");
        let arguments: Vec<_> = command.get_args().filter_map(OsStr::to_str).collect();
        assert_eq!(
            arguments[..5],
            [
                "build",
                "--manifest-path",
                "/somewhere/Cargo.toml",
                "--features",
                "postgres,mysql"
            ]
        );
    }

    #[test]
    fn temporary_location_is_deleted_and_a_given_one_is_not() {
        let location = DatabaseLocation::new(&PROGRAM, None).expect("a location");
        let url = location.database().url.clone();
        std::fs::write(&url, "").expect("a file");
        drop(location);
        assert!(!std::path::Path::new(&url).exists());

        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("given.sqlite");
        std::fs::write(&path, "").expect("a file");
        drop(DatabaseLocation::new(&PROGRAM, path.to_str()).expect("a location"));
        assert!(path.exists());
    }
}
