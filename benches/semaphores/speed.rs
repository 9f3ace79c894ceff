//! Cycles of acquire and release per second, design by design.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;
use diesel_locks::prelude::*;
use serde_json::json;

use crate::comparison::{self, Compared, Enough, Row, heading};
use crate::designs::Design;
use crate::options::Options;
use crate::samples::Figure;
use crate::sql::Baselines;
use crate::support::connections::{Connections, Measured};
use crate::support::engine_filter::Engine;
use crate::tables;
use crate::targets::{Findings, Limit, Target};

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

    let (rounds, round) = (options.rounds, options.round);
    let rows = comparison::measure(
        scenario.designs(),
        connections,
        rounds,
        round,
        |design, enough| run(&mut conns, design, &semaphores, enough),
    )?;

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
    enough: Enough<'_>,
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

fn print(rows: &[Row<Design>], what: &str) {
    println!("{what}:\n");
    println!("| | cycles per second | diesel-locks / it | refusals | deadlocks |");
    println!("|---|---|---|---|---|");
    for row in rows {
        println!(
            "| {} | {:.0} | {:.2} | {} | {} |",
            row.design.name(),
            row.speeds.median(),
            comparison::ratio(rows, row),
            row.refusals,
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
    let mut targets = comparison::targets(rows, limits, |design| {
        format!("{what}: cycles per second, ours / {design}")
    });
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
