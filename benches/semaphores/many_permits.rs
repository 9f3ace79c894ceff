//! What a cycle costs with 10,000 permits when 9,990 are held, beside 10 permits of which none is.

use anyhow::Result;
use diesel_locks::prelude::*;
use serde_json::json;
use std::time::Duration;

use crate::options::Options;
use crate::samples::{Samples, figure, order};
use crate::support::backend::Backend;
use crate::support::connections::Connections;
use crate::targets::{Findings, Limit, Target};

static FEW: Semaphore = Semaphore::from_static("few", 10);
static MANY: Semaphore = Semaphore::from_static("many", 10_000);

/// All but every thousandth is held, far into the future.
const HOLD: &str = "UPDATE diesel_locks_slots SET token = '0123456789abcdef', expires_us = 4102444800000000 \
                    WHERE name = 'many' AND number % 1000 <> 0";

pub(crate) fn compare<C: Backend + SemaphoreExt>(
    options: &Options,
    version: &str,
    connections: &[usize],
) -> Result<Findings> {
    let mut findings = Findings::default();
    println!("µs per cycle and connection:\n");
    println!("| connections | 10 permits | 10,000 permits, 9,990 held | ratio |");
    println!("|---|---|---|---|");
    for &connections in connections {
        let mut conns = Connections::<C>::new(connections)?;
        let mut first = conns.connect()?;
        first.register_semaphores([&FEW, &MANY])?;
        first.batch_execute(HOLD)?;
        drop(first);
        let mut times = [Samples::default(), Samples::default()];
        for round in 0..options.rounds {
            for place in order(times.len(), round) {
                let semaphore = [&FEW, &MANY][place];
                let measured = conns.measure(
                    |_, time| time >= options.round,
                    |conn, _| {
                        let lease = LeaseOptions::new(Duration::from_secs(10));
                        let slot = conn.acquire_slot(semaphore, lease, Wait::Forever)?;
                        conn.release_slot(slot)?;
                        Ok(())
                    },
                )?;
                times[place].push(measured.per_cycle().as_secs_f64() * 1_000_000.0);
            }
        }
        let [few, many] = &times;
        let ratio = figure([few, many], |[few, many]| many.median() / few.median());
        let (few, many) = (few.median(), many.median());
        println!(
            "| {connections} | {few:.0} | {many:.0} | {:.2} |",
            ratio.value
        );
        findings.figures.push(json!({
            "backend": C::NAME,
            "server": version,
            "part": "permits",
            "connections": connections,
            "microseconds": {"few": few, "many": many},
        }));
        let several = if connections == 1 { "" } else { "s" };
        findings.targets.push(Target {
            text: format!(
                "{version}, {connections} connection{several}: time of a cycle, 10,000 permits / 10"
            ),
            ratio,
            limit: Limit::AtMost(1.2),
        });
    }
    println!();
    Ok(findings)
}
