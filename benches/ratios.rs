//! The targets for the speed of object locks, as ratios: what is compared is interleaved in one run, in short rounds.
//!
//! ```text
//! cargo xtask with-servers --durable -- cargo bench --features postgres,mysql,sqlite --bench ratios
//! ```

#[allow(dead_code, unused_imports, reason = "parts of other benchmarks")]
mod harness;
#[path = "ratios/lock.rs"]
mod lock;
#[path = "ratios/uncontended.rs"]
mod uncontended;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use harness::{
    Backend, Benchmark, Connections, Engine, Figure, Limit, Plan, Report, Variant, compare,
    under_old_snapshot,
};
use lock::Lock;

/// Measures the targets for the speed of object locks, and prints them as Markdown.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    common: harness::Common<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Each connection has its own id: 1 and 8 connections, 120 rounds of 50 ms each.
    Uncontended,
    /// Eight connections that all want one lock and have nothing to do under it. Not on SQLite.
    Contention,
    /// Cycles on one id while another session holds an old snapshot. On PostgreSQL.
    Growth,
}

const JUDGED: &str =
    "Writing is judged by the time outside COMMIT, where all wait for the disk alike.";

fn main() -> Result<()> {
    let options = Options::parse();
    let (quick, full) = (Plan::new(5, 5), Plan::new(120, 50));
    options.common.run(&options, quick, full, JUDGED)
}

impl Benchmark for Options {
    fn measure<C: Backend>(&self, plan: Plan, report: &mut Report) -> Result<()> {
        if self.common.has(Part::Uncontended) {
            uncontended::measure::<C>(plan, report)?;
        }
        if self.common.has(Part::Contention) && C::ENGINE != Engine::Sqlite {
            contention::<C>(self, report)?;
        }
        if self.common.has(Part::Growth) && C::ENGINE == Engine::Postgres {
            growth::<C>(self, report)?;
        }
        Ok(())
    }
}

fn contention<C: Backend>(options: &Options, report: &mut Report) -> Result<()> {
    let plan = options
        .common
        .quick_or(Plan::new(1, 100), Plan::new(7, 1000));
    let mut conns = Connections::<C>::new(8)?;
    lock::create_tables(conns.first())?;
    // Without the baseline. Of one id: readers do not wait.
    let locks = Lock::value_variants()[1..].iter().copied();
    let locks: Vec<_> = locks.filter(|lock| lock.exists_on(C::ENGINE)).collect();
    let rows = compare(&mut conns, &locks, plan, |lock, conn, _, _| {
        lock.cycle(conn, &lock.id(0), |_| Ok(()))
    })?;
    let limits: &[_] = match C::ENGINE {
        Engine::Postgres => &[(Lock::Advisory, 0.8)],
        _ => &[],
    };
    report.speeds("one id", &rows, Lock::Kept, limits);
    if C::ENGINE == Engine::Postgres {
        let ratio = rows.ratio(Lock::Transient, Lock::InsertDelete);
        let text = "one id, 8 connections: per second, transient / insert-delete";
        report.target(text, ratio, Limit::AtLeast(1.6));
    }
    Ok(())
}

/// PostgreSQL keeps every dead row and every dead entry of an index.
fn growth<C: Backend>(options: &Options, report: &mut Report) -> Result<()> {
    let cycles = options.common.quick_or(500, 50_000);
    report.growth_table("One id");
    for lock in [Lock::Kept, Lock::Transient] {
        let mut conns = Connections::<C>::new(1)?;
        lock::create_tables(conns.first())?;
        let times = under_old_snapshot(&mut conns, cycles, |conn| {
            lock.cycle(conn, &lock.id(0), |_| Ok(()))
        })?;
        let growth = report.growth(&lock.name(), cycles, &times);
        if lock == Lock::Kept {
            let text = format!("{cycles} cycles under an old snapshot: kept, last fifth / first");
            report.target(&text, Figure::single(growth), Limit::AtMost(1.1));
        }
    }
    Ok(())
}
