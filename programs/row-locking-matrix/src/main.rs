//! Increments a number from several connections in six ways at three isolation levels, and shows which ways lose
//! updates.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use arguments::Arguments;
use complaints::complaints;
use database::{Database, Place, with_connection};
use experiment::Experiment;
use outcome::{EngineOutcome, Outcome};

mod arguments;
mod attempt;
mod check;
mod complaints;
mod counting;
// Shared by the programs: database URLs, and building the program with support for a database.
#[path = "../../ingest/src/database.rs"]
mod database;
mod experiment;
mod increment;
mod isolation;
mod meeting;
mod outcome;
mod statement;
mod store;
mod table;
mod way;

fn main() -> ExitCode {
    run(&Arguments::parse()).unwrap_or_else(|error| {
        eprintln!("row-locking-matrix: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let given = arguments.database_urls.iter().map(|url| Some(url.as_str()));
    let places = given
        .chain([None])
        .map(Place::of)
        .collect::<Result<Vec<_>>>()?;
    for place in &places {
        place.database().require_support()?;
    }
    let engines = places
        .iter()
        .map(|place| experiment(arguments, place.database()))
        .collect::<Result<Vec<_>>>()?;
    let outcome = Outcome {
        connections: arguments.connections,
        numbers: arguments.numbers,
        complaints: engines.iter().flat_map(complaints).collect(),
        engines,
    };
    if arguments.json {
        println!("{}", serde_json::to_string(&outcome)?);
    } else {
        println!("{outcome}");
    }
    for complaint in &outcome.complaints {
        eprintln!("row-locking-matrix: {complaint}");
    }
    Ok(if outcome.complaints.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn experiment(arguments: &Arguments, database: &Database) -> Result<EngineOutcome> {
    let experiment = Experiment {
        url: &database.url,
        connections: arguments.connections,
        numbers: arguments.numbers,
    };
    with_connection!(database.engine, C => experiment.run::<C>())
}
