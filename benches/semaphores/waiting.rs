//! How long a slot stays free while 16 wait for it, and what their waiting costs the server.

use std::cell::Cell;
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use diesel::connection::InstrumentationEvent;
use diesel_locks::prelude::*;
use serde_json::json;

use crate::options::Options;
use crate::samples::{Figure, Samples, figure};
use crate::support::backend::Backend;
use crate::support::connections::Connections;
use crate::targets::{Findings, Limit, Target};

static ONE: Semaphore = Semaphore::from_static("one", 1);

const WAITERS: usize = 16;

/// How long each holds the slot: at that time most waiters make their longest pauses.
const HOLD_TIME: Duration = Duration::from_millis(250);

thread_local! {
    /// Statements of the thread's connection.
    static STATEMENTS: Cell<u32> = const { Cell::new(0) };
}

/// What all saw together.
#[derive(Default)]
struct Totals {
    released: Option<Instant>,
    /// From a release to the next grant, in milliseconds.
    gaps: Samples,
    waited: Duration,
    statements: u32,
}

pub(crate) fn measure<C: Backend + SemaphoreExt>(
    options: &Options,
    version: &str,
) -> Result<Findings> {
    let mut conns = Connections::<C>::new(WAITERS + 1)?;
    conns.connect()?.register_semaphores([&ONE])?;
    conns.measure(
        |_, _| true,
        |conn, _| {
            conn.set_instrumentation(|event: InstrumentationEvent<'_>| {
                if let InstrumentationEvent::StartQuery { .. } = event {
                    STATEMENTS.set(STATEMENTS.get() + 1);
                }
            });
            Ok(())
        },
    )?;
    let totals = Mutex::new(Totals::default());
    let started = Instant::now();
    conns.measure(
        |_, time| time >= options.waiting,
        |conn, _| {
            let requested = Instant::now();
            STATEMENTS.set(0);
            let lease = LeaseOptions::new(Duration::from_secs(60));
            let slot = conn.acquire_slot(&ONE, lease, Wait::Forever)?;
            let granted = Instant::now();
            // Afterwards one after the other goes, and fewer and fewer wait.
            let counts = started.elapsed() < options.waiting;
            if counts {
                let mut totals = totals.lock().expect("no thread panics");
                if let Some(released) = totals.released.take() {
                    let gap = granted.saturating_duration_since(released);
                    totals.gaps.push(gap.as_secs_f64() * 1000.0);
                }
                totals.waited += granted - requested;
                totals.statements += STATEMENTS.get();
                drop(totals);
                sleep(HOLD_TIME);
            }
            totals.lock().expect("no thread panics").released = Some(Instant::now());
            conn.release_slot(slot)?;
            Ok(())
        },
    )?;
    let totals = totals.into_inner().expect("no thread panics");
    let rate = f64::from(totals.statements) / totals.waited.as_secs_f64();
    let gap = figure([&totals.gaps], |[gaps]| gaps.median());
    println!(
        "{WAITERS} wait for one slot: {:.1} ms from a release to the next grant, {rate:.1} statements per \
         second and waiter.\n",
        gap.value
    );
    Ok(Findings {
        figures: vec![json!({
            "backend": C::NAME,
            "server": version,
            "part": "waiting",
            "milliseconds": gap.value,
            "statements_per_second": rate,
        })],
        targets: vec![
            Target {
                text: format!("{version}, {WAITERS} waiters: ms from a release to the next grant"),
                ratio: gap,
                limit: Limit::AtMost(20.0),
            },
            Target {
                text: format!("{version}, {WAITERS} waiters: statements per second and waiter"),
                ratio: Figure {
                    value: rate,
                    least: rate,
                    greatest: rate,
                },
                limit: Limit::AtMost(50.0),
            },
        ],
    })
}
