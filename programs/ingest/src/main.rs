//! Stores XML documents from several processes, each id under its object lock, and checks the result.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use arguments::{Arguments, Role};
use database::Place;

mod arguments;
mod check;
mod coordinator;
mod database;
mod document;
mod encoding;
mod files;
mod gathered;
mod generator;
mod job;
mod outcome;
mod registration;
mod report;
mod schedule;
mod screen;
mod source;
mod starting_point;
mod store;
mod timestamp;
mod writer;
mod writers;
mod xml;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let ended = match arguments.role {
        Some(Role::Writer) => writer::run(),
        None => run(&arguments),
    };
    ended.unwrap_or_else(|error| {
        eprintln!("ingest: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let options = &arguments.options;
    let place = Place::of(options.database_url.as_deref())?;
    place.database().require_support()?;
    let source = options.source()?;
    let outcome = coordinator::ingest(options, &place, source)?;
    if options.json {
        println!("{}", serde_json::to_string(&outcome)?);
    } else {
        println!("{outcome}");
    }
    if outcome.is_unfinished() {
        eprintln!(
            "{}",
            match place {
                Place::Given(_) => "Not finished: the same command goes on from here.",
                Place::Temporary(..) =>
                    "Not finished, and the temporary database is gone: --database-url names one that stays.",
            }
        );
    }
    Ok(outcome.exit_code())
}
