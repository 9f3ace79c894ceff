//! What locks cost on asynchronous connections, interleaved in one run with blocking connections, sqlx and code written by
//! hand.
//!
//! ```text
//! cargo xtask with-servers --durable -- cargo bench -p async-benchmarks
//! ```
//!
//! `--help` lists the options.

mod added;
mod database;
mod delay;
mod dropped;
mod rounds;
mod tasks;

use std::time::Duration;

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
    #[arg(long, value_delimiter = ',', default_values_t = [Part::Added, Part::Tasks, Part::Dropped])]
    only: Vec<Part>,
    /// The delay of the network in each direction, in microseconds, for the time that a lock adds. Not on SQLite.
    #[arg(long, default_value_t = 0)]
    delay: u64,
    /// The number of rounds of each variant of a part.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Passed by `cargo bench`.
    #[arg(long = "bench", hide = true)]
    _bench: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The time that a lock adds to a transaction, with one connection.
    Added,
    /// Many tasks, and as many threads, on a pool of 8 connections. Not on SQLite.
    Tasks,
    /// The time until a lock is free after a future was dropped.
    Dropped,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Added => "added",
            Self::Tasks => "tasks",
            Self::Dropped => "dropped",
        })
    }
}

fn main() -> Result<()> {
    let options = Options::parse();
    for engine in &options.backends {
        println!("\n## {engine}\n");
        if options.only.contains(&Part::Added) {
            added::measure(
                *engine,
                options.rounds,
                Duration::from_micros(options.delay),
            )?;
        }
        if options.only.contains(&Part::Tasks) && *engine != Engine::Sqlite {
            tasks::measure(*engine, options.rounds)?;
        }
        if options.only.contains(&Part::Dropped) {
            dropped::measure(*engine, options.rounds)?;
        }
    }
    Ok(())
}
