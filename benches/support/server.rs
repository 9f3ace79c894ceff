//! A database of this process's own on a server.

use std::env;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};
use diesel::connection::Connection;

/// Dropped with the value, also when a panic drops that.
pub(crate) struct ServerDatabase<C: Connection> {
    admin: C,
    drop: String,
    url: String,
}

/// The value of a variable with a server's URL.
pub(crate) fn server_url(variable: &str) -> Result<String> {
    match env::var(variable) {
        Ok(url) => Ok(url),
        Err(_) => bail!(
            "{variable} is not set. `cargo xtask with-servers --durable -- \
             cargo bench --features postgres,mysql,sqlite` starts servers and sets it; or set it to the \
             URL of a server on which databases may be created; or name the backends to run in \
             DIESEL_LOCKS_BENCH_BACKENDS, such as `sqlite`"
        ),
    }
}

impl<C: Connection> ServerDatabase<C> {
    /// `force` goes behind DROP DATABASE, for connections that a panic has left open.
    pub(crate) fn create(variable: &str, force: &str) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);

        let server = server_url(variable)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("diesel_locks_bench_{}_{number}", process::id());
        let mut admin = C::establish(&server)
            .with_context(|| format!("the server of {variable} does not answer"))?;
        let drop = format!("DROP DATABASE IF EXISTS {name} {force}");
        // One of a process with this id that was killed.
        admin.batch_execute(&drop)?;
        admin.batch_execute(&format!("CREATE DATABASE {name}"))?;
        Ok(Self {
            admin,
            drop,
            url: with_database(&server, &name),
        })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn connect(&self) -> Result<C> {
        Ok(C::establish(&self.url)?)
    }
}

impl<C: Connection> Drop for ServerDatabase<C> {
    fn drop(&mut self) {
        if let Err(error) = self.admin.batch_execute(&self.drop) {
            eprintln!("{} failed: {error}", self.drop);
        }
    }
}

/// The same server's URL with another database.
fn with_database(url: &str, name: &str) -> String {
    let (base, query) = match url.split_once('?') {
        Some((base, query)) => (base, format!("?{query}")),
        None => (url, String::new()),
    };
    let host = base.find("://").map_or(0, |scheme| scheme + 3);
    let end = base[host..]
        .find('/')
        .map_or(base.len(), |slash| host + slash);
    format!("{}/{name}{query}", &base[..end])
}
