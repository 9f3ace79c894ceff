//! Collates log files by the hour from several processes, at most ten workers at a time, and checks the result.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use arguments::{Arguments, Options, Role};
use database::Place;

mod arguments;
mod check;
mod clock;
mod collator;
mod coordinator;
// Shared by the programs: database URLs, and building the program with support for a database.
#[path = "../../ingest/src/database.rs"]
mod database;
mod directory;
mod duration;
mod generator;
mod halt;
mod holding;
mod job;
mod ledger;
mod merging;
mod node;
mod outcome;
mod processes;
mod queuer;
mod report;
mod screen;
mod sorting;
mod store;
mod tables;
mod trouble;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let ended = match arguments.role {
        Some(Role::Node) => node::run(),
        None => run(&arguments.options),
    };
    ended.unwrap_or_else(|error| {
        eprintln!("collate: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(options: &Options) -> Result<ExitCode> {
    let place = Place::of(options.database_url.as_deref())?;
    place.database().require_support()?;
    let outcome = coordinator::collate(options, &place)?;
    if options.json {
        println!("{}", serde_json::to_string(&outcome)?);
    } else {
        println!("{outcome}");
    }
    Ok(outcome.exit_code())
}
