//! `cargo xtask`: tests and checks of diesel-locks, with the database servers that they need.
//!
//! `cargo xtask test` starts private, throw-away servers, runs every test on them and stops them again, whichever way it
//! ends; see `servers.rs` for where the servers come from and `cleanup.rs` for how they are stopped.

mod cargo;
mod check;
mod cleanup;
mod clusters;
mod docker;
mod messages;
mod mysql;
mod nodes;
mod patroni;
mod postgres;
mod private;
mod programs;
mod release;
mod run;
mod servers;
mod setup;
mod test;
mod torture;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::release::Release;
use crate::servers::ServerArguments;

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
        arguments: Vec<String>,
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
    /// Runs the tests of clusters: Galera, Group Replication, and servers with a standby or a replica.
    Clusters {
        /// A MariaDB of this version in place of the machine's.
        #[arg(long, value_parser = release::parser("mariadb"))]
        server: Option<&'static Release>,
        /// A part of a test's name.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Whether errors are recognised in every language: reads the messages of the machine's servers, and of all versions that
    /// `--server` has, which it unpacks.
    Messages,
    /// Formatting, lints, documentation, every combination of features, the package, licences, versions.
    Check,
    /// Installs what `test` needs, and does nothing else.
    Setup(ServerArguments),
    /// The process that stops the servers when this one has ended (see `cleanup.rs`).
    #[command(hide = true)]
    CleanupProcess,
}

fn main() -> ExitCode {
    let task = Arguments::parse().command;
    if matches!(task, Task::CleanupProcess) {
        return cleanup::serve();
    }
    let result = cleanup::start().and_then(|()| match task {
        Task::Test { servers, arguments } => test::test(&servers, &arguments),
        Task::WithServers { servers, command } => test::with_servers(&servers, &command),
        Task::Torture(arguments) => torture::torture(&arguments),
        Task::Clusters { server, arguments } => clusters::clusters(server, &arguments),
        Task::Messages => messages::messages(),
        Task::Check => check::check(),
        Task::Setup(servers) => setup::setup(&servers),
        Task::CleanupProcess => unreachable!("handled above"),
    });
    let code = result.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        // Not 1, which means violations in the torture.
        2
    });
    cleanup::finish();
    ExitCode::from(code)
}
