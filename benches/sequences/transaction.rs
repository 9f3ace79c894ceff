//! What `run_transaction` costs beside Diesel's `transaction`, around one statement that reads.

use anyhow::Result;
use diesel::QueryResult;
use diesel_locks::IsolationLevel;
use diesel_locks::prelude::*;
use serde_json::json;

use crate::options::Options;
use crate::samples::{Samples, figure, order};
use crate::sql::{Baselines, statements};
use crate::support::connections::Connections;
use crate::support::engine_filter::Engine;
use crate::targets::{Findings, Limit, Target};

statements! {
    Read = "SELECT count(*) FROM diesel_locks_sequences";
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runner {
    /// Diesel's.
    Diesel,
    /// `run_transaction` at the session's level.
    Plain,
    /// READ COMMITTED, where there is that.
    Level,
}

impl Runner {
    const ALL: [Self; 3] = [Self::Diesel, Self::Plain, Self::Level];

    fn name(self) -> &'static str {
        match self {
            Self::Diesel => "Diesel's transaction",
            Self::Plain => "run_transaction",
            Self::Level => "run_transaction at a level of its own",
        }
    }

    fn cycle<C: Baselines>(self, conn: &mut C) -> QueryResult<()> {
        let read = |conn: &mut C| conn.number::<Read>(&[]);
        let plain = TransactionOptions::new();
        let number = match self {
            Self::Diesel => conn.transaction(read),
            Self::Plain => conn.run_transaction(plain, read),
            Self::Level => {
                let level = if C::NAME == "sqlite" {
                    IsolationLevel::Serializable
                } else {
                    IsolationLevel::ReadCommitted
                };
                conn.run_transaction(plain.isolation(level), read)
            }
        }?;
        assert_eq!(number, 0);
        Ok(())
    }
}

pub(crate) fn compare<C: Baselines>(
    options: &Options,
    version: &str,
    engine: Engine,
) -> Result<Findings> {
    let mut conns = Connections::<C>::new(1)?;
    let mut times = Runner::ALL.map(|_| Samples::default());
    for round in 0..options.rounds {
        for place in order(times.len(), round) {
            let measured = conns.measure(
                |_, time| time >= options.round,
                |conn, _| Runner::ALL[place].cycle(conn),
            )?;
            times[place].push(measured.per_cycle().as_secs_f64() * 1_000_000.0);
        }
    }
    println!("one statement that reads, 1 connection:\n");
    println!("| | µs per transaction | it / Diesel's |");
    println!("|---|---|---|");
    let [diesel, plain, level] = &times;
    for (runner, times) in Runner::ALL.into_iter().zip(&times) {
        let ratio = times.median() / diesel.median();
        println!("| {} | {:.0} | {ratio:.2} |", runner.name(), times.median());
    }
    println!();
    let limit = Limit::AtMost(1.05);
    let targets = if engine == Engine::Postgres {
        [
            ("at the session's level", plain),
            ("at a level of its own", level),
        ]
        .map(|(what, ours)| Target {
            text: format!("{version}, 1 connection: time of run_transaction {what} / Diesel's"),
            ratio: figure([ours, diesel], |[ours, diesel]| {
                ours.median() / diesel.median()
            }),
            limit,
        })
        .into()
    } else {
        Vec::new()
    };
    Ok(Findings {
        figures: vec![json!({
            "backend": C::NAME,
            "server": version,
            "part": "transaction",
            "microseconds": {
                "diesel": diesel.median(),
                "run_transaction": plain.median(),
                "with_level": level.median(),
            },
        })],
        targets,
    })
}
