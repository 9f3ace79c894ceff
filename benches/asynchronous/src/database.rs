//! The databases, each of this process alone.

use std::env;
use std::fmt;

use anyhow::{Context, Result};
use clap::ValueEnum;
use diesel::connection::{Connection, SimpleConnection};
use diesel::{MysqlConnection, PgConnection, SqliteConnection};
use tempfile::TempDir;

diesel::table! {
    /// What the transactions read.
    counters (id) {
        id -> Integer,
        n -> BigInt,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    Postgres,
    /// MySQL or MariaDB, whichever `MYSQL_DATABASE_URL` names.
    Mysql,
    Sqlite,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
            Self::Sqlite => "sqlite",
        })
    }
}

pub(crate) struct Database {
    pub(crate) url: String,
    drop: Option<(Engine, String, String)>,
    _folder: Option<TempDir>,
}

impl Database {
    pub(crate) fn new(engine: Engine) -> Result<Self> {
        let variable = match engine {
            Engine::Postgres => "PG_DATABASE_URL",
            Engine::Mysql => "MYSQL_DATABASE_URL",
            Engine::Sqlite => return Self::file(),
        };
        let server = env::var(variable).with_context(|| {
            format!(
                "{variable} is not set: run this with `cargo xtask with-servers --durable -- ..`"
            )
        })?;
        let name = format!("diesel_locks_async_bench_{}", std::process::id());
        send(engine, &server, &format!("CREATE DATABASE {name}"))?;
        let (host, _) = server.rsplit_once('/').context("a URL with a database")?;
        let database = Self {
            url: format!("{host}/{name}"),
            drop: Some((engine, server.clone(), format!("DROP DATABASE {name}"))),
            _folder: None,
        };
        match engine {
            Engine::Postgres => {
                diesel_locks::migrate(&mut PgConnection::establish(&database.url)?)?;
            }
            _ => {
                diesel_locks::migrate(&mut MysqlConnection::establish(&database.url)?)?;
            }
        }
        for sql in TABLE {
            send(engine, &database.url, sql)?;
        }
        Ok(database)
    }

    fn file() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let url = folder.path().join("bench.db").display().to_string();
        let mut conn = SqliteConnection::establish(&url)?;
        conn.batch_execute("PRAGMA journal_mode = WAL")?;
        diesel_locks::migrate(&mut conn)?;
        for sql in TABLE {
            conn.batch_execute(sql)?;
        }
        Ok(Self {
            url,
            drop: None,
            _folder: Some(folder),
        })
    }
}

const TABLE: [&str; 2] = [
    "CREATE TABLE counters (id INTEGER PRIMARY KEY, n BIGINT NOT NULL)",
    "INSERT INTO counters VALUES (1, 7)",
];

fn send(engine: Engine, url: &str, sql: &str) -> Result<()> {
    match engine {
        Engine::Postgres => PgConnection::establish(url)?.batch_execute(sql)?,
        Engine::Mysql => MysqlConnection::establish(url)?.batch_execute(sql)?,
        Engine::Sqlite => SqliteConnection::establish(url)?.batch_execute(sql)?,
    }
    Ok(())
}

impl Drop for Database {
    fn drop(&mut self) {
        if let Some((engine, server, sql)) = &self.drop {
            let sql = match engine {
                // Connections of a pool may still be closing.
                Engine::Postgres => format!("{sql} WITH (FORCE)"),
                _ => sql.clone(),
            };
            if let Err(error) = send(*engine, server, &sql) {
                eprintln!("{sql}: {error}");
            }
        }
    }
}
