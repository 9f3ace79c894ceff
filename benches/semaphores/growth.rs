//! What many cycles of acquire and release cost while another session holds an old snapshot, for which the server
//! keeps the former versions of every row.

use std::time::Duration;

use anyhow::Result;
use diesel_locks::prelude::*;
use serde_json::json;

use crate::options::Options;
use crate::samples::{Figure, Samples};
use crate::support::backend::Backend;
use crate::support::connections::Connections;
use crate::targets::{Findings, Limit, Target};

/// Cycles of one sample.
const SAMPLE: u32 = 100;

static SEMAPHORE: Semaphore = Semaphore::from_static("few", 3);

pub(crate) fn measure<C: Backend + SemaphoreExt>(
    options: &Options,
    version: &str,
) -> Result<Findings> {
    println!(
        "3 permits, {} cycles while another session holds an old snapshot, µs per cycle of each fifth:\n",
        options.growth
    );
    println!("| 1st | 2nd | 3rd | 4th | 5th | last / first | without the snapshot |");
    println!("|---|---|---|---|---|---|---|");
    let mut conns = Connections::<C>::new(1)?;
    conns.connect()?.register_semaphores([&SEMAPHORE])?;
    sample(&mut conns)?;
    let mut without = Samples::default();
    for _ in 0..10 {
        without.push(sample(&mut conns)?);
    }
    let mut report = conns.connect()?;
    report.batch_execute(C::OLD_SNAPSHOT)?;
    let mut samples = Samples::default();
    for _ in 0..options.growth.div_ceil(SAMPLE) {
        samples.push(sample(&mut conns)?);
    }
    report.batch_execute("COMMIT")?;

    let fifths: Vec<f64> = samples.fifths().iter().map(Samples::median).collect();
    let growth = fifths[fifths.len() - 1] / fifths[0];
    let cells: Vec<_> = fifths.iter().map(|time| format!("{time:.0}")).collect();
    println!(
        "| {} | {growth:.2} | {:.0} |\n",
        cells.join(" | "),
        without.median()
    );
    Ok(Findings {
        figures: vec![json!({
            "backend": C::NAME,
            "server": version,
            "part": "growth",
            "cycles": options.growth,
            "microseconds": fifths,
            "without_snapshot": without.median(),
        })],
        targets: vec![Target {
            text: format!(
                "{version}, {} cycles of a semaphore under an old snapshot: last fifth / first",
                options.growth
            ),
            ratio: Figure {
                value: growth,
                least: growth,
                greatest: growth,
            },
            limit: Limit::AtMost(2.0),
        }],
    })
}

/// Microseconds per cycle.
fn sample<C: Backend + SemaphoreExt>(conns: &mut Connections<C>) -> Result<f64> {
    let measured = conns.measure(
        |done, _| done >= SAMPLE,
        |conn, _| {
            let lease = LeaseOptions::new(Duration::from_secs(10));
            let slot = conn.acquire_slot(&SEMAPHORE, lease, Wait::Forever)?;
            conn.release_slot(slot)?;
            Ok(())
        },
    )?;
    Ok(measured.per_cycle().as_secs_f64() * 1_000_000.0)
}
