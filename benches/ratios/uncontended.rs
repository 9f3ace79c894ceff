//! The time that a lock adds to a transaction when no other connection requests it: each connection has its own id.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use crate::commits::Commits;
use crate::options::Options;
use crate::samples::{Figure, Samples, figure, order};
use crate::support::backend::Backend;
use crate::support::connections::{Connections, Measured};
use crate::support::cycle::{Work, cycle};
use crate::support::engine_filter::Engine;
use crate::support::variant::Variant;
use crate::targets::{Findings, Limit, Target};

/// Cycles of each variant before the first round: statements are prepared, plans settled on, rows kept.
const WARM_UP: u32 = 30;

/// One variant's rounds, in microseconds per cycle.
struct Row {
    variant: Variant,
    ids: Vec<String>,
    whole: Samples,
    /// Without the time in COMMIT.
    before_commit: Samples,
    deadlocks: u32,
}

impl Row {
    fn add(&mut self, measured: Measured, in_commit: Duration) {
        let microseconds =
            |time: Duration| time.as_secs_f64() * 1_000_000.0 / f64::from(measured.cycles);
        self.whole.push(microseconds(measured.time));
        self.before_commit
            .push(microseconds(measured.time.saturating_sub(in_commit)));
        self.deadlocks += measured.deadlocks;
    }

    /// The times by which the targets for this closure are judged.
    fn judged(&self, work: Work) -> &Samples {
        match work {
            Work::ReadOnly => &self.whole,
            Work::Writing => &self.before_commit,
        }
    }
}

pub(crate) fn compare<C: Backend>(
    options: &Options,
    version: &str,
    engine: Engine,
) -> Result<Findings> {
    let mut findings = Findings::default();
    println!(
        "Uncontended, µs per cycle; for the locks, µs added to the baseline (a transaction without a lock):\n"
    );
    println!(
        "| connections | closure | baseline | 2010 insert-delete baseline | advisory | Transient | Kept |"
    );
    println!("|---|---|---|---|---|---|---|");
    for connections in [1, 8] {
        for work in Work::ALL {
            let rows = measure::<C>(options, connections, work)?;
            print(&rows, connections, work.name(), |row| &row.whole);
            if work == Work::Writing {
                let name = "writing, without COMMIT";
                print(&rows, connections, name, |row| &row.before_commit);
            }
            findings.figures.push(json!({
                "backend": C::NAME,
                "server": version,
                "part": "uncontended",
                "connections": connections,
                "closure": work.name(),
                "variants": rows.iter().map(|row| json!({
                    "variant": row.variant.name(),
                    "microseconds": row.whole.median(),
                    "microseconds_without_commit": row.before_commit.median(),
                    "deadlocks": row.deadlocks,
                })).collect::<Vec<_>>(),
            }));
            for &(variant, other, limit) in targets(engine, work) {
                findings.targets.push(Target {
                    text: format!(
                        "{version}, {}, {connections} connection{}: time added by {} / by {}",
                        work.name(),
                        if connections == 1 { "" } else { "s" },
                        variant.name(),
                        other.name(),
                    ),
                    ratio: added_ratio(&rows, work, variant, other),
                    limit,
                });
            }
        }
    }
    println!();
    Ok(findings)
}

/// Whose added time is compared with whose, and the limit.
fn targets(engine: Engine, work: Work) -> &'static [(Variant, Variant, Limit)] {
    const KEPT: (Variant, Variant, Limit) = (Variant::Kept, Variant::Advisory, Limit::AtMost(1.1));
    match (engine, work) {
        (Engine::Postgres, Work::ReadOnly) => &[
            (
                Variant::Transient,
                Variant::InsertDelete,
                Limit::AtMost(0.35),
            ),
            KEPT,
        ],
        (Engine::Postgres, Work::Writing) => &[KEPT],
        (Engine::Mysql, _) => &[(Variant::Kept, Variant::Advisory, Limit::AtMost(1.0))],
        (Engine::Sqlite, _) => &[],
    }
}

fn measure<C: Backend>(options: &Options, connections: usize, work: Work) -> Result<Vec<Row>> {
    // A database for each comparison: none has the dead rows of the one before.
    let mut conns = Connections::<C>::new(connections)?;
    let mut rows: Vec<_> = C::VARIANTS
        .iter()
        .map(|&variant| Row {
            variant,
            ids: variant.ids(connections),
            whole: Samples::default(),
            before_commit: Samples::default(),
            deadlocks: 0,
        })
        .collect();
    for row in &rows {
        run(&mut conns, row, work, |done, _| done >= WARM_UP)?;
    }
    let commits = Commits::watch(&mut conns)?;
    for round in 0..options.rounds {
        for place in order(rows.len(), round) {
            let row = &mut rows[place];
            let measured = run(&mut conns, row, work, |_, time| time >= options.round)?;
            row.add(measured, commits.take());
        }
    }
    Ok(rows)
}

fn run<C: Backend>(
    conns: &mut Connections<C>,
    row: &Row,
    work: Work,
    enough: impl Fn(u32, Duration) -> bool + Sync,
) -> Result<Measured> {
    let (variant, ids) = (row.variant, &row.ids);
    conns.measure(enough, |conn, number| {
        cycle(conn, variant, &ids[number], |conn| work.run(conn, number))
    })
}

fn row_of(rows: &[Row], variant: Variant) -> Option<&Row> {
    rows.iter().find(|row| row.variant == variant)
}

/// The times that two variants add to the baseline, divided.
fn added_ratio(rows: &[Row], work: Work, variant: Variant, other: Variant) -> Figure {
    let times = [variant, other, Variant::Baseline]
        .map(|variant| row_of(rows, variant).expect("measured").judged(work));
    figure(times, |[one, other, baseline]| {
        (one.median() - baseline.median()) / (other.median() - baseline.median())
    })
}

fn print(rows: &[Row], connections: usize, closure: &str, times: impl Fn(&Row) -> &Samples) {
    let median = |row| times(row).median();
    let baseline = row_of(rows, Variant::Baseline).map_or(0.0, median);
    let cells: Vec<_> = Variant::ALL
        .iter()
        .map(|&variant| match row_of(rows, variant) {
            None => "-".to_owned(),
            Some(row) if variant == Variant::Baseline => format!("{:.0}", median(row)),
            Some(row) if row.deadlocks == 0 => format!("{:+.0}", median(row) - baseline),
            Some(row) => {
                let added = median(row) - baseline;
                format!("{added:+.0} ({} deadlocks)", row.deadlocks)
            }
        })
        .collect();
    println!("| {connections} | {closure} | {} |", cells.join(" | "));
}
