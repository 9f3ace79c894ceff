//! A web service whose handlers use object locks, slots and sequences on a pool, with a page that shows them.

use anyhow::Result;
use program_support::database::{DatabaseLocation, Program};
use program_support::terminal::{BAD, styled};
use program_support::{program, terminal, with_connection};

use args::{Command, CommandLine};

mod app;
mod args;
mod jobs;
mod log;
mod measure;
mod metrics;
mod name;
mod problem;
mod routes;
mod server;
mod shutdown;
mod state;
mod store;
mod xml;

const PROGRAM: Program = program!();

fn main() {
    let code = run(&CommandLine::of_process()).unwrap_or_else(|error| {
        terminal::print_to_stderr(format!("{}: {error:#}", styled(BAD, PROGRAM.name)));
        1
    });
    // A thread that opens a connection can crash while exit handlers run.
    signal_hook::low_level::exit(code);
}

fn run(line: &CommandLine) -> Result<i32> {
    let named = match &line.command {
        Some(Command::Measure(arguments)) => &arguments.database,
        None => &line.serve.database,
    };
    let location = DatabaseLocation::new(&PROGRAM, named.database_url.as_deref())?;
    let database = location.database();
    database.require_support(&PROGRAM)?;
    match &line.command {
        Some(Command::Measure(arguments)) => measure::run(database, arguments).map(|()| 0),
        None => with_connection!(database.engine, C => server::serve::<C>(database, &line.serve)),
    }
}
