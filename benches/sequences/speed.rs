//! Transactions per second, design by design.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;
use diesel_locks::prelude::*;
use serde_json::json;

use crate::comparison::{self, Compared, Enough, Row, heading};
use crate::designs::Design;
use crate::options::Options;
use crate::sql::Baselines;
use crate::support::connections::{Connections, Measured};
use crate::support::engine_filter::Engine;
use crate::tables;
use crate::targets::{Findings, Target};

/// How many sequences there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    One,
    Many,
}

impl Scenario {
    fn sequences(self) -> usize {
        if self == Self::Many { 1000 } else { 1 }
    }

    fn designs(self, engine: Engine) -> &'static [Design] {
        match self {
            Self::One => Design::for_one_sequence(engine),
            Self::Many => Design::MANY_SEQUENCES,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::One => "one sequence",
            Self::Many => "1,000 sequences",
        }
    }
}

pub(crate) fn compare<C: Baselines>(
    options: &Options,
    version: &str,
    engine: Engine,
    scenario: Scenario,
    connections: u32,
) -> Result<Findings> {
    let mut conns = Connections::<C>::new(connections as usize)?;
    let sequences: Vec<_> = (0..scenario.sequences())
        .map(|key| Sequence::new("pass").for_key(key))
        .collect();
    let designs = scenario.designs(engine);
    tables::create_and_fill(&mut conns.connect()?, designs, &sequences)?;

    let steps = AtomicU32::new(0);
    let (rounds, round) = (options.rounds, options.round);
    let rows = comparison::measure(designs, connections, rounds, round, |design, enough| {
        let measured = run(&mut conns, design, &sequences, &steps, connections, enough)?;
        Ok((measured, 0))
    })?;

    let what = heading(scenario.text(), connections);
    print(&rows, &what);
    Ok(Findings {
        figures: vec![json!({
            "backend": C::NAME,
            "server": version,
            "part": format!("{scenario:?}").to_lowercase(),
            "connections": connections,
            "designs": rows.iter().map(|row| json!({
                "design": row.design.name(),
                "transactions_per_second": row.speeds.median(),
                "deadlocks": row.deadlocks,
            })).collect::<Vec<_>>(),
        })],
        targets: targets(
            &rows,
            &format!("{version}, {what}"),
            engine,
            scenario,
            connections,
        ),
    })
}

/// All connections until each has enough.
fn run<C: Baselines>(
    conns: &mut Connections<C>,
    design: Design,
    sequences: &[Sequence],
    steps: &AtomicU32,
    connections: u32,
    enough: Enough<'_>,
) -> Result<Measured> {
    conns.measure(enough, |conn, connection| {
        let step = steps.fetch_add(1, Ordering::Relaxed);
        let index = if design == Design::OwnRow {
            // Each connection has rows of its own; all together are as many as the sequences.
            let own = sequences.len() / connections as usize;
            connection * own + step as usize % own
        } else {
            // A step that is prime to their number leads to all of them.
            step as usize * 387 % sequences.len()
        };
        let id = i64::try_from(index).expect("a small number");
        design.cycle(conn, &sequences[index], id, step.into())
    })
}

fn print(rows: &[Row<Design>], what: &str) {
    println!("{what}:\n");
    println!("| | transactions per second | next_number / it | deadlocks |");
    println!("|---|---|---|---|");
    for row in rows {
        println!(
            "| {} | {:.0} | {:.2} | {} |",
            row.design.name(),
            row.speeds.median(),
            comparison::ratio(rows, row),
            row.deadlocks
        );
    }
    println!();
}

fn targets(
    rows: &[Row<Design>],
    what: &str,
    engine: Engine,
    scenario: Scenario,
    connections: u32,
) -> Vec<Target> {
    let limits: &[(Design, f64)] = match (engine, scenario, connections) {
        (Engine::Postgres, Scenario::One, 1) => {
            &[(Design::UpdateReturning, 0.95), (Design::ForUpdate, 1.15)]
        }
        (Engine::Postgres, Scenario::One, _) => {
            &[(Design::UpdateReturning, 0.95), (Design::ForUpdate, 1.08)]
        }
        (Engine::Mysql, Scenario::One, _) => &[(Design::ForUpdate, 1.0)],
        (Engine::Sqlite, ..) => &[],
        (_, Scenario::Many, _) => &[(Design::OwnRow, 0.9)],
    };
    comparison::targets(rows, limits, |design| {
        format!("{what}: next_number / {design}")
    })
}
