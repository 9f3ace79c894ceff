//! Shows step by step how two sessions conflict: first the wrong way, then the remedy.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use program_support::arguments::DatabaseArguments;
use program_support::database::{DatabaseLocation, Program};
use program_support::{program, terminal, with_connection};

use runner::LessonRunner;

mod barrier;
mod lessons;
mod runner;
mod scenario;
mod session;
mod store;
mod transcript;

const PROGRAM: Program = program!();

/// Two sessions, A and B, block each other or lose updates, step by step. Prints each statement and the
/// answer of the database.
///
/// Lock upgrades, locks in different orders, lost updates, failures at COMMIT: first the mistake, then
/// the remedies. PostgreSQL, MySQL and MariaDB have more lessons than SQLite.
///
/// A database that --database-url names gets a table `lessons`, which stays. Use it for one run at a time.
///
/// The exit code is 1 if the database answered otherwise than the lesson expects.
#[derive(Parser)]
#[command(name = "lessons", version)]
struct Arguments {
    #[command(flatten)]
    database: DatabaseArguments,
}

fn main() -> ExitCode {
    terminal::exit_code(PROGRAM.name, run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let location = DatabaseLocation::new(&PROGRAM, arguments.database.database_url.as_deref())?;
    let database = location.database();
    database.require_support(&PROGRAM)?;
    let mut runner = LessonRunner::new(&database.url);
    with_connection!(database.engine, C => lessons::run::<C>(&mut runner)?);
    Ok(runner.end())
}
