//! Collates log files by the hour from several processes, at most ten workers at a time, and checks the result.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use program_support::database::{DatabaseLocation, Program};
use program_support::{outcome as printing, program, terminal};

use arguments::{Arguments, Options, Role};

mod arguments;
mod check;
mod clock;
mod coordinator;
mod directory;
mod duration;
mod fault_injection;
mod generator;
mod hold_log;
mod job;
mod leased_slot;
mod merging;
mod node;
mod outcome;
mod processes;
mod progress;
mod report;
mod scheduler;
mod sorting;
mod stop_reason;
mod store;
mod tables;
mod worker;

const PROGRAM: Program = program!();

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let ended = match arguments.role {
        Some(Role::Node) => node::run(),
        None => run(&arguments.options),
    };
    terminal::exit_code(PROGRAM.name, ended)
}

fn run(options: &Options) -> Result<ExitCode> {
    let location = DatabaseLocation::new(&PROGRAM, options.database.database_url.as_deref())?;
    location.database().require_support(&PROGRAM)?;
    let outcome = coordinator::collate(options, location.database())?;
    printing::print(&outcome, options.output.json)?;
    Ok(outcome.exit_code())
}
