//! `cargo xtask`: tests and checks of diesel-locks, with the database servers that they need.
//!
//! `cargo xtask test` starts private, throw-away servers, runs every test on them and stops them again, whichever way it
//! ends; see `plan.rs` for where the servers come from and `cleanup_process.rs` for how they are stopped.

mod arguments;
mod cargo;
mod check;
mod cleanup_process;
mod clock;
mod clusters;
mod database_url;
mod diesel_cli;
mod docker;
mod engine;
mod interrupt;
mod locale_de;
mod messages;
mod mysql;
mod mysql_handshake;
mod path_lookup;
mod pgbouncer;
mod plan;
mod postgres;
mod release;
mod requirements;
mod run;
mod run_dir;
mod server;
mod server_role;
mod servers;
mod setup;
mod spawn;
mod test;
mod torture;
mod unpacked;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::arguments::ServerArguments;

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
    /// Whether errors are recognised in every language: reads the messages of the machine's servers, and of all versions that
    /// `--server` has, which it unpacks.
    Messages,
    /// Formatting, lints, documentation, every combination of features, the package, licences, versions.
    Check,
    /// Installs what `test` needs, and does nothing else.
    Setup {
        #[command(flatten)]
        servers: ServerArguments,
    },
    /// The process that stops the servers when this one has ended (see `cleanup_process.rs`).
    #[command(hide = true)]
    CleanupProcess,
}

fn main() -> ExitCode {
    let task = Arguments::parse().command;
    if matches!(task, Task::CleanupProcess) {
        return cleanup_process::serve();
    }
    let result = interrupt::watch().and_then(|()| match task {
        Task::Test {
            servers,
            test_arguments,
        } => test::test(&servers, &test_arguments),
        Task::WithServers { servers, command } => test::with_servers(&servers, &command),
        Task::Torture(arguments) => torture::torture(&arguments),
        Task::Clusters { test_arguments } => clusters::clusters(&test_arguments),
        Task::Messages => messages::messages(),
        Task::Check => check::check(),
        Task::Setup { servers } => setup::setup(&servers),
        Task::CleanupProcess => unreachable!("handled above"),
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
