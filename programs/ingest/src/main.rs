//! Stores XML documents from several processes, each id under its object lock, and checks the result.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use program_support::database::{DatabaseLocation, Program};
use program_support::{outcome as printing, program, terminal};

use arguments::{Arguments, Role};

mod arguments;
mod baseline;
mod check;
mod coordinator;
mod document;
mod encoding;
mod files;
mod generator;
mod job;
mod outcome;
mod report;
mod run_totals;
mod schedule;
mod source;
mod store;
mod timestamp;
mod upsert;
mod writer;
mod writer_processes;
mod xml;

const PROGRAM: Program = program!();

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let ended = match arguments.role {
        Some(Role::Writer) => writer::run(),
        None => run(&arguments),
    };
    terminal::exit_code(PROGRAM.name, ended)
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let options = &arguments.options;
    let location = DatabaseLocation::new(&PROGRAM, options.database.database_url.as_deref())?;
    location.database().require_support(&PROGRAM)?;
    let source = options.source()?;
    let outcome = coordinator::ingest(options, location.database(), source)?;
    printing::print(&outcome, options.output.json)?;
    if outcome.is_unfinished() {
        eprintln!(
            "{}",
            match location {
                DatabaseLocation::Given(_) => "Not finished: the same command continues from here.",
                DatabaseLocation::Temporary(..) =>
                    "Not finished, and the temporary database is deleted: --database-url names one that stays.",
            }
        );
    }
    Ok(outcome.exit_code())
}
