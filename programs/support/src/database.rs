//! Which database a URL means, and how a program gets support for it.

use std::env;
use std::fmt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use diesel_locks::IsolationLevel;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::terminal;

/// Which database a program uses.
#[derive(Args, Clone)]
pub struct DatabaseArguments {
    /// postgres://.., mysql://.. or the path of an SQLite file [default: a temporary SQLite file]
    ///
    /// A program that was built without PostgreSQL or MySQL is built again with it by `cargo run`. This
    /// needs the client library of the database (Debian, Ubuntu: libpq-dev, libmariadb-dev).
    #[arg(long, value_name = "URL")]
    pub database_url: Option<String>,
}

/// The kind of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// An SQLite file.
    Sqlite,
    /// PostgreSQL.
    Postgres,
    /// MySQL or MariaDB.
    Mysql,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
        })
    }
}

impl Engine {
    /// The statement that begins a transaction at this level. On SQLite all transactions are serializable.
    pub fn begin_at(self, level: IsolationLevel) -> String {
        match self {
            Self::Sqlite => "BEGIN".to_owned(),
            Self::Postgres => format!("BEGIN ISOLATION LEVEL {level}"),
            // The level applies to the next transaction only. Both statements are sent in one message.
            Self::Mysql => format!("SET TRANSACTION ISOLATION LEVEL {level}; BEGIN"),
        }
    }
}

/// A database, with a URL that Diesel accepts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Database {
    /// The kind of the database.
    pub engine: Engine,
    /// The URL; the path of an SQLite file without `sqlite:`.
    pub url: String,
}

impl Database {
    /// Reads `postgres://..`, `mysql://..`, or the path of an SQLite file, with or without `sqlite://`.
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
}

/// Where the database is.
pub struct DatabaseLocation {
    database: Database,
    /// The directory of a temporary SQLite file, which is deleted with this value. A database that the user named stays.
    _temporary: Option<TempDir>,
}

impl DatabaseLocation {
    /// The database of the URL, or a temporary SQLite file if there is none.
    fn new(program: Program, url: Option<&str>) -> Result<Self> {
        if let Some(url) = url {
            return Ok(Self {
                database: Database::from_url(url)?,
                _temporary: None,
            });
        }
        let directory = TempDir::with_prefix(program.name)
            .context("can't create a directory for temporary files")?;
        let path = directory.path().join("database.sqlite");
        let url = path
            .to_str()
            .context("the directory for temporary files is not UTF-8")?;
        Ok(Self {
            database: Database::from_url(url)?,
            _temporary: Some(directory),
        })
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.database
    }
}

/// A program of this workspace: see [`program!`](crate::program).
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// The path of the `Cargo.toml` of its package.
    pub manifest: &'static str,
}

/// The [`Program`] in which this macro is called.
#[macro_export]
macro_rules! program {
    () => {
        $crate::database::Program {
            name: env!("CARGO_BIN_NAME"),
            manifest: concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
        }
    };
}

impl Program {
    /// Runs `work` on the database of the URL, or on a temporary SQLite file. Returns the exit code of the program, and
    /// prints an error with all its causes.
    pub fn run(
        self,
        url: Option<&str>,
        work: impl FnOnce(&Database) -> Result<ExitCode>,
    ) -> ExitCode {
        let ended = self.locate(url).and_then(|it| work(it.database()));
        terminal::exit_code(self.name, ended)
    }

    /// The database of the URL, which the program supports, or a temporary SQLite file if there is none.
    ///
    /// Otherwise it replaces this process by `cargo run` of the program with the feature that is missing.
    pub fn locate(self, url: Option<&str>) -> Result<DatabaseLocation> {
        let location = DatabaseLocation::new(self, url)?;
        let (is_supported, engine, feature, debian_package) = match location.database.engine {
            Engine::Sqlite => return Ok(location),
            Engine::Postgres => (
                cfg!(feature = "postgres"),
                "PostgreSQL",
                "postgres",
                "libpq-dev",
            ),
            Engine::Mysql => (cfg!(feature = "mysql"), "MySQL", "mysql", "libmariadb-dev"),
        };
        if is_supported {
            return Ok(location);
        }
        let without = format!(
            "{} was built without {engine}; --features {feature} needs {debian_package} on Debian and Ubuntu",
            self.name
        );
        // `cargo run` sets this variable.
        let Some(cargo) = env::var_os("CARGO") else {
            bail!(without);
        };
        eprintln!("{without}: building it again");
        let mut command = Command::new(cargo);
        command.args(["run", "--quiet", "--manifest-path", self.manifest]);
        command.args(["--bin", self.name, "--features", feature]);
        // The features of this build stay: a program may need both.
        if cfg!(feature = "postgres") {
            command.args(["--features", "postgres"]);
        }
        if cfg!(feature = "mysql") {
            command.args(["--features", "mysql"]);
        }
        if !cfg!(debug_assertions) {
            command.arg("--release");
        }
        let error = command.arg("--").args(env::args_os().skip(1)).exec();
        Err(error).context("can't start cargo")
    }
}

#[cfg(test)]
mod tests {
    use super::{Database, Engine};

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
}
