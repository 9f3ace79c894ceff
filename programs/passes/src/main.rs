//! Issues numbered passes for meetings from many connections at once, and checks that no number is lost or repeated.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use program_support::database::{DatabaseLocation, Program};
use program_support::{outcome as printing, program, terminal};

use arguments::Arguments;

mod arguments;
mod check;
mod coordinator;
mod injected_failure;
mod issue;
mod outcome;
mod retry;
mod store;
mod work_items;
mod worker;

const PROGRAM: Program = program!();

fn main() -> ExitCode {
    terminal::exit_code(PROGRAM.name, run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let location = DatabaseLocation::new(&PROGRAM, arguments.database.database_url.as_deref())?;
    location.database().require_support(&PROGRAM)?;
    let outcome = coordinator::issue_all(arguments, location.database())?;
    printing::print(&outcome, arguments.output.json)?;
    Ok(outcome.exit_code())
}
