//! Increments a number from several connections, with six strategies at three isolation levels, and shows
//! which of them lose updates.

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use program_support::database::{Database, DatabaseLocation, Program};
use program_support::progress::Progress;
use program_support::{outcome as printing, program, terminal, with_connection};

use arguments::Arguments;
use experiment::Experiment;
use outcome::{EngineOutcome, Outcome};
use validation::violations;

mod abortable_barrier;
mod arguments;
mod attempt;
mod check;
mod experiment;
mod increment;
mod isolation;
mod markdown;
mod outcome;
mod statement;
mod store;
mod strategy;
mod terminal_table;
mod validation;
mod workload;

const PROGRAM: Program = program!();

fn main() -> ExitCode {
    terminal::exit_code(PROGRAM.name, run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let given = arguments.database_urls.iter().map(|url| Some(url.as_str()));
    let locations = given
        .chain([None])
        .map(|url| DatabaseLocation::new(&PROGRAM, url))
        .collect::<Result<Vec<_>>>()?;
    for location in &locations {
        location.database().require_support(&PROGRAM)?;
    }
    let cells = locations.len() * Experiment::CELLS;
    let progress = Progress::new(cells, "experiments", arguments.output.json);
    let mut finished = 0;
    let engines = locations
        .iter()
        .map(|location| {
            experiment(arguments, location.database(), || {
                finished += 1;
                progress.set(finished);
            })
        })
        .collect::<Result<Vec<_>>>()?;
    progress.end();
    let outcome = Outcome {
        connections: arguments.connections,
        numbers: arguments.numbers,
        violations: engines.iter().flat_map(violations).collect(),
        engines,
    };
    print(arguments, &outcome)?;
    for violation in &outcome.violations {
        eprintln!("row-locking-matrix: {violation}");
    }
    Ok(if outcome.violations.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn experiment(
    arguments: &Arguments,
    database: &Database,
    finished: impl FnMut(),
) -> Result<EngineOutcome> {
    let experiment = Experiment {
        url: &database.url,
        connections: arguments.connections,
        numbers: arguments.numbers,
    };
    with_connection!(database.engine, C => experiment.run::<C>(finished))
}

fn print(arguments: &Arguments, outcome: &Outcome) -> Result<()> {
    if arguments.output.json {
        printing::print_json(outcome)?;
    } else if arguments.markdown || !io::stdout().is_terminal() {
        println!("{}", markdown::render(outcome));
    } else {
        terminal::print(terminal_table::render(outcome, terminal::width()));
    }
    if arguments.database_urls.is_empty() && !arguments.output.json {
        eprintln!("\n{MORE}");
    }
    Ok(())
}

/// How to see the engines that need a server.
const MORE: &str = " PostgreSQL, MySQL and MariaDB have more levels and strategies than SQLite.
 To see them, name databases:

   --database-url postgres://user:password@host/database
   --database-url mysql://user:password@host/database

 To start servers, and set PG_DATABASE_URL and MYSQL_DATABASE_URL:

   cargo xtask with-servers -- bash";
