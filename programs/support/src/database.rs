//! Which database a URL means, and how a program gets support for it.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
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
pub enum DatabaseLocation {
    /// A database that the user named. It stays.
    Given(Database),
    /// An SQLite file, which is deleted with this value.
    Temporary(Database, TempDir),
}

impl DatabaseLocation {
    /// The database of the URL, or a temporary SQLite file if there is none.
    fn new(program: Program, url: Option<&str>) -> Result<Self> {
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

/// The features of this build.
const FEATURES: [(&str, bool); 2] = [
    ("postgres", cfg!(feature = "postgres")),
    ("mysql", cfg!(feature = "mysql")),
];

impl Program {
    /// Runs `work` on the database of the URL, or on a temporary SQLite file. Returns the exit code of the program, and
    /// prints an error with all its causes.
    pub fn run(
        self,
        url: Option<&str>,
        work: impl FnOnce(&DatabaseLocation) -> Result<ExitCode>,
    ) -> ExitCode {
        terminal::exit_code(self.name, self.locate(url).and_then(|it| work(&it)))
    }

    /// The database of the URL, which the program supports, or a temporary SQLite file if there is none.
    ///
    /// Otherwise it builds the program again with the feature that is missing, and replaces this process by the new
    /// program.
    pub fn locate(self, url: Option<&str>) -> Result<DatabaseLocation> {
        let location = DatabaseLocation::new(self, url)?;
        let (engine, feature, debian_package) = match location.database().engine {
            Engine::Sqlite => return Ok(location),
            Engine::Postgres => ("PostgreSQL", "postgres", "libpq-dev"),
            Engine::Mysql => ("MySQL", "mysql", "libmariadb-dev"),
        };
        if FEATURES.contains(&(feature, true)) {
            return Ok(location);
        }
        let name = self.name;
        // `cargo run` sets this variable.
        let cargo = env::var_os("CARGO").with_context(|| {
            format!(
                "{name} was built without {engine}; build it with --features {feature} \
                 (needs {debian_package} on Debian and Ubuntu)"
            )
        })?;
        eprintln!("{name} was built without {engine}: building it again with --features {feature}");
        let built = self
            .rebuild_command(&cargo, "build", FEATURES, feature)
            .status()
            .context("can't start cargo")?;
        ensure!(
            built.success(),
            "building with {engine} failed; its client library must be installed \
             ({debian_package} on Debian and Ubuntu)"
        );
        let error = self
            .rebuild_command(&cargo, "run", FEATURES, feature)
            .arg("--quiet")
            .arg("--")
            .args(env::args_os().skip(1))
            .exec();
        Err(error).context("can't start cargo")
    }

    /// `cargo build` or `cargo run` of this program with one more feature.
    fn rebuild_command(
        self,
        cargo: &OsStr,
        action: &str,
        features: [(&str, bool); 2],
        more: &str,
    ) -> Command {
        let mut command = Command::new(cargo);
        command.args([action, "--manifest-path", self.manifest]);
        command.args(["--bin", self.name]);
        // The features of this build stay: a program may need several.
        let present = features.iter().filter(|(_, supported)| *supported);
        let features: Vec<&str> = present.map(|(name, _)| *name).chain([more]).collect();
        command.args(["--features", &features.join(",")]);
        if !cfg!(debug_assertions) {
            command.arg("--release");
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::{Database, DatabaseLocation, Engine, Program};

    const PROGRAM: Program = Program {
        name: "a-program",
        manifest: "/somewhere/Cargo.toml",
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
        let features = [("postgres", true), ("mysql", false)];
        let command = PROGRAM.rebuild_command(OsStr::new("cargo"), "build", features, "mysql");
        let arguments: Vec<_> = command.get_args().filter_map(OsStr::to_str).collect();
        let expected =
            "build --manifest-path /somewhere/Cargo.toml --bin a-program --features postgres,mysql";
        assert_eq!(arguments[..7].join(" "), expected);
    }

    #[test]
    fn temporary_location_is_deleted_and_a_given_one_is_not() {
        let location = DatabaseLocation::new(PROGRAM, None).expect("a location");
        let url = location.database().url.clone();
        std::fs::write(&url, "").expect("a file");
        drop(location);
        assert!(!std::path::Path::new(&url).exists());

        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("given.sqlite");
        std::fs::write(&path, "").expect("a file");
        drop(DatabaseLocation::new(PROGRAM, path.to_str()).expect("a location"));
        assert!(path.exists());
    }
}
