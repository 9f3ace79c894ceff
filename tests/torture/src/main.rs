//! Workers that use `diesel-locks` as applications do, while a nemesis kills, pauses, cuts off and crashes what they stand
//! on; and a check of what they did.
//!
//! `coordinator.rs` is the run from its beginning to its end, `worker.rs` a worker process, `nemesis.rs` what happens to
//! them. The check is a crate of its own, `torture-checker`, which does not know `diesel-locks`.
//!
//! `cargo xtask torture` starts a private server and this program with it.

mod arguments;
mod async_pools;
mod async_store;
mod clock;
mod cluster;
mod coordinator;
mod database;
mod directory;
mod engine;
mod job;
mod nemesis;
mod proxy;
mod routing;
mod run_context;
mod sabotage;
mod sessions;
mod store;
mod verdict;
mod worker;
mod worker_pool;

use std::process::ExitCode;

use clap::Parser;

use crate::arguments::{Arguments, Command};

fn main() -> ExitCode {
    let run = match Arguments::parse().command {
        Command::Run(run) => run,
        Command::Worker => worker::main(),
    };
    coordinator::run(&run).unwrap_or_else(|error| {
        eprintln!("torture: {error:#}");
        ExitCode::from(2)
    })
}
