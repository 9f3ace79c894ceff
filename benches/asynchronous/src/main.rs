//! Locks on asynchronous connections, interleaved in one run with blocking ones, sqlx and code written by hand.
//!
//! ```text
//! cargo xtask with-servers --durable -- cargo bench -p async-benchmarks
//! ```

mod added;
mod delay;
mod dropped;
#[allow(dead_code, unused_imports, reason = "parts of other benchmarks")]
#[path = "../../harness/mod.rs"]
mod harness;
mod tasks;

use std::time::Duration;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use harness::{Backend, Benchmark, Engine, Plan, Report};

/// Measures what locks cost on asynchronous connections, beside blocking ones, sqlx and code written by hand.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    common: harness::Common<Part>,
    /// The delay of the network in each direction, in microseconds, for the time that a lock adds. Not on SQLite.
    #[arg(long, default_value_t = 0)]
    delay: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The time that a lock adds to a transaction, with one connection: 20 rounds of 50 ms each.
    Added,
    /// Many tasks, and as many threads, on a pool of 8 connections: a fifth of the rounds, of 1 s each. Not on SQLite.
    Tasks,
    /// The time until a lock is free after a future was dropped: as many drops as rounds.
    Dropped,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let (quick, full) = (Plan::new(2, 5), Plan::new(20, 50));
    options.common.run(&options, quick, full, "")
}

impl Benchmark for Options {
    fn measure<C: Backend>(&self, plan: Plan, report: &mut Report) -> Result<()> {
        if self.common.has(Part::Added) {
            added::measure(C::ENGINE, plan, Duration::from_micros(self.delay), report)?;
        }
        if self.common.has(Part::Tasks) && C::ENGINE != Engine::Sqlite {
            tasks::measure(C::ENGINE, plan.rounds.div_ceil(5), report)?;
        }
        if self.common.has(Part::Dropped) {
            dropped::measure(C::ENGINE, plan.rounds, report)?;
        }
        Ok(())
    }
}
