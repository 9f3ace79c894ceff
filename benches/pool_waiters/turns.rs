//! Short transactions under one lock or slot: hand-over, throughput, statements, and what others see of the pool.

use anyhow::Result;
use serde_json::{Value, json};

use crate::application::{Database, Kind, Seen, Way, run};
use crate::engine::PooledEngine;
use crate::options::Options;
use crate::times::{Times, cell};

/// All rounds of one way to wait.
#[derive(Default)]
struct Sum {
    hand_overs: Times,
    probes: Times,
    refused_probes: u32,
    counted: Option<i64>,
}

impl Sum {
    fn add(&mut self, seen: Seen, counted: Option<i64>) {
        self.hand_overs.append(seen.hand_overs);
        self.probes.append(seen.probes);
        self.refused_probes += seen.refused_probes;
        if let Some(counted) = counted {
            *self.counted.get_or_insert(0) += counted;
        }
    }
}

pub(crate) fn measure<C: PooledEngine>(
    database: &mut Database<C>,
    options: &Options,
) -> Result<Vec<Value>> {
    println!(
        "Short transactions one after the other. Hand-over: from the end of a closure to the beginning of the next one, \
         with COMMIT. SELECT 1: on the same pool.\n"
    );
    println!(
        "| | threads | wait on | hand-over ms: median | 95 % | per second | server: {} per second | SELECT 1 ms: median | \
         95 % | refused |",
        C::COUNTED
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let time = options.round.as_secs_f64() * u32::try_from(options.rounds).map_or(1.0, f64::from);
    let mut figures = Vec::new();
    for kind in Kind::ALL {
        for &threads in &options.waiters {
            let mut sums = Way::ALL.map(|_| Sum::default());
            for round in 0..options.rounds {
                for step in 0..Way::ALL.len() {
                    let place = (round + step) % Way::ALL.len();
                    let (seen, counted) = database.with_pool(options.pool, |_, pool| {
                        run(pool, kind, Way::ALL[place], threads, options.round)
                    })?;
                    sums[place].add(seen, counted);
                }
            }
            for (way, sum) in Way::ALL.iter().zip(sums) {
                let grants = u32::try_from(sum.hand_overs.len()).map(f64::from)?;
                let counted = sum
                    .counted
                    .and_then(|count| Some(f64::from(u32::try_from(count).ok()?) / time));
                println!(
                    "| {} | {threads} | {} | {} | {} | {:.0} | {} | {} | {} | {} |",
                    kind.text(),
                    way.text(),
                    cell(sum.hand_overs.median_ms()),
                    cell(sum.hand_overs.p95_ms()),
                    grants / time,
                    cell(counted),
                    cell(sum.probes.median_ms()),
                    cell(sum.probes.p95_ms()),
                    sum.refused_probes,
                );
                figures.push(json!({
                    "backend": C::NAME,
                    "part": "turns",
                    "kind": kind.text(),
                    "threads": threads,
                    "way": way.text(),
                    "hand_over_ms": sum.hand_overs.median_ms(),
                    "hand_over_p95_ms": sum.hand_overs.p95_ms(),
                    "per_second": grants / time,
                    "counted_per_second": counted,
                    "probe_ms": sum.probes.median_ms(),
                    "probe_p95_ms": sum.probes.p95_ms(),
                    "refused_probes": sum.refused_probes,
                }));
            }
        }
    }
    println!();
    Ok(figures)
}
