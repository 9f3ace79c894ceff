//! More connections than permits: those that wait must not take the processor from those that hold.

use std::time::Duration;

use anyhow::Result;
use diesel_locks::prelude::*;
use serde_json::json;

use crate::options::Options;
use crate::samples::{Samples, figure, order};
use crate::support::backend::Backend;
use crate::support::connections::Connections;
use crate::targets::{Findings, Limit, Target};

static EIGHT: Semaphore = Semaphore::from_static("eight", 8);

/// Rounds are longer than those of others: in the beginning all come at once.
const LONG: u32 = 4;

/// As many as there are permits, and more.
const CONNECTIONS: [usize; 3] = [8, 32, 128];

pub(crate) fn measure<C: Backend + SemaphoreExt>(
    options: &Options,
    version: &str,
) -> Result<Findings> {
    let mut groups = Vec::new();
    for connections in CONNECTIONS {
        let mut conns = Connections::<C>::new(connections)?;
        conns.connect()?.register_semaphores([&EIGHT])?;
        run(&mut conns, Duration::ZERO)?;
        groups.push(conns);
    }
    let mut speeds = CONNECTIONS.map(|_| Samples::default());
    for round in 0..options.rounds {
        for place in order(groups.len(), round) {
            speeds[place].push(run(&mut groups[place], options.round * LONG)?);
        }
    }
    println!("Connections that wait for one of 8 slots, cycles per second:\n");
    println!("| connections | cycles per second | to 8 connections |");
    println!("|---|---|---|");
    let mut findings = Findings::default();
    let [few, ..] = &speeds;
    for (connections, many) in CONNECTIONS.iter().zip(&speeds) {
        let ratio = figure([many, few], |[many, few]| many.median() / few.median());
        println!(
            "| {connections} | {:.0} | {:.2} |",
            many.median(),
            ratio.value
        );
        findings.figures.push(json!({
            "backend": C::NAME,
            "server": version,
            "part": "contended",
            "connections": connections,
            "cycles_per_second": many.median(),
        }));
        if *connections > CONNECTIONS[0] {
            findings.targets.push(Target {
                text: format!(
                    "{version}, one semaphore of 8 permits: cycles per second, {connections} connections that \
                     wait / 8"
                ),
                ratio,
                limit: Limit::AtLeast(0.8),
            });
        }
    }
    println!();
    Ok(findings)
}

/// Cycles per second of all connections together.
fn run<C: Backend + SemaphoreExt>(conns: &mut Connections<C>, time: Duration) -> Result<f64> {
    let measured = conns.measure(
        |_, passed| passed >= time,
        |conn, _| {
            let lease = LeaseOptions::new(Duration::from_secs(60));
            let slot = conn.acquire_slot(&EIGHT, lease, Wait::Forever)?;
            conn.release_slot(slot)?;
            Ok(())
        },
    )?;
    Ok(f64::from(measured.cycles) / (measured.time.as_secs_f64() / f64::from(conns.len())))
}
