//! `cargo xtask`: tests and checks of diesel-locks, with the database servers that they need.
//!
//! `cargo xtask test` starts private, throw-away servers, runs every test on them and stops them again, whichever way it
//! ends; see `servers.rs` for where the servers come from and `guard.rs` for how they are stopped.

mod cargo;
mod check;
mod clusters;
mod diesel_cli;
mod docker;
mod engine;
mod german;
mod greeting;
mod guard;
mod interrupt;
mod mysql;
mod needs;
mod package;
mod postgres;
mod programs;
mod purpose;
mod release;
mod run;
mod servers;
mod setup;
mod slim;
mod test;
mod torture;
mod workplace;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::engine::Engine;
use crate::release::Release;

/// Tests and checks of diesel-locks, with the database servers that they need.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Runs all tests on private servers, after installing what is missing.
    Test {
        #[command(flatten)]
        servers: ServerArguments,
        /// Arguments for the test programs, such as a part of a test's name.
        #[arg(last = true)]
        test_arguments: Vec<String>,
    },
    /// Runs a command with the same servers and the variables that name them.
    WithServers {
        #[command(flatten)]
        servers: ServerArguments,
        /// The command, with its arguments.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Lets processes, connections, the server and its clock fail while workers use the library, and checks what they did.
    Torture(torture::TortureArguments),
    /// Runs the tests of clusters: two nodes of Galera, and a PostgreSQL with a hot standby.
    Clusters {
        /// A part of a test's name.
        #[arg(last = true)]
        test_arguments: Vec<String>,
    },
    /// Formatting, lints, documentation, every combination of features, the package, licences, versions.
    Check,
    /// Installs what `test` needs, and does nothing else.
    Setup {
        #[command(flatten)]
        servers: ServerArguments,
    },
    /// The process that stops the servers when this one has ended (see `guard.rs`).
    #[command(hide = true)]
    Guard,
}

/// Which servers, and how.
#[derive(Args, Clone)]
pub(crate) struct ServerArguments {
    /// Only these databases: their servers and their integration tests (`mysql` is MySQL and MariaDB).
    #[arg(long, value_delimiter = ',', value_name = "DATABASE")]
    only: Vec<Engine>,
    /// These servers in place of the machine's (MySQL: beside its MariaDB), from Debian's packages, which are unpacked
    /// and not installed, or as containers.
    #[arg(long, value_delimiter = ',', value_name = "SERVER")]
    server: Vec<Release>,
    /// Leaves fsync and its like at their defaults, for benchmarks and long runs.
    #[arg(long)]
    durable: bool,
    /// Uses only the servers named by `PG_DATABASE_URL`, `MYSQL_DATABASE_URL` and `MARIADB_DATABASE_URL`, starts none.
    #[arg(long)]
    external: bool,
}

impl ServerArguments {
    /// Whether this database was asked for; without `--only`, all were.
    fn wants(&self, engine: Engine) -> bool {
        self.only.is_empty() || self.only.contains(&engine)
    }

    /// The version of this database's server that was asked for; `mysql`: of MySQL, and not of MariaDB.
    fn release(&self, engine: Engine, mysql: bool) -> Option<Release> {
        let asked = self.server.iter().copied();
        let mut fitting =
            asked.filter(|server| server.engine() == engine && server.is_mysql() == mysql);
        fitting.next_back()
    }
}

fn main() -> ExitCode {
    let task = Arguments::parse().command;
    if matches!(task, Task::Guard) {
        return guard::serve();
    }
    let result = interrupt::watch().and_then(|()| match task {
        Task::Test {
            servers,
            test_arguments,
        } => test::test(&servers, &test_arguments),
        Task::WithServers { servers, command } => test::with_servers(&servers, &command),
        Task::Torture(arguments) => torture::torture(&arguments),
        Task::Clusters { test_arguments } => clusters::clusters(&test_arguments),
        Task::Check => check::check(),
        Task::Setup { servers } => setup::setup(&servers),
        Task::Guard => unreachable!("handled above"),
    });
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let interrupted = interrupt::exit_code(&error);
            if interrupted.is_some() {
                // Whatever else the signal made fail does not matter.
                eprintln!("xtask: {}", error.root_cause());
            } else {
                eprintln!("xtask: {error:#}");
            }
            ExitCode::from(interrupted.unwrap_or(1))
        }
    }
}
