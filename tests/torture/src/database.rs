//! The database of a run: made on a server, or a file.

use std::net::SocketAddr;
use std::net::ToSocketAddrs;
use std::process;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use diesel::Connection;
use diesel::connection::SimpleConnection;
use tempfile::TempDir;

use crate::engine::{Engine, with_connection};

/// How long a server that was killed, or has no connection left, is waited for.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// A database of the run's own, which ends with it.
pub(crate) struct Database {
    pub(crate) engine: Engine,
    pub(crate) url: String,
    /// The server's own database, and the run's name on it.
    server: Option<(String, String)>,
    _directory: Option<TempDir>,
}

/// What PostgreSQL's client library needs to know, lest it waits for ever for packets that do not come.
const POSTGRES_LIMITS: &str = "connect_timeout=2&keepalives=1&keepalives_idle=2&keepalives_interval=1\
                               &keepalives_count=3&tcp_user_timeout=5000";

impl Database {
    pub(crate) fn create(server: Option<&str>) -> Result<Self> {
        let Some(server) = server else {
            let directory = tempfile::Builder::new().prefix("torture").tempdir()?;
            let path = directory.path().join("torture.sqlite");
            return Ok(Self {
                engine: Engine::Sqlite,
                url: path.to_str().context("a path in UTF-8")?.to_owned(),
                server: None,
                _directory: Some(directory),
            });
        };
        let engine = Engine::of(server);
        if engine == Engine::Sqlite {
            bail!("a server's URL begins with postgres:// or mysql://, not {server}");
        }
        // In containers the numbers of processes come again.
        let name = format!("torture_{}_{}", process::id(), rand::random::<u16>());
        execute(engine, server, &format!("CREATE DATABASE {name}"))?;
        let (base, path) = server
            .rsplit_once('/')
            .with_context(|| format!("{server} names no database"))?;
        let given = path.split_once('?').map(|(_, options)| options);
        let limits = (engine == Engine::Postgres).then_some(POSTGRES_LIMITS);
        let options: Vec<&str> = given.into_iter().chain(limits).collect();
        let question_mark = if options.is_empty() { "" } else { "?" };
        let url = format!("{base}/{name}{question_mark}{}", options.join("&"));
        Ok(Self {
            engine,
            url,
            server: Some((server.to_owned(), name)),
            _directory: None,
        })
    }

    /// A connection, not by way of a proxy; waits for a server that comes back, or has none to give yet.
    pub(crate) fn connect<C: Connection>(&self) -> Result<C> {
        connect(&self.url)
    }

    /// What it is called on its server.
    pub(crate) fn name(&self) -> Option<&str> {
        self.server.as_ref().map(|(_, name)| name.as_str())
    }

    /// Where the server listens.
    pub(crate) fn address(&self) -> Result<Option<SocketAddr>> {
        if self.server.is_none() {
            return Ok(None);
        }
        let place = self.place().context("a URL with a host")?;
        let default = if self.engine == Engine::Postgres {
            5432
        } else {
            3306
        };
        let place = if place.contains(':') {
            place.to_owned()
        } else {
            format!("{place}:{default}")
        };
        place.to_socket_addrs()?.next().map(Some).context(place)
    }

    /// The URL by way of a proxy at this port.
    pub(crate) fn url_by_way_of(&self, port: u16) -> Result<String> {
        let place = self.place().context("a URL with a host")?;
        Ok(self.url.replacen(place, &format!("127.0.0.1:{port}"), 1))
    }

    /// Host and port.
    fn place(&self) -> Option<&str> {
        let (_, rest) = self.url.split_once("://")?;
        let (authority, _) = rest.split_once('/')?;
        Some(
            authority
                .rsplit_once('@')
                .map_or(authority, |(_, place)| place),
        )
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let Some((server, name)) = &self.server else {
            return;
        };
        // The workers have ended, but the server may not have noticed of all of them.
        let drop = match self.engine {
            Engine::Postgres => format!("DROP DATABASE {name} WITH (FORCE)"),
            // A transaction that has used a table blocks DROP, by default for a year.
            _ => format!("SET SESSION lock_wait_timeout = 10; DROP DATABASE {name}"),
        };
        if let Err(error) = execute(self.engine, server, &drop) {
            eprintln!("torture: can't drop the database {name}: {error:#}");
        }
    }
}

fn execute(engine: Engine, url: &str, statement: &str) -> Result<()> {
    with_connection!(engine, C => Ok(connect::<C>(url)?.batch_execute(statement)?))
}

fn connect<C: Connection>(url: &str) -> Result<C> {
    let started = Instant::now();
    loop {
        match C::establish(url) {
            Err(_) if started.elapsed() < TIMEOUT => sleep(PAUSE),
            established => return Ok(established?),
        }
    }
}
