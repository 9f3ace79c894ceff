//! Transactions per second, design by design.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Result;
use diesel_locks::prelude::*;
use serde_json::json;

use crate::designs::Design;
use crate::options::Options;
use crate::samples::{Samples, figure, order};
use crate::sql::Baselines;
use crate::support::connections::{Connections, Measured};
use crate::support::engine_filter::Engine;
use crate::tables;
use crate::targets::{Findings, Limit, Target};

/// Transactions of each design on each connection before the first round: statements are prepared, plans
/// settled on.
const WARM_UP: u32 = 30;

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

/// One design's rounds.
struct Row {
    design: Design,
    /// Transactions per second of all connections together.
    speeds: Samples,
    deadlocks: u32,
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
    let mut run = |design, enough: &(dyn Fn(u32, Duration) -> bool + Sync)| {
        run(&mut conns, design, &sequences, &steps, connections, enough)
    };
    let mut rows: Vec<_> = designs
        .iter()
        .map(|&design| Row {
            design,
            speeds: Samples::default(),
            deadlocks: 0,
        })
        .collect();
    for row in &rows {
        run(row.design, &|done, _| done >= WARM_UP)?;
    }
    for round in 0..options.rounds {
        for index in order(rows.len(), round) {
            let row = &mut rows[index];
            let measured = run(row.design, &|_, time| time >= options.round)?;
            let seconds = measured.time.as_secs_f64() / f64::from(connections);
            row.speeds.push(f64::from(measured.cycles) / seconds);
            row.deadlocks += measured.deadlocks;
        }
    }

    let several = if connections == 1 { "" } else { "s" };
    let what = format!("{}, {connections} connection{several}", scenario.text());
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
    enough: &(dyn Fn(u32, Duration) -> bool + Sync),
) -> Result<Measured> {
    conns.measure(enough, |conn, connection| {
        let step = steps.fetch_add(1, Ordering::Relaxed);
        let index = if design == Design::OwnRow {
            // Each connection has rows of its own, so many that all together are as many as the sequences.
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

fn print(rows: &[Row], what: &str) {
    println!("{what}:\n");
    println!("| | transactions per second | next_number / it | deadlocks |");
    println!("|---|---|---|---|");
    let ours = speeds(rows, Design::Ours);
    for row in rows {
        println!(
            "| {} | {:.0} | {:.2} | {} |",
            row.design.name(),
            row.speeds.median(),
            ours.median() / row.speeds.median(),
            row.deadlocks
        );
    }
    println!();
}

fn targets(
    rows: &[Row],
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
    limits
        .iter()
        .map(|&(design, limit)| Target {
            text: format!("{what}: next_number / {}", design.name()),
            ratio: figure(
                [speeds(rows, Design::Ours), speeds(rows, design)],
                |[ours, other]| ours.median() / other.median(),
            ),
            limit: Limit::AtLeast(limit),
        })
        .collect()
}

fn speeds(rows: &[Row], design: Design) -> &Samples {
    let row = rows.iter().find(|row| row.design == design);
    &row.expect("measured").speeds
}
