//! What it costs a process to hold 1,000 slots by guards.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use diesel::connection::InstrumentationEvent;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Pool, R2D2Connection};
use diesel_locks::prelude::*;
use diesel_locks::{SlotGuard, SlotRenewer};
use serde_json::json;

use crate::harness::{Backend, Database, Figure, Limit, Report};

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

pub(crate) fn measure<C: Backend>(hold_time: Duration, report: &mut Report) -> Result<()> {
    let database = Database::create::<C>()?;
    C::open(&database.url)?.register_semaphores([&MANY])?;
    let pool = Pool::builder()
        .max_size(4)
        .test_on_check_out(false)
        .connection_customizer(Box::new(Counting))
        .build(ConnectionManager::<C>::new(&database.url))?;
    let renewer = SlotRenewer::new(pool);
    let guards = (0..GUARDS)
        .map(|_| renewer.acquire(&MANY, LeaseOptions::new(LEASE), Wait::No))
        .collect::<Result<Vec<_>, _>>()?;
    let (before, processor, started) = (
        STATEMENTS.load(Ordering::Relaxed),
        processor_time()?,
        Instant::now(),
    );
    sleep(hold_time);
    let time = started.elapsed();
    let processor = processor_time()?.saturating_sub(processor);
    let statements = STATEMENTS.load(Ordering::Relaxed) - before;
    ensure!(
        guards.iter().all(SlotGuard::is_held),
        "a guard was lost while nothing happened"
    );
    drop(guards);
    let per_tick = f64::from(statements) / (time.as_secs_f64() / TICK.as_secs_f64());
    let percent = 100.0 * processor.as_secs_f64() / time.as_secs_f64();
    let title = format!("{GUARDS} guards with leases of {LEASE:?} for {time:.0?}");
    let columns = "statements | statements per tick | ms of processor time | percent of a core";
    report.table(&title, columns);
    let millis = processor.as_secs_f64() * 1e3;
    report.row(&json!([statements, per_tick, millis, percent]));
    let text = format!("{GUARDS} guards: statements per tick of {TICK:?}");
    report.target(&text, Figure::single(per_tick), Limit::AtMost(1.5));
    let text = format!("{GUARDS} guards: percent of a core");
    report.target(&text, Figure::single(percent), Limit::AtMost(1.0));
    Ok(())
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
