//! What it costs a process to hold 1,000 slots by guards.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use diesel::connection::InstrumentationEvent;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Pool, R2D2Connection};
use diesel_locks::prelude::*;
use diesel_locks::{SlotGuard, SlotRenewer};
use serde_json::json;

use crate::options::Options;
use crate::samples::Figure;
use crate::support::backend::Backend;
use crate::targets::{Findings, Limit, Target};

const GUARDS: u32 = 1000;
static MANY: Semaphore = Semaphore::from_static("many", GUARDS);

const LEASE: Duration = Duration::from_secs(30);

/// A guard is renewed at a third of its lease.
const TICK: Duration = Duration::from_secs(10);

/// Statements on connections of the pool.
static STATEMENTS: AtomicU32 = AtomicU32::new(0);

#[derive(Debug)]
struct Counting;

impl<C: R2D2Connection + 'static> CustomizeConnection<C, diesel::r2d2::Error> for Counting {
    fn on_acquire(&self, conn: &mut C) -> Result<(), diesel::r2d2::Error> {
        conn.set_instrumentation(|event: InstrumentationEvent<'_>| {
            if let InstrumentationEvent::StartQuery { .. } = event {
                STATEMENTS.fetch_add(1, Ordering::Relaxed);
            }
        });
        Ok(())
    }
}

pub(crate) fn measure<C>(options: &Options, version: &str) -> Result<Findings>
where
    C: Backend + SemaphoreExt + R2D2Connection + Send + 'static,
{
    let database = C::create_database()?;
    let mut conn = C::connect_to(&database)?;
    diesel_locks::migrate(&mut conn)?;
    conn.register_semaphores([&MANY])?;
    let pool = Pool::builder()
        .max_size(4)
        .test_on_check_out(false)
        .connection_customizer(Box::new(Counting))
        .build(ConnectionManager::<C>::new(C::url(&database)?))?;
    let renewer = SlotRenewer::new(pool);
    let guards = (0..GUARDS)
        .map(|_| renewer.acquire(&MANY, &LeaseOptions::new(LEASE), Wait::No))
        .collect::<Result<Vec<_>, _>>()?;
    let (statements, processor, started) = (
        STATEMENTS.load(Ordering::Relaxed),
        processor_time()?,
        Instant::now(),
    );
    sleep(options.guards);
    let time = started.elapsed();
    let processor = processor_time()?.saturating_sub(processor);
    let statements = STATEMENTS.load(Ordering::Relaxed) - statements;
    anyhow::ensure!(
        guards.iter().all(SlotGuard::is_held),
        "a guard was lost while nothing happened"
    );
    drop(guards);
    let ticks = time.as_secs_f64() / TICK.as_secs_f64();
    let per_tick = f64::from(statements) / ticks;
    let percent = 100.0 * processor.as_secs_f64() / time.as_secs_f64();
    println!(
        "{GUARDS} guards with leases of {LEASE:?} for {time:.0?}: {statements} statements, {processor:?} of \
         processor time.\n"
    );
    let one = |value| Figure {
        value,
        least: value,
        greatest: value,
    };
    Ok(Findings {
        figures: vec![json!({
            "backend": C::NAME,
            "server": version,
            "part": "guards",
            "statements_per_tick": per_tick,
            "percent_of_a_core": percent,
        })],
        targets: vec![
            Target {
                text: format!("{version}, {GUARDS} guards: statements per tick of {TICK:?}"),
                ratio: one(per_tick),
                limit: Limit::AtMost(1.5),
            },
            Target {
                text: format!("{version}, {GUARDS} guards: percent of a core"),
                ratio: one(percent),
                limit: Limit::AtMost(1.0),
            },
        ],
    })
}

/// Of all threads of this process, as Linux counts it: in hundredths of a second.
fn processor_time() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")
        .context("processor time is read from /proc, which Linux has")?;
    // After the name, which may have spaces.
    let (_, fields) = stat.rsplit_once(')').context("/proc/self/stat")?;
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u64>().context("/proc/self/stat"))
        .sum::<Result<_>>()?;
    Ok(Duration::from_millis(10 * ticks))
}
