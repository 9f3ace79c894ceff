//! Cycles of acquire and release per second, design by design.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Result;
use diesel_locks::prelude::*;
use serde_json::json;

use crate::designs::Design;
use crate::options::Options;
use crate::samples::{Figure, Samples, figure, order};
use crate::sql::Baselines;
use crate::support::connections::{Connections, Measured};
use crate::support::engine_filter::Engine;
use crate::tables;
use crate::targets::{Findings, Limit, Target};

/// Cycles of each design on each connection before the first round: statements are prepared, plans settled
/// on.
const WARM_UP: u32 = 30;

/// What the connections compete for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    Hot,
    Many,
    Single,
}

impl Scenario {
    fn semaphores(self) -> usize {
        if self == Self::Many { 1000 } else { 1 }
    }

    fn permits(self) -> u32 {
        if self == Self::Single { 1 } else { 8 }
    }

    fn designs(self) -> &'static [Design] {
        if self == Self::Single {
            Design::SINGLE_PERMIT
        } else {
            Design::MANY_PERMITS
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Hot => "one semaphore of 8 permits",
            Self::Many => "1,000 semaphores of 8 permits",
            Self::Single => "one semaphore of one permit",
        }
    }
}

/// One design's rounds.
struct Row {
    design: Design,
    /// Cycles per second of all connections together.
    speeds: Samples,
    refusals: u32,
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
    let names: Vec<_> = (0..scenario.semaphores())
        .map(|number| format!("semaphore-{number}"))
        .collect();
    let semaphores: Vec<_> = names
        .iter()
        .map(|name| Semaphore::new(name, scenario.permits()))
        .collect();
    let mut first = conns.connect()?;
    first.register_semaphores(&semaphores)?;
    tables::create_and_fill(&mut first, &names, scenario.permits())?;
    drop(first);

    let mut rows: Vec<_> = scenario
        .designs()
        .iter()
        .map(|&design| Row {
            design,
            speeds: Samples::default(),
            refusals: 0,
            deadlocks: 0,
        })
        .collect();
    for row in &rows {
        run(&mut conns, row.design, &semaphores, |done, _| {
            done >= WARM_UP
        })?;
    }
    for round in 0..options.rounds {
        for index in order(rows.len(), round) {
            let row = &mut rows[index];
            let enough = |_, time| time >= options.round;
            let (measured, refusals) = run(&mut conns, row.design, &semaphores, enough)?;
            let seconds = measured.time.as_secs_f64() / f64::from(connections);
            let granted = measured.cycles - refusals;
            row.speeds.push(f64::from(granted) / seconds);
            row.refusals += refusals;
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
                "cycles_per_second": row.speeds.median(),
                "refusals": row.refusals,
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

/// All connections until each has enough; also how many cycles were refused.
fn run<C: Baselines>(
    conns: &mut Connections<C>,
    design: Design,
    semaphores: &[Semaphore],
    enough: impl Fn(u32, Duration) -> bool + Sync,
) -> Result<(Measured, u32)> {
    conns.measure(
        |_, _| true,
        |conn, _| conn.set_read_committed(design.wants_read_committed()),
    )?;
    let (next, refusals, deadlocks) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    let mut measured = conns.measure(enough, |conn, _| {
        // A step that is prime to their number leads to all of them.
        let step = next.fetch_add(387, Ordering::Relaxed) as usize;
        let semaphore = &semaphores[step % semaphores.len()];
        let granted = design.cycle(conn, semaphore, || {
            deadlocks.fetch_add(1, Ordering::Relaxed);
        })?;
        refusals.fetch_add(u32::from(!granted), Ordering::Relaxed);
        Ok(())
    })?;
    measured.deadlocks += deadlocks.into_inner();
    Ok((measured, refusals.into_inner()))
}

fn print(rows: &[Row], what: &str) {
    println!("{what}:\n");
    println!("| | cycles per second | diesel-locks / it | refusals | deadlocks |");
    println!("|---|---|---|---|---|");
    let ours = speeds(rows, Design::Ours);
    for row in rows {
        println!(
            "| {} | {:.0} | {:.2} | {} | {} |",
            row.design.name(),
            row.speeds.median(),
            ours.median() / row.speeds.median(),
            row.refusals,
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
        (Engine::Postgres, Scenario::Hot, 8) => &[
            (Design::Tokens, 4.0),
            (Design::Counter, 2.0),
            (Design::TwoUpdates, 0.9),
        ],
        (Engine::Mysql, Scenario::Hot, 1) => &[(Design::Rows, 1.3)],
        (Engine::Mysql, Scenario::Hot, 8) => &[(Design::Tokens, 2.0), (Design::Rows, 1.0)],
        (_, Scenario::Hot, 32) => &[(Design::Tokens, 1.0)],
        _ => &[],
    };
    let mut targets: Vec<_> = limits
        .iter()
        .map(|&(design, limit)| Target {
            text: format!("{what}: cycles per second, ours / {}", design.name()),
            ratio: figure(
                [speeds(rows, Design::Ours), speeds(rows, design)],
                |[ours, other]| ours.median() / other.median(),
            ),
            limit: Limit::AtLeast(limit),
        })
        .collect();
    if connections <= scenario.permits() {
        let ours = rows.iter().find(|row| row.design == Design::Ours);
        let value = ours.map_or(0.0, |row| row.refusals.into());
        targets.push(Target {
            text: format!("{what}: false refusals"),
            ratio: Figure {
                value,
                least: value,
                greatest: value,
            },
            limit: Limit::AtMost(0.0),
        });
    }
    targets
}

fn speeds(rows: &[Row], design: Design) -> &Samples {
    let row = rows.iter().find(|row| row.design == design);
    &row.expect("measured").speeds
}
