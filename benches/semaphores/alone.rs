//! What the crate is compared with itself in: many permits, many cycles under an old snapshot, and many that wait.

use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::ValueEnum;
use diesel::QueryResult;
use diesel_locks::prelude::*;
use serde_json::json;

use crate::harness::{
    self, Backend, Connections, Engine, Figure, Limit, Plan, Report, Samples, Variant, compare,
    figure, under_old_snapshot,
};

static ONE: Semaphore = Semaphore::from_static("one", 1);
static THREE: Semaphore = Semaphore::from_static("three", 3);
static FEW: Semaphore = Semaphore::from_static("few", 10);
static MANY: Semaphore = Semaphore::from_static("many", 10_000);

/// All but every thousandth is held, far into the future.
const HOLD: &str = "UPDATE diesel_locks_slots SET token = '0123456789abcdef', expires_us = 4102444800000000 \
                    WHERE name = 'many' AND number % 1000 <> 0";

pub(crate) fn cycle(conn: &mut impl Backend, semaphore: &Semaphore) -> QueryResult<()> {
    let lease = LeaseOptions::new(Duration::from_secs(60));
    let slot = conn.acquire_slot(semaphore, lease, Wait::Forever)?;
    conn.release_slot(slot)?;
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Permits {
    #[value(name = "10 permits")]
    Few,
    #[value(name = "10,000 permits")]
    Many,
}

impl Variant for Permits {}

/// What a cycle costs with 10,000 permits when 9,990 are held, beside 10 permits of which none is.
pub(crate) fn permits<C: Backend>(plan: Plan, report: &mut Report) -> Result<()> {
    let crowds: &[usize] = match C::ENGINE {
        Engine::Sqlite => &[1],
        _ => &[1, 8],
    };
    for &connections in crowds {
        let mut conns = Connections::<C>::new(connections)?;
        conns.first().register_semaphores([&FEW, &MANY])?;
        conns.first().batch_execute(HOLD)?;
        let rows = compare(
            &mut conns,
            Permits::value_variants(),
            plan,
            |permits, conn, _, _| match permits {
                Permits::Few => cycle(conn, &FEW),
                Permits::Many => cycle(conn, &MANY),
            },
        )?;
        let scenario = "10,000 permits of which 9,990 are held, or 10 permits";
        report.speeds(scenario, &rows, Permits::Few, &[]);
        let crowd = harness::connections(connections);
        let text = format!("{crowd}: time of a cycle, 10,000 permits / 10");
        let ratio = rows.ratio(Permits::Few, Permits::Many);
        report.target(&text, ratio, Limit::AtMost(1.2));
    }
    Ok(())
}

/// What many cycles cost while another session holds an old snapshot.
pub(crate) fn growth<C: Backend>(cycles: u32, report: &mut Report) -> Result<()> {
    report.growth_table("3 permits");
    let mut conns = Connections::<C>::new(1)?;
    conns.first().register_semaphores([&THREE])?;
    let times = under_old_snapshot(&mut conns, cycles, |conn| cycle(conn, &THREE))?;
    let growth = report.growth("diesel-locks", cycles, &times);
    let text = format!("{cycles} cycles of a semaphore under an old snapshot: last fifth / first");
    report.target(&text, Figure::single(growth), Limit::AtMost(2.0));
    Ok(())
}

const WAITERS: usize = 16;

/// How long each holds the slot: at that time most waiters make their longest pauses.
const HOLD_TIME: Duration = Duration::from_millis(250);

/// What all waiters saw together.
#[derive(Default)]
struct Totals {
    released: Option<Instant>,
    /// From a release to the next grant, in milliseconds.
    gaps: Samples,
    waited: Duration,
    statements: u32,
}

/// How long a slot stays free while 16 wait for it, and what their waiting costs the server.
pub(crate) fn waiting<C: Backend>(time: Duration, report: &mut Report) -> Result<()> {
    let mut conns = Connections::<C>::new(WAITERS + 1)?;
    conns.first().register_semaphores([&ONE])?;
    conns.watch();
    let totals = Mutex::new(Totals::default());
    let started = Instant::now();
    conns.measure(
        |_, passed| passed >= time,
        |conn, _, _| {
            let requested = Instant::now();
            Connections::<C>::take_statements();
            let lease = LeaseOptions::new(Duration::from_secs(60));
            let slot = conn.acquire_slot(&ONE, lease, Wait::Forever)?;
            let granted = Instant::now();
            // Afterwards one after the other goes, and fewer and fewer wait.
            if started.elapsed() < time {
                let mut totals = totals.lock().expect("no thread panics");
                if let Some(released) = totals.released.take() {
                    let gap = granted.saturating_duration_since(released);
                    totals.gaps.push_time(gap);
                }
                totals.waited += granted - requested;
                totals.statements += Connections::<C>::take_statements();
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
    let title = format!("{WAITERS} wait for one slot");
    let columns = "ms from a release to the next grant | statements per second and waiter";
    report.table(&title, columns);
    report.row(&json!([gap.value, rate]));
    let text = format!("{WAITERS} waiters: ms from a release to the next grant");
    report.target(&text, gap, Limit::AtMost(20.0));
    let text = format!("{WAITERS} waiters: statements per second and waiter");
    report.target(&text, Figure::single(rate), Limit::AtMost(50.0));
    Ok(())
}
