//! What locks cost on asynchronous connections, interleaved in one run with blocking connections, sqlx and code written by
//! hand.
//!
//! ```text
//! cargo xtask with-servers --durable -- cargo run --release -p async-benchmarks
//! ```
//!
//! `--help` lists the options.

mod added;
mod database;
mod rounds;
mod tasks;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use database::Engine;

/// What locks cost on asynchronous connections, beside blocking ones, sqlx and code written by hand.
#[derive(Parser)]
struct Options {
    /// The engines to measure.
    #[arg(long, value_delimiter = ',', default_values_t = [Engine::Postgres, Engine::Mysql, Engine::Sqlite])]
    backends: Vec<Engine>,
    /// The parts to measure.
    #[arg(long, value_delimiter = ',', default_values_t = [Part::Added, Part::Tasks])]
    only: Vec<Part>,
    /// The number of rounds of each variant of a part.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The time that a lock adds to a transaction, with one connection.
    Added,
    /// Many tasks, and as many threads, on a pool of 8 connections. Not on SQLite.
    Tasks,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Added => "added",
            Self::Tasks => "tasks",
        })
    }
}

fn main() -> Result<()> {
    let options = Options::parse();
    for engine in &options.backends {
        println!("\n## {engine}\n");
        if options.only.contains(&Part::Added) {
            added::measure(*engine, options.rounds)?;
        }
        if options.only.contains(&Part::Tasks) && *engine != Engine::Sqlite {
            tasks::measure(*engine, options.rounds)?;
        }
    }
    Ok(())
}
