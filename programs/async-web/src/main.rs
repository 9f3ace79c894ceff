//! A web service on asynchronous connections: requests wait for object locks and slots without a connection, and clients may
//! hang up at any time.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use program_support::database::{DatabaseLocation, Program};
use program_support::terminal;

use arguments::{Arguments, Command};

mod app_error;
mod arguments;
mod check;
mod clients;
mod measure;
mod outcome;
mod service;
mod store;
mod witness;

/// Asynchronous connections need no client library: the program always supports all engines.
const PROGRAM: Program = Program {
    name: env!("CARGO_PKG_NAME"),
    manifest: concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
    has_postgres: true,
    has_mysql: true,
};

fn main() -> ExitCode {
    terminal::exit_code(PROGRAM.name, run())
}

#[tokio::main]
async fn run() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let pool = match &arguments.command {
        None => &arguments.pool,
        Some(Command::Measure(options)) => &options.pool,
    };
    let location = DatabaseLocation::new(&PROGRAM, pool.database.database_url.as_deref())?;
    let store = store::open(location.database(), pool.connections.get()).await?;
    match &arguments.command {
        None => service::serve(store, arguments.listen).await,
        Some(Command::Measure(options)) => measure::run(store, options).await,
    }
}
