//! The time that a lock adds to a transaction when no other connection requests it: each connection has its own id.
//!
//! A transaction that writes waits for the disk in COMMIT, with a lock or without, for milliseconds that vary by more than a
//! lock takes. What the lock adds to a writing closure shows in the rest of the cycle.

use anyhow::Result;
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::harness::{
    self, Backend, Connections, Engine, Limit, Plan, Report, Rows, Samples, Variant, compare,
    figure, name, read_bond, write_bond,
};
use crate::lock::{self, Lock};

/// What happens under the lock.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Work {
    ReadOnly,
    Writing,
}

impl Work {
    /// The times by which the targets for this closure are judged.
    fn judged(self, rows: &Rows<Lock>, lock: Lock) -> Samples {
        match self {
            Self::ReadOnly => rows.micros(lock),
            Self::Writing => rows.micros_without_commit(lock),
        }
    }

    /// Whose added time is compared with whose, and the limit.
    fn targets(self, engine: Engine) -> &'static [(Lock, Lock, f64)] {
        const KEPT: (Lock, Lock, f64) = (Lock::Kept, Lock::Advisory, 1.1);
        const SHARED: (Lock, Lock, f64) = (Lock::Shared, Lock::AdvisoryShared, 1.1);
        match (engine, self) {
            (Engine::Postgres, Self::ReadOnly) => {
                &[(Lock::Transient, Lock::InsertDelete, 0.35), KEPT, SHARED]
            }
            (Engine::Postgres, Self::Writing) => &[KEPT],
            (Engine::Mysql, _) => &[(Lock::Kept, Lock::Advisory, 1.0)],
            (Engine::Sqlite, _) => &[],
        }
    }
}

pub(crate) fn measure<C: Backend>(plan: Plan, report: &mut Report) -> Result<()> {
    let title = "Uncontended, µs per cycle; for the locks, µs added to the baseline (a transaction without a lock)";
    let columns = "connections | closure | baseline | 2010 insert-delete baseline | advisory | Transient | Kept | FOR SHARE | advisory, shared | shared | deadlocks";
    report.table(title, columns);
    let locks = Lock::value_variants().iter().copied();
    let locks: Vec<_> = locks.filter(|lock| lock.exists_on(C::ENGINE)).collect();
    for connections in [1, 8] {
        for &work in Work::value_variants() {
            // A database for each comparison: none has the dead rows of the one before.
            let mut conns = Connections::<C>::new(connections)?;
            lock::create_tables(conns.first())?;
            conns.watch();
            let rows = compare(&mut conns, &locks, plan, |lock, conn, number, _| {
                lock.cycle(conn, &lock.id(number), |conn| match work {
                    Work::ReadOnly => read_bond(conn, number),
                    Work::Writing => write_bond(conn, number),
                })
            })?;
            add::<C>(&rows, connections, work, report);
        }
    }
    Ok(())
}

fn add<C: Backend>(rows: &Rows<Lock>, connections: usize, work: Work, report: &mut Report) {
    let mut row = |closure: &str, times: &dyn Fn(Lock) -> Samples| {
        let baseline = times(Lock::Baseline).median();
        let mut cells = vec![json!(connections), json!(closure)];
        let locks = Lock::value_variants().iter();
        cells.extend(locks.clone().map(|&lock| match lock {
            Lock::Baseline => json!(baseline),
            lock if lock.exists_on(C::ENGINE) => json!(times(lock).median() - baseline),
            _ => Value::Null,
        }));
        let deadlocks = locks.map(|&lock| rows.count(lock, |it| it.deadlocks));
        cells.push(json!(deadlocks.sum::<u32>()));
        report.row(&Value::Array(cells));
    };
    row(&name(&work), &|lock| rows.micros(lock));
    if work == Work::Writing {
        row("writing, without COMMIT", &|lock| {
            rows.micros_without_commit(lock)
        });
    }
    for &(lock, other, limit) in work.targets(C::ENGINE) {
        let text = format!(
            "{}, {}: time added by {} / by {}",
            name(&work),
            harness::connections(connections),
            lock.name(),
            other.name(),
        );
        let times = [lock, other, Lock::Baseline].map(|lock| work.judged(rows, lock));
        let ratio = figure(times.each_ref(), |[one, other, baseline]| {
            (one.median() - baseline.median()) / (other.median() - baseline.median())
        });
        report.target(&text, ratio, Limit::AtMost(limit));
    }
}
