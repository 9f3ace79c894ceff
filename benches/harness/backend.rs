//! The engines, and a database of the benchmark's own on each.

use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

use anyhow::{Context, Result};
use clap::ValueEnum;
use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::r2d2::R2D2Connection;
use diesel::sql_types::Text;
use diesel_locks::prelude::*;
use tempfile::TempDir;

use super::{Cached, Statement, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    Postgres,
    /// MySQL or MariaDB, whichever `MYSQL_DATABASE_URL` names.
    #[value(alias = "mariadb")]
    Mysql,
    Sqlite,
}

impl Engine {
    /// The engines of the command line, or else all. An engine whose server is missing is an error and not left out.
    pub(crate) fn selected(given: &[Self]) -> Result<&[Self]> {
        let engines = if given.is_empty() {
            Self::value_variants()
        } else {
            given
        };
        for engine in engines.iter().filter(|it| **it != Self::Sqlite) {
            engine.server()?;
        }
        Ok(engines)
    }

    /// The URL of its server.
    pub(crate) fn server(self) -> Result<String> {
        let variable = match self {
            Self::Postgres => "PG_DATABASE_URL",
            _ => "MYSQL_DATABASE_URL",
        };
        env::var(variable).with_context(|| {
            format!(
                "{variable} is not set. `cargo xtask with-servers --durable -- cargo bench ..` starts servers and sets \
                 it; or set it to the URL of a server on which databases may be created; or name the engines to measure, \
                 such as `--backends sqlite`"
            )
        })
    }
}

/// A database of this process's own. It is dropped with the value, also when a panic drops that.
pub(crate) struct Database {
    pub(crate) url: String,
    /// A connection to the server, and the statement that drops the database.
    on_server: Option<(Box<dyn SimpleConnection>, String)>,
    _directory: Option<TempDir>,
}

impl Database {
    /// A database with the tables of the crate.
    pub(crate) fn create<C: Backend>() -> Result<Self> {
        let database = if C::ENGINE == Engine::Sqlite {
            Self::in_file()?
        } else {
            Self::on_server::<C>()?
        };
        diesel_locks::migrate(&mut C::open(&database.url)?)?;
        Ok(database)
    }

    fn on_server<C: Backend>() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);

        let server = C::ENGINE.server()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("diesel_locks_bench_{}_{number}", process::id());
        let base = server.split('?').next().unwrap_or_default();
        let (host, _) = base.rsplit_once('/').context("a URL with a database")?;
        let mut admin = C::establish(&server).context("the server does not answer")?;
        let force = match C::ENGINE {
            // For connections that a panic has left open, and those of a pool that are still closing.
            Engine::Postgres => " WITH (FORCE)",
            _ => "",
        };
        let drop = format!("DROP DATABASE IF EXISTS {name}{force}");
        // One of a process with this id that was killed.
        admin.batch_execute(&drop)?;
        admin.batch_execute(&format!("CREATE DATABASE {name}"))?;
        Ok(Self {
            url: format!("{host}/{name}{}", &server[base.len()..]),
            on_server: Some((Box::new(admin), drop)),
            _directory: None,
        })
    }

    fn in_file() -> Result<Self> {
        // Not the system's directory for temporary files, which may be in memory.
        let parent = env!("CARGO_TARGET_TMPDIR");
        fs::create_dir_all(parent)?;
        let directory = TempDir::with_prefix_in("bench-", parent)?;
        let file = directory.path().join("bench.sqlite3");
        Ok(Self {
            url: file.to_str().context("the path is not UTF-8")?.to_owned(),
            on_server: None,
            _directory: Some(directory),
        })
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if let Some((admin, drop)) = &mut self.on_server
            && let Err(error) = admin.batch_execute(drop)
        {
            eprintln!("{drop} failed: {error}");
        }
    }
}

/// A connection to an engine.
pub(crate) trait Backend:
    ObjectLockExt + SemaphoreExt + SequenceExt + R2D2Connection + Send + 'static
{
    const ENGINE: Engine;
    /// Opens a transaction that keeps to what was committed by now.
    const OLD_SNAPSHOT: &'static str;

    /// Opens a connection, with the settings of an application.
    fn open(url: &str) -> Result<Self> {
        Ok(Self::establish(url)?)
    }

    /// Runs a statement, and says how many rows it changed (MySQL: found).
    fn change<S: Statement>(&mut self, values: &[Value<'_>]) -> QueryResult<usize>;

    /// Runs a statement that returns one number or nothing.
    fn number<S: Statement>(&mut self, values: &[Value<'_>]) -> QueryResult<Option<i64>>;

    /// Runs a statement that returns one text.
    fn text(&mut self, query: &str) -> QueryResult<String>;

    /// Name and version of the server, or of the library.
    fn version(&mut self) -> Result<String> {
        if Self::ENGINE == Engine::Sqlite {
            return Ok(format!("SQLite {}", self.text("SELECT sqlite_version()")?));
        }
        let text = self.text("SELECT version()")?;
        let number = text.split('-').next().unwrap_or_default();
        Ok(match Self::ENGINE {
            Engine::Postgres => text.split(' ').take(2).collect::<Vec<_>>().join(" "),
            _ if text.contains("MariaDB") => format!("MariaDB {number}"),
            _ => format!("MySQL {number}"),
        })
    }
}

/// Diesel has no way to say "any connection on which these statements run" that is shorter than the methods.
macro_rules! run_statements {
    ($connection:ty) => {
        fn change<S: Statement>(&mut self, values: &[Value<'_>]) -> QueryResult<usize> {
            Cached::<S>::new(values).execute(self)
        }

        fn number<S: Statement>(&mut self, values: &[Value<'_>]) -> QueryResult<Option<i64>> {
            Cached::<S>::new(values).get_result(self).optional()
        }

        fn text(&mut self, query: &str) -> QueryResult<String> {
            sql::<Text>(query).get_result(self)
        }
    };
}

/// Its default level, READ COMMITTED, is that of `with_object_lock` too.
impl Backend for PgConnection {
    const ENGINE: Engine = Engine::Postgres;
    const OLD_SNAPSHOT: &'static str =
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT price FROM bonds WHERE id = 1";

    run_statements!(PgConnection);
}

impl Backend for MysqlConnection {
    const ENGINE: Engine = Engine::Mysql;
    const OLD_SNAPSHOT: &'static str = "START TRANSACTION WITH CONSISTENT SNAPSHOT";

    run_statements!(MysqlConnection);
}

/// A file in WAL mode, on the disk that holds the build.
impl Backend for SqliteConnection {
    const ENGINE: Engine = Engine::Sqlite;
    const OLD_SNAPSHOT: &'static str = "BEGIN; SELECT price FROM bonds WHERE id = 1";

    fn open(url: &str) -> Result<Self> {
        let mut conn = Self::establish(url)?;
        diesel_locks::operation::sqlite::prepare(&mut conn)?;
        conn.batch_execute("PRAGMA busy_timeout = 600000")?;
        Ok(conn)
    }

    run_statements!(SqliteConnection);
}
