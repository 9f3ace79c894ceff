//! Which database a URL refers to, how the program gets support for it, and the connection type.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

/// The kind of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Sqlite,
    Postgres,
    Mysql,
}

/// A database, with a URL that Diesel accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Database {
    pub(crate) engine: Engine,
    pub(crate) url: String,
}

impl Database {
    /// `postgres://..`, `mysql://..`, or the path of an SQLite file, with or without `sqlite://`.
    pub(crate) fn from_url(url: &str) -> Result<Self> {
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

    /// Ensures that the program supports this database. If it was built without support, builds it again with support
    /// and replaces this process by the new program.
    pub(crate) fn require_support(&self) -> Result<()> {
        let (name, feature, debian_package, supported) = match self.engine {
            Engine::Sqlite => return Ok(()),
            Engine::Postgres => (
                "PostgreSQL",
                "postgres",
                "libpq-dev",
                cfg!(feature = "postgres"),
            ),
            Engine::Mysql => ("MySQL", "mysql", "libmariadb-dev", cfg!(feature = "mysql")),
        };
        if supported {
            return Ok(());
        }
        let program = env!("CARGO_PKG_NAME");
        // `cargo run` sets this variable.
        let cargo = env::var_os("CARGO").with_context(|| {
            format!(
                "{program} was built without {name}; build it with --features {feature} \
                 (needs {debian_package} on Debian and Ubuntu)"
            )
        })?;
        eprintln!(
            "{program} was built without {name}: building it again with --features {feature}"
        );
        let built = again(&cargo, "build", feature)
            .status()
            .context("can't start cargo")?;
        ensure!(
            built.success(),
            "building with {name} failed; its client library must be installed \
             ({debian_package} on Debian and Ubuntu)"
        );
        let error = again(&cargo, "run", feature)
            .arg("--quiet")
            .arg("--")
            .args(env::args_os().skip(1))
            .exec();
        Err(error).context("can't start cargo")
    }
}

fn again(cargo: &OsString, action: &str, feature: &str) -> Command {
    let mut command = Command::new(cargo);
    command.args([
        action,
        "--manifest-path",
        concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
    ]);
    // Keep the features that it was built with, because a program may need several.
    let before = [
        ("postgres", cfg!(feature = "postgres")),
        ("mysql", cfg!(feature = "mysql")),
    ];
    let before = before.iter().filter(|(_, supported)| *supported);
    let features: Vec<&str> = before.map(|(name, _)| *name).chain([feature]).collect();
    command.args(["--features", &features.join(",")]);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    command
}

/// Where the database is: a given one, which is kept, or an SQLite file that is deleted with this value.
pub(crate) enum Place {
    Given(Database),
    Temporary(
        Database,
        #[expect(dead_code, reason = "held for its Drop")] TempDir,
    ),
}

impl Place {
    pub(crate) fn of(url: Option<&str>) -> Result<Self> {
        if let Some(url) = url {
            return Ok(Self::Given(Database::from_url(url)?));
        }
        let directory = tempfile::Builder::new()
            .prefix(env!("CARGO_PKG_NAME"))
            .tempdir()
            .context("can't create a directory for temporary files")?;
        let path = directory.path().join("database.sqlite");
        let url = path
            .to_str()
            .context("the directory for temporary files is not UTF-8")?;
        Ok(Self::Temporary(Database::from_url(url)?, directory))
    }

    pub(crate) fn database(&self) -> &Database {
        match self {
            Self::Given(database) | Self::Temporary(database, _) => database,
        }
    }
}

/// Evaluates an expression with the connection type of an engine, which the program must support: see
/// [`Database::require_support`].
#[allow(unused_macros, reason = "some of the programs that include this file")]
macro_rules! with_connection {
    ($engine:expr, $connection:ident => $value:expr) => {
        match $engine {
            crate::database::Engine::Sqlite => {
                type $connection = diesel::SqliteConnection;
                $value
            }
            #[cfg(feature = "postgres")]
            crate::database::Engine::Postgres => {
                type $connection = diesel::PgConnection;
                $value
            }
            #[cfg(feature = "mysql")]
            crate::database::Engine::Mysql => {
                type $connection = diesel::MysqlConnection;
                $value
            }
            #[cfg(not(all(feature = "postgres", feature = "mysql")))]
            _ => anyhow::bail!("this program was built without support for that database"),
        }
    };
}
#[allow(unused_imports, reason = "as above")]
pub(crate) use with_connection;
