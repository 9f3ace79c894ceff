//! A web service whose handlers use object locks, slots and sequences on a pool, which mounts the page that shows them.

use anyhow::Result;
use clap::Parser;
use program_support::database::Program;
use program_support::terminal::{self, BAD, styled};

use args::Arguments;

mod app;
mod args;
mod health;
mod problem;
mod routes;
mod server;
mod store;
mod warnings;

const PROGRAM: Program = program_support::program!();

fn main() {
    let code = run(Arguments::parse()).unwrap_or_else(|error| {
        terminal::print_to_stderr(format!("{}: {error:#}", styled(BAD, PROGRAM.name)));
        1
    });
    // A thread that opens a connection can crash while exit handlers run.
    signal_hook::low_level::exit(code);
}

fn run(arguments: Arguments) -> Result<i32> {
    let location = PROGRAM.locate(arguments.database.database_url.as_deref())?;
    server::serve(location.database(), arguments)
}

/// Writes a line to standard error. Control characters become blanks, so that a text of the database or of a client stays
/// one line.
fn log(text: &str) {
    eprintln!("web: {}", text.replace(char::is_control, " "));
}
