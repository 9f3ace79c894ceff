//! The time that a lock adds to a transaction when nobody else wants it: each connection has its own id.

use anyhow::Result;
use serde_json::json;

use crate::Findings;
use crate::options::Options;
use crate::samples::{Figure, Samples, figure};
use crate::support::backend::Backend;
use crate::support::choice::Choice;
use crate::support::crew::Crew;
use crate::support::cycle::{Variant, Work, cycle};
use crate::targets::{Limit, Target};

/// Cycles of each variant before the first round: statements are prepared, plans settled on, rows kept.
const WARM_UP: u32 = 30;

/// One variant's rounds, in microseconds per cycle.
struct Row {
    variant: Variant,
    ids: Vec<String>,
    times: Samples,
    deadlocks: u32,
}

pub(crate) fn compare<C: Backend>(
    options: &Options,
    version: &str,
    engine: Choice,
) -> Result<Findings> {
    let mut findings = Findings::default();
    println!("Uncontended, µs per cycle; for the locks, µs added to the bare transaction:\n");
    println!("| connections | closure | bare | seed's SQL | advisory | Transient | Kept |");
    println!("|---|---|---|---|---|---|---|");
    for connections in [1, 8] {
        for work in Work::ALL {
            let rows = measure::<C>(options, connections, work)?;
            print(&rows, connections, work);
            findings.figures.push(json!({
                "server": version,
                "part": "uncontended",
                "connections": connections,
                "closure": work.name(),
                "variants": rows.iter().map(|row| json!({
                    "variant": row.variant.name(),
                    "microseconds": row.times.median(),
                    "deadlocks": row.deadlocks,
                })).collect::<Vec<_>>(),
            }));
            findings.targets.extend(
                targets(engine, work)
                    .iter()
                    .map(|&(variant, other, limit)| Target {
                        text: format!(
                            "{version}, {}, {connections} connection{}: time added by {} / by {}",
                            work.name(),
                            if connections == 1 { "" } else { "s" },
                            variant.name(),
                            other.name(),
                        ),
                        ratio: added_ratio(&rows, variant, other),
                        limit,
                    }),
            );
        }
    }
    println!();
    Ok(findings)
}

/// Whose added time is compared with whose, and the limit.
fn targets(engine: Choice, work: Work) -> &'static [(Variant, Variant, Limit)] {
    const KEPT: (Variant, Variant, Limit) =
        (Variant::Kept, Variant::Advisory, Limit::AtMost(1.1));
    match (engine, work) {
        (Choice::Postgres, Work::ReadOnly) => &[
            (Variant::Transient, Variant::Seed, Limit::AtMost(0.35)),
            KEPT,
        ],
        (Choice::Postgres, Work::Writing) => &[KEPT],
        (Choice::Mysql, _) => &[(Variant::Kept, Variant::Advisory, Limit::AtMost(1.0))],
        (Choice::Sqlite, _) => &[],
    }
}

fn measure<C: Backend>(options: &Options, connections: usize, work: Work) -> Result<Vec<Row>> {
    // A database for each comparison: none has the dead rows of the one before.
    let mut crew = Crew::<C>::new(connections)?;
    let mut rows: Vec<_> = C::VARIANTS
        .iter()
        .map(|&variant| Row {
            variant,
            ids: variant.ids(connections),
            times: Samples::default(),
            deadlocks: 0,
        })
        .collect();
    for row in &rows {
        crew.measure(
            |done, _| done >= WARM_UP,
            |conn, number| {
                cycle(conn, row.variant, &row.ids[number], |conn| {
                    work.run(conn, number)
                })
            },
        )?;
    }
    for round in 0..options.rounds {
        for place in order(rows.len(), round) {
            let row = &mut rows[place];
            let (variant, ids) = (row.variant, &row.ids);
            let measured = crew.measure(
                |_, time| time >= options.round,
                |conn, number| cycle(conn, variant, &ids[number], |conn| work.run(conn, number)),
            )?;
            row.times
                .push(measured.per_cycle().as_secs_f64() * 1_000_000.0);
            row.deadlocks += measured.deadlocks;
        }
    }
    Ok(rows)
}

/// Each round begins with another variant, and every second one goes backwards: what a variant leaves to
/// be done behind it (a flush, a vacuum) does not always meet the same one.
pub(crate) fn order(variants: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..variants).map(move |step| {
        let step = if round % 2 == 0 {
            step
        } else {
            variants - 1 - step
        };
        (round / 2 + step) % variants
    })
}

fn times(rows: &[Row], variant: Variant) -> Option<&Row> {
    rows.iter().find(|row| row.variant == variant)
}

/// The times that two variants add to the bare transaction, divided.
fn added_ratio(rows: &[Row], variant: Variant, other: Variant) -> Figure {
    let times = [variant, other, Variant::Bare]
        .map(|variant| &times(rows, variant).expect("measured").times);
    figure(times, |[one, other, bare]| {
        (one.median() - bare.median()) / (other.median() - bare.median())
    })
}

fn print(rows: &[Row], connections: usize, work: Work) {
    let bare = times(rows, Variant::Bare)
        .expect("measured")
        .times
        .median();
    let cells: Vec<_> = Variant::ALL
        .iter()
        .map(|&variant| match times(rows, variant) {
            None => "-".to_owned(),
            Some(row) if variant == Variant::Bare => format!("{:.0}", row.times.median()),
            Some(row) => {
                let added = row.times.median() - bare;
                match row.deadlocks {
                    0 => format!("{added:+.0}"),
                    deadlocks => format!("{added:+.0} ({deadlocks} deadlocks)"),
                }
            }
        })
        .collect();
    println!(
        "| {connections} | {} | {} |",
        work.name(),
        cells.join(" | ")
    );
}
