//! Waits for a lock or a slot with a connection of a pool and without one, interleaved in one run.
//!
//! ```text
//! cargo xtask with-servers --durable -- \
//!     cargo bench --features postgres,mysql,sqlite,r2d2 --bench pool_waiters
//! ```

#[path = "pool_waiters/application.rs"]
mod application;
#[allow(dead_code, unused_imports, reason = "parts of other benchmarks")]
mod harness;
#[path = "pool_waiters/shared.rs"]
mod shared;

use std::sync::mpsc::channel;
use std::thread::{self, sleep};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use diesel_locks::prelude::*;
use serde_json::json;

use application::{ID, Kind, ONE, Seen, Way, counted, pool, run};
use harness::{Backend, Benchmark, Connections, Engine, Plan, Report, name, order};

/// Measures waits with a connection of a pool beside waits without one, and prints them as Markdown.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    common: harness::Common<Part>,
    #[command(flatten)]
    process: shared::Process,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// All threads run short transactions under one lock, or one slot: 5 rounds of 1.5 s each.
    Turns,
    /// All threads wait while another connection holds the lock, or the slot.
    Held,
    /// Two processes of 8 threads compete for it.
    Shared,
}

/// Connections of the pool.
const POOL: u32 = 16;
/// Numbers of threads.
const WAITERS: [usize; 3] = [8, 56, 200];

fn main() -> Result<()> {
    let options = Options::parse();
    if let Some(url) = &options.process.url {
        return options.process.run(url);
    }
    println!("A pool of {POOL}.");
    let (quick, full) = (Plan::new(1, 300), Plan::new(5, 1500));
    options.common.run(&options, quick, full, "")
}

impl Benchmark for Options {
    fn measure<C: Backend>(&self, plan: Plan, report: &mut Report) -> Result<()> {
        let mut conns = Connections::<C>::new(1)?;
        conns.first().register_semaphores([&ONE])?;
        if self.common.has(Part::Turns) {
            let title = "Short transactions one after the other. Hand-over: from the end of a closure to the beginning of \
                         the next one, with COMMIT. SELECT 1: on the same pool";
            compare(&mut conns, plan, Part::Turns, title, report)?;
        }
        if self.common.has(Part::Held) {
            let (rounds, round) = (1, plan.round * 2);
            let title = format!(
                "All wait for {round:?} while another connection holds it. A health check waits for a connection for 1 s \
                 at most"
            );
            let plan = Plan { rounds, round };
            compare(&mut conns, plan, Part::Held, &title, report)?;
        }
        if self.common.has(Part::Shared) {
            shared::measure(&conns, plan, report)?;
        }
        Ok(())
    }
}

/// Threads that wait in one way and in the other, by turns: what they saw, and what the server counted.
fn compare<C: Backend>(
    conns: &mut Connections<C>,
    plan: Plan,
    part: Part,
    title: &str,
    report: &mut Report,
) -> Result<()> {
    let what = match C::ENGINE {
        Engine::Postgres => "transactions",
        _ => "statements",
    };
    let columns = format!(
        "kind | threads | wait on | hand-over ms: median | hand-over ms: 95 % | per second | \
         server: {what} per second | SELECT 1 ms: median | SELECT 1 ms: 95 % | refused"
    );
    report.table(title, &columns);
    let time = plan.round.as_secs_f64() * u32::try_from(plan.rounds).map_or(1.0, f64::from);
    for &kind in Kind::value_variants() {
        for threads in WAITERS {
            let mut sums = Way::ALL.map(|_| Seen::default());
            for round in 0..plan.rounds {
                for place in order(Way::ALL.len(), round) {
                    let wait = (kind, Way::ALL[place], threads, plan.round);
                    sums[place].add(one_round(conns, part, wait)?);
                }
            }
            for (way, sum) in Way::ALL.into_iter().zip(sums) {
                let per_second = f64::from(u32::try_from(sum.hand_overs.len())?) / time;
                let counted = sum
                    .counted
                    .and_then(|count| Some(f64::from(u32::try_from(count).ok()?) / time));
                let (hand_overs, probes) = (&sum.hand_overs, &sum.probes);
                report.row(&json!([
                    name(&kind),
                    threads,
                    name(&way),
                    hand_overs.percentile(50),
                    hand_overs.percentile(95),
                    per_second,
                    counted,
                    probes.percentile(50),
                    probes.percentile(95),
                    sum.refused_probes,
                ]));
            }
        }
    }
    Ok(())
}

/// One round on a new pool. If the lock is held, the health checks are not among what the server counted.
fn one_round<C: Backend>(
    conns: &mut Connections<C>,
    part: Part,
    (kind, way, threads, round): (Kind, Way, usize, Duration),
) -> Result<Seen> {
    let before = counted(conns.first())?;
    let pool = pool::<C>(&conns.database.url, POOL)?;
    let mut conn = conns.connect()?;
    let mut seen = thread::scope(|scope| -> Result<Seen> {
        if part == Part::Turns {
            drop(conn);
            return run(&pool, kind, way, threads, round);
        }
        let (start, started) = channel();
        let holder = scope.spawn(move || {
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
        let seen = run(&pool, kind, way, threads, round)?;
        holder.join().expect("the thread has not panicked")?;
        Ok(seen)
    })?;
    drop(pool);
    let after = counted(conns.first())?;
    seen.counted = after.zip(before).map(|(after, before)| after - before);
    if part == Part::Held {
        let probes = i64::try_from(seen.probes.len())?;
        seen.counted = seen.counted.map(|counted| (counted - probes).max(0));
    }
    Ok(seen)
}
