//! Increments a number from several connections, with six strategies at three isolation levels, and shows
//! which of them lose updates.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use program_support::database::Program;
use program_support::terminal;

use experiment::Experiment;
use strategy::Strategy;

mod experiment;
mod outcome;
mod strategy;
mod workload;

const PROGRAM: Program = program_support::program!();

/// Increments a number from several connections, with six strategies at three isolation levels, and shows
/// which of them lose updates.
///
/// Every increment is a transaction: it draws the next number from a row, and inserts it into a table. At
/// the end the table must have every number once. A transaction that the database refuses (deadlock,
/// serialization failure, busy) is retried: at once, or after 1 ms if SQLite is busy.
///
/// With the two strategies that read without a lock, all connections read before the first of them writes,
/// once each: so two writers always conflict.
///
/// PostgreSQL, MySQL and MariaDB have more levels and strategies than SQLite. `cargo xtask with-servers -- bash` starts
/// servers, and sets their URLs in the environment.
///
/// The tables `row_locking_*` are created, and dropped at the end. Use a database for one run at a time.
/// The tables of diesel-locks stay.
///
/// The exit code is 1 if a strategy that must be right loses updates, and if a plain SELECT before an
/// UPDATE loses none: then the run proves nothing.
#[derive(Parser)]
#[command(name = "row-locking-matrix", version)]
struct Arguments {
    /// postgres://.., mysql://.. or the path of an SQLite file; may be given several times
    ///
    /// A temporary SQLite file is always added. A program that was built without PostgreSQL or MySQL is
    /// built again with it by `cargo run`. This needs the client library of the database (Debian, Ubuntu:
    /// libpq-dev, libmariadb-dev).
    #[arg(long = "database-url", value_name = "URL")]
    database_urls: Vec<String>,

    /// Connections that increment at the same time
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u16).range(2..=200))]
    connections: u16,

    /// Numbers that each connection draws with each strategy
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    numbers: u32,
}

fn main() -> ExitCode {
    terminal::exit_code(PROGRAM.name, run(&Arguments::parse()))
}

/// Prints a table in Markdown with a row for each engine and level, and a column for each strategy.
fn run(arguments: &Arguments) -> Result<ExitCode> {
    let given = arguments.database_urls.iter().map(|url| Some(url.as_str()));
    let locations = given
        .chain([None])
        .map(|url| PROGRAM.locate(url))
        .collect::<Result<Vec<_>>>()?;
    let titles = Strategy::ALL.map(Strategy::title).join(" | ");
    println!("| | {titles} |");
    println!("|---|{}", "---|".repeat(Strategy::ALL.len()));
    let mut violations = Vec::new();
    for location in &locations {
        let experiment = Experiment {
            database: location.database(),
            connections: arguments.connections,
            numbers: arguments.numbers,
        };
        experiment.run(&mut violations)?;
    }
    println!(
        "\n{} connections, {} numbers each.",
        arguments.connections, arguments.numbers
    );
    for violation in &violations {
        eprintln!("{}: {violation}", PROGRAM.name);
    }
    Ok(ExitCode::from(u8::from(!violations.is_empty())))
}
