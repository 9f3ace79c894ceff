//! All wait while another connection holds the lock or slot: what their waiting costs the server, and what others see of
//! the pool.

use std::sync::mpsc::channel;
use std::thread::{self, sleep};

use anyhow::{Context, Result};
use diesel_locks::prelude::*;
use serde_json::{Value, json};

use crate::application::{Database, ID, Kind, ONE, Seen, Way, run};
use crate::engine::PooledEngine;
use crate::options::Options;
use crate::times::cell;

pub(crate) fn measure<C: PooledEngine>(
    database: &mut Database<C>,
    options: &Options,
) -> Result<Vec<Value>> {
    let round = options.round * 2;
    println!(
        "All wait for {round:?} while another connection holds it. A health check waits for a connection for 1 s at most.\n"
    );
    println!(
        "| | threads | wait on | server: {} per second | SELECT 1 ms: median | 95 % | refused |",
        C::COUNTED
    );
    println!("|---|---|---|---|---|---|---|");
    let mut figures = Vec::new();
    for kind in Kind::ALL {
        for &threads in &options.waiters {
            for way in Way::ALL {
                let (seen, counted) = one_round(database, options, kind, way, threads)?;
                let counted = counted.and_then(|count| {
                    Some(f64::from(u32::try_from(count).ok()?) / round.as_secs_f64())
                });
                println!(
                    "| {} | {threads} | {} | {} | {} | {} | {} |",
                    kind.text(),
                    way.text(),
                    cell(counted),
                    cell(seen.probes.median_ms()),
                    cell(seen.probes.p95_ms()),
                    seen.refused_probes,
                );
                figures.push(json!({
                    "backend": C::NAME,
                    "part": "held",
                    "kind": kind.text(),
                    "threads": threads,
                    "way": way.text(),
                    "counted_per_second": counted,
                    "probe_ms": seen.probes.median_ms(),
                    "probe_p95_ms": seen.probes.p95_ms(),
                    "refused_probes": seen.refused_probes,
                }));
            }
        }
    }
    println!();
    Ok(figures)
}

/// What the threads saw, and what the server counted without the health checks.
fn one_round<C: PooledEngine>(
    database: &mut Database<C>,
    options: &Options,
    kind: Kind,
    way: Way,
    threads: usize,
) -> Result<(Seen, Option<i64>)> {
    let round = options.round * 2;
    let (seen, counted) = database.with_pool(options.pool, |database, pool| {
        let (start, started) = channel();
        let mut conn = database.connect()?;
        let holder = thread::spawn(move || {
            let hold = |_: &mut C| {
                let _ = start.send(());
                sleep(round);
                Ok::<_, diesel_locks::Error>(())
            };
            match kind {
                Kind::ObjectLock => conn.with_object_lock(ID, hold),
                Kind::Slot => conn.with_slot(&ONE, Wait::Forever, hold),
            }
        });
        started.recv().context("the holder failed")?;
        let seen = run(pool, kind, way, threads, round)?;
        holder.join().expect("the thread has not panicked")?;
        Ok(seen)
    })?;
    let probes = i64::try_from(seen.probes.len())?;
    Ok((seen, counted.map(|counted| (counted - probes).max(0))))
}
