//! The targets for gap-free sequences and transactions, as ratios to statements by hand, interleaved in one run as in
//! `ratios`.
//!
//! ```text
//! cargo xtask with-servers --durable -- \
//!     cargo bench --features postgres,mysql,sqlite --bench sequences
//! ```

#[path = "sequences/design.rs"]
mod design;
#[allow(dead_code, unused_imports, reason = "parts of other benchmarks")]
mod harness;
#[path = "sequences/transaction.rs"]
mod transaction;

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use clap::{Parser, ValueEnum};
use diesel::QueryResult;
use diesel_locks::prelude::*;

use design::Design;
use harness::{Backend, Benchmark, Connections, Engine, Plan, Report, compare};

/// Measures the targets for gap-free sequences and `run_transaction`, and prints them as Markdown.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    common: harness::Common<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// One sequence: 1 and 8 connections, 50 rounds of 100 ms each.
    One,
    /// 1,000 sequences: 8 connections. Not on SQLite.
    Many,
    /// `run_transaction` beside Diesel's `transaction`: 1 connection.
    Transaction,
}

impl Part {
    fn limits(self, engine: Engine, connections: usize) -> &'static [(Design, f64)] {
        match (engine, self, connections) {
            (Engine::Sqlite, ..) => &[],
            (_, Self::Many, _) => &[(Design::OwnRow, 0.9)],
            (Engine::Postgres, _, 1) => &[(Design::Returning, 0.95), (Design::ForUpdate, 1.15)],
            (Engine::Postgres, ..) => &[(Design::Returning, 0.95), (Design::ForUpdate, 1.08)],
            (Engine::Mysql, ..) => &[(Design::ForUpdate, 1.0)],
        }
    }
}

const JUDGED: &str = "Transactions per second: each draws a number and inserts a row.";

fn main() -> Result<()> {
    let options = Options::parse();
    let (quick, full) = (Plan::new(5, 10), Plan::new(50, 100));
    options.common.run(&options, quick, full, JUDGED)
}

impl Benchmark for Options {
    fn measure<C: Backend>(&self, plan: Plan, report: &mut Report) -> Result<()> {
        let several = C::ENGINE != Engine::Sqlite;
        if self.common.has(Part::One) {
            designs::<C>(plan, Part::One, 1, report)?;
            // SQLite has one writer: more connections would measure who gets the file.
            if several {
                designs::<C>(plan, Part::One, 8, report)?;
            }
        }
        if self.common.has(Part::Many) && several {
            designs::<C>(plan, Part::Many, 8, report)?;
        }
        if self.common.has(Part::Transaction) {
            transaction::measure::<C>(plan, report)?;
        }
        Ok(())
    }
}

/// Transactions per second, design by design.
fn designs<C: Backend>(
    plan: Plan,
    part: Part,
    connections: usize,
    report: &mut Report,
) -> Result<()> {
    let (count, scenario, designs) = match part {
        Part::Many => (1000, "1,000 sequences", &[Design::OwnRow, Design::Ours][..]),
        _ => (1, "one sequence", Design::for_one_sequence(C::ENGINE)),
    };
    let sequences: Vec<_> = (0..count)
        .map(|key| Sequence::new("pass").for_key(key))
        .collect();
    let mut conns = Connections::<C>::new(connections)?;
    create_and_fill(conns.first(), designs, &sequences)?;
    let steps = AtomicUsize::new(0);
    let rows = compare(&mut conns, designs, plan, |design, conn, connection, _| {
        let step = steps.fetch_add(1, Ordering::Relaxed);
        let index = if design == Design::OwnRow {
            // Each connection has rows of its own; all together are as many as the sequences.
            let own = sequences.len() / connections;
            connection * own + step % own
        } else {
            // A step that is prime to their number leads to all of them.
            step * 387 % sequences.len()
        };
        let [id, unique] = [index, step].map(|it| i64::try_from(it).expect("a small number"));
        design.cycle(conn, &sequences[index], id, unique)
    })?;
    let limits = part.limits(C::ENGINE, connections);
    report.speeds(scenario, &rows, Design::Ours, limits);
    Ok(())
}

/// For each design a table with the next numbers, and one that the rows go to. A number that came twice would be an error
/// there.
fn create_and_fill<C: Backend>(
    conn: &mut C,
    designs: &[Design],
    sequences: &[Sequence],
) -> QueryResult<()> {
    let rows: Vec<_> = (0..sequences.len())
        .map(|id| format!("({id}, 0)"))
        .collect();
    let rows = rows.join(", ");
    for design in designs {
        let suffix = design.suffix();
        conn.batch_execute(&format!(
            "CREATE TABLE next_{suffix} (id BIGINT PRIMARY KEY, n BIGINT NOT NULL);
             CREATE TABLE pass_{suffix} (id BIGINT NOT NULL, number BIGINT NOT NULL, PRIMARY KEY (id, number));
             INSERT INTO next_{suffix} VALUES {rows}"
        ))?;
    }
    // On MySQL and MariaDB the first draw of a process takes longer.
    for _ in 0..2 {
        conn.transaction(|conn| {
            for sequence in sequences {
                conn.next_number(sequence)?;
            }
            QueryResult::Ok(())
        })?;
    }
    Ok(())
}
