//! The options that choose servers.

use clap::Args;

use crate::engine::Engine;
use crate::release::Release;

/// The servers of a run and their settings.
#[derive(Args, Clone)]
pub(crate) struct ServerArguments {
    /// Only these databases: their servers and their integration tests (`mysql` is MySQL and MariaDB).
    #[arg(long, value_delimiter = ',', value_name = "DATABASE")]
    pub(crate) only: Vec<Engine>,
    /// These servers in place of the machine's (MySQL: beside its MariaDB), from Debian's packages, which are unpacked
    /// and not installed, or as containers.
    #[arg(long, value_delimiter = ',', value_name = "SERVER")]
    pub(crate) server: Vec<Release>,
    /// Leaves fsync and its like at their defaults, for benchmarks and long runs.
    #[arg(long)]
    pub(crate) durable: bool,
    /// Uses only the servers named by `PG_DATABASE_URL`, `MYSQL_DATABASE_URL` and `MARIADB_DATABASE_URL`, starts none.
    #[arg(long)]
    pub(crate) external: bool,
}

impl ServerArguments {
    /// Whether this database is requested; without `--only`, all were.
    pub(crate) fn includes(&self, engine: Engine) -> bool {
        self.only.is_empty() || self.only.contains(&engine)
    }

    /// The version of this database's server that is requested; `mysql`: of MySQL, and not of MariaDB.
    pub(crate) fn release(&self, engine: Engine, mysql: bool) -> Option<Release> {
        let requested = self.server.iter().copied();
        let mut fitting =
            requested.filter(|server| server.engine() == engine && server.is_mysql() == mysql);
        fitting.next_back()
    }
}
