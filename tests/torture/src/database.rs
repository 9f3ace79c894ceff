//! The database of a run: made on a server, or a file.

use std::net::SocketAddr;
use std::net::ToSocketAddrs;
use std::process;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use diesel::Connection;
use diesel::connection::SimpleConnection;
use tempfile::TempDir;

use crate::cluster::Cluster;
use crate::engine::{Engine, with_connection};

/// How long a server that was killed, or has no connection left, is waited for.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a primary is waited for.
const PRIMARY_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// A database of the run's own, which ends with it.
pub(crate) struct Database {
    pub(crate) engine: Engine,
    pub(crate) cluster: Option<Cluster>,
    /// On each node of a cluster, otherwise one.
    pub(crate) urls: Vec<String>,
    /// The own databases of the servers, and the run's name on them.
    servers: Option<(Vec<String>, String)>,
    _directory: Option<TempDir>,
}

/// What PostgreSQL's client library needs to know, lest it waits for ever for packets that do not come.
const POSTGRES_LIMITS: &str = "connect_timeout=2&keepalives=1&keepalives_idle=2&keepalives_interval=1\
                               &keepalives_count=3&tcp_user_timeout=5000";

impl Database {
    pub(crate) fn create(servers: &[String], cluster: Option<Cluster>) -> Result<Self> {
        ensure!(
            servers.len() < 2 || cluster.is_some(),
            "several servers are a cluster: which one says --cluster"
        );
        let Some(server) = servers.first() else {
            let directory = tempfile::Builder::new().prefix("torture").tempdir()?;
            let path = directory.path().join("torture.sqlite");
            return Ok(Self {
                engine: Engine::Sqlite,
                cluster: None,
                urls: vec![path.to_str().context("a path in UTF-8")?.to_owned()],
                servers: None,
                _directory: Some(directory),
            });
        };
        let engine = Engine::of(server);
        let server = &servers[primary(cluster, servers)?];
        if engine == Engine::Sqlite {
            bail!("a server's URL begins with postgres:// or mysql://, not {server}");
        }
        // In containers the numbers of processes come again.
        let name = format!("torture_{}_{}", process::id(), rand::random::<u16>());
        execute(engine, server, &format!("CREATE DATABASE {name}"))?;
        let urls = servers.iter().map(|server| url(engine, server, &name));
        Ok(Self {
            engine,
            cluster,
            urls: urls.collect::<Result<_>>()?,
            servers: Some((servers.to_vec(), name)),
            _directory: None,
        })
    }

    /// A connection, not by way of a proxy, to a node that takes writes, which reads what any node has committed; waits for a
    /// server that comes back, or has none to give yet.
    pub(crate) fn connect<C: Connection>(&self) -> Result<C> {
        self.connect_to(primary(self.cluster, &self.urls)?)
    }

    /// The same to one of the nodes.
    pub(crate) fn connect_to<C: Connection>(&self, node: usize) -> Result<C> {
        let mut conn: C = connect(&self.urls[node])?;
        if let Some(cluster) = self.cluster {
            conn.batch_execute(cluster.up_to_date())?;
        }
        Ok(conn)
    }

    /// What it is called on its server.
    pub(crate) fn name(&self) -> Option<&str> {
        self.servers.as_ref().map(|(_, name)| name.as_str())
    }

    /// Where the servers listen.
    pub(crate) fn addresses(&self) -> Result<Vec<SocketAddr>> {
        if self.servers.is_none() {
            return Ok(Vec::new());
        }
        let default = if self.engine == Engine::Postgres {
            5432
        } else {
            3306
        };
        let addresses = self.urls.iter().map(|url| {
            let place = place(url).context("a URL with a host")?;
            let place = if place.contains(':') {
                place.to_owned()
            } else {
                format!("{place}:{default}")
            };
            place.to_socket_addrs()?.next().context(place)
        });
        addresses.collect()
    }

    /// The URL by way of a proxy at this port.
    pub(crate) fn url_by_way_of(&self, port: u16) -> Result<String> {
        let url = &self.urls[0];
        let place = place(url).context("a URL with a host")?;
        Ok(url.replacen(place, &format!("127.0.0.1:{port}"), 1))
    }
}

/// The URL of the database with this name on a server.
fn url(engine: Engine, server: &str, name: &str) -> Result<String> {
    let (base, path) = server
        .rsplit_once('/')
        .with_context(|| format!("{server} names no database"))?;
    let given = path.split_once('?').map(|(_, options)| options);
    let limits = (engine == Engine::Postgres).then_some(POSTGRES_LIMITS);
    let options: Vec<&str> = given.into_iter().chain(limits).collect();
    let question_mark = if options.is_empty() { "" } else { "?" };
    Ok(format!("{base}/{name}{question_mark}{}", options.join("&")))
}

/// Host and port.
fn place(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let (authority, _) = rest.split_once('/')?;
    let (_, place) = authority.rsplit_once('@').unwrap_or(("", authority));
    Some(place)
}

impl Drop for Database {
    fn drop(&mut self) {
        let Some((servers, name)) = &self.servers else {
            return;
        };
        // The workers have ended, but the server may not have noticed of all of them.
        let drop = match self.engine {
            Engine::Postgres => format!("DROP DATABASE {name} WITH (FORCE)"),
            // A transaction that has used a table blocks DROP, by default for a year.
            _ => format!("SET SESSION lock_wait_timeout = 10; DROP DATABASE {name}"),
        };
        let dropped = primary(self.cluster, servers)
            .and_then(|primary| execute(self.engine, &servers[primary], &drop));
        if let Err(error) = dropped {
            eprintln!("torture: can't drop the database {name}: {error:#}");
        }
    }
}

/// The node that takes writes, or the first of several.
pub(crate) fn primary(cluster: Option<Cluster>, urls: &[String]) -> Result<usize> {
    let Some(cluster) = cluster.filter(|cluster| cluster.has_primary()) else {
        return Ok(0);
    };
    let started = Instant::now();
    loop {
        let is_primary = |url: &String| {
            let conn = cluster.connect(url);
            conn.is_ok_and(|mut conn| cluster.is_primary(&mut *conn).unwrap_or(false))
        };
        if let Some(primary) = urls.iter().position(is_primary) {
            return Ok(primary);
        }
        ensure!(
            started.elapsed() < PRIMARY_TIMEOUT,
            "no node is the primary"
        );
        sleep(PAUSE);
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
