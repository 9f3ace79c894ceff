//! Issues numbered passes for meetings from many connections at once, and checks that no number is lost or repeated.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use arguments::Arguments;
use database::Place;

mod arguments;
mod check;
// Shared by the programs: database URLs, and building the program with support for a database.
#[path = "../../ingest/src/database.rs"]
mod database;
mod failure;
mod issuing;
mod office;
mod orders;
mod organiser;
mod outcome;
mod retry;
#[path = "../../ingest/src/screen.rs"]
mod screen;
mod store;

fn main() -> ExitCode {
    run(&Arguments::parse()).unwrap_or_else(|error| {
        eprintln!("passes: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let place = Place::of(arguments.database_url.as_deref())?;
    place.database().require_support()?;
    let outcome = office::issue_all(arguments, &place)?;
    if arguments.json {
        println!("{}", serde_json::to_string(&outcome)?);
    } else {
        println!("{outcome}");
    }
    Ok(outcome.exit_code())
}
