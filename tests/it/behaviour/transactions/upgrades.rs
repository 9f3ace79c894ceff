//! Two transactions that read a row and update it: which of them the database ends, and what helps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use diesel_locks::prelude::*;
use diesel_locks::{Error, IsolationLevel, RetryPolicy};

use crate::support::Backend;
use crate::support::threads::{begin, commit, result_of, roll_back, spawn};

/// A level, and what stands at the end of the SELECT.
type Read = (Option<IsolationLevel>, &'static str);

/// The reads that lock their row, but not against each other.
fn careless_reads<B: Backend>() -> Vec<Read> {
    let mut reads = vec![(None, B::SHARED)];
    if B::ENGINE == "mysql" {
        reads.push((Some(IsolationLevel::Serializable), ""));
    }
    reads
}

fn read<B: Backend>(conn: &mut B::Conn, lock: &str) -> Result<i64, Error> {
    B::try_number(conn, &format!("SELECT n FROM counters WHERE id = 0 {lock}"))
}

fn write<B: Backend>(conn: &mut B::Conn, id: i32, n: i64) -> Result<(), Error> {
    B::try_sql(
        conn,
        &format!("UPDATE counters SET n = {n} WHERE id = {id}"),
    )
}

fn with_level(
    transaction: TransactionOptions,
    level: Option<IsolationLevel>,
) -> TransactionOptions {
    level.map_or(transaction, |level| transaction.isolation(level))
}

/// Runs `act` on two connections at the same time, with a barrier for them and the number of each.
fn two<B: Backend, T: Send + 'static>(
    database: &Arc<B>,
    act: impl Fn(&mut B::Conn, &Barrier, usize) -> T + Send + Sync + 'static,
) -> [T; 2] {
    let (act, barrier) = (Arc::new(act), Arc::new(Barrier::new(2)));
    let threads = [0, 1].map(|number| {
        let (database, act, barrier) = (Arc::clone(database), Arc::clone(&act), barrier.clone());
        spawn(move || act(&mut database.connect(), &barrier, number))
    });
    threads.map(|thread| result_of(&thread))
}

fn assert_one_is_the_victim(results: [Result<(), Error>; 2]) {
    let victims: Vec<Error> = results.into_iter().filter_map(Result::err).collect();
    assert_eq!(victims.len(), 1, "{victims:?}");
    assert!(victims[0].is_deadlock(), "{victims:?}");
}

pub(crate) fn shared_readers_that_update_deadlock<B: Backend>() {
    if B::ONE_WRITER {
        late_reader_is_refused_at_once::<B>();
        return;
    }
    for (level, lock) in careless_reads::<B>() {
        let database = Arc::new(B::new());
        let results = two(&database, move |conn, both_have_read, _| {
            conn.run_transaction(with_level(TransactionOptions::new(), level), |conn| {
                let n = read::<B>(conn, lock)?;
                both_have_read.wait();
                write::<B>(conn, 0, n + 1)
            })
        });
        assert_one_is_the_victim(results);
        assert_eq!(B::counter(&mut database.connect(), 0), 1);
    }
}

/// Two transactions on SQLite that read first. The second is refused at once, because what it has read would be
/// outdated after a wait.
fn late_reader_is_refused_at_once<B: Backend>() {
    let database = B::new();
    let [mut first, mut second] = [database.connect(), database.connect()];
    for conn in [&mut first, &mut second] {
        B::sql(conn, "PRAGMA busy_timeout = 60000");
        begin(conn);
        B::counter(conn, 0);
    }
    write::<B>(&mut first, 0, 1).expect("nobody writes");
    let refused = |conn: &mut B::Conn| {
        let started = Instant::now();
        let error = write::<B>(conn, 0, 1).expect_err("the other writes, or has written");
        assert!(error.is_timeout(), "{error:?}");
        assert!(started.elapsed() < Duration::from_secs(30), "at once");
    };
    refused(&mut second);
    commit(&mut first);
    refused(&mut second);
    roll_back(&mut second);
    assert_eq!(B::counter(&mut second, 0), 1);
}

/// MariaDB with `innodb_snapshot_isolation`, the default of newer versions, refuses a row that has changed since
/// the transaction's snapshot: a serialization failure, to be tried again. At REPEATABLE READ a transaction that begins
/// with such a read has no snapshot yet; at SERIALIZABLE it has one before it waits.
pub(crate) fn readers_for_update_take_turns<B: Backend>() {
    let mut levels = vec![None];
    if B::ENGINE == "mysql" {
        levels.push(Some(IsolationLevel::Serializable));
    }
    for level in levels {
        let database = Arc::new(B::new());
        let watched = Arc::clone(&database);
        let refuses = level == Some(IsolationLevel::Serializable)
            && B::refuses_old_snapshots(&mut database.connect());
        let somebody_has_read = AtomicBool::new(false);
        let attempts = two(&database, move |conn, both, _| {
            // SQLite's waits to begin.
            if B::ONE_WRITER {
                both.wait();
            }
            let transaction = with_level(
                TransactionOptions::new().retry(RetryPolicy::max_attempts(2)),
                level,
            );
            let mut attempts = 0;
            conn.run_transaction(transaction, |conn| {
                attempts += 1;
                if !B::ONE_WRITER && attempts == 1 {
                    both.wait();
                }
                let n = B::counter_for_update(conn, 0)?;
                if !somebody_has_read.swap(true, Ordering::SeqCst) {
                    watched.await_waiting(1);
                }
                write::<B>(conn, 0, n + 1)?;
                Ok::<_, Error>(attempts)
            })
        });
        let mut attempts = attempts.map(|attempts| attempts.expect("in the end"));
        attempts.sort_unstable();
        // The one that waited gets the row as it is now, or is refused and begins again.
        assert_eq!(attempts, [1, if refuses { 2 } else { 1 }], "{level:?}");
        assert_eq!(B::counter(&mut database.connect(), 0), 2);
    }
}

pub(crate) fn retry_resolves_the_upgrade_deadlock<B: Backend>() {
    for (level, lock) in careless_reads::<B>() {
        let database = Arc::new(B::new());
        let attempts = two(&database, move |conn, both_have_read, _| {
            let transaction = with_level(
                TransactionOptions::new().retry(RetryPolicy::max_attempts(9)),
                level,
            );
            let mut attempts = 0;
            conn.run_transaction(transaction, |conn| {
                attempts += 1;
                let n = read::<B>(conn, lock)?;
                // On SQLite the other has not even begun.
                if attempts == 1 && !B::ONE_WRITER {
                    both_have_read.wait();
                }
                write::<B>(conn, 0, n + 1)?;
                Ok::<_, Error>(attempts)
            })
        });
        let attempts = attempts.map(|attempts| attempts.expect("in the end"));
        assert_eq!(
            attempts.contains(&1) && attempts.iter().any(|&attempt| attempt > 1),
            !B::ONE_WRITER,
            "{attempts:?}"
        );
        assert_eq!(B::counter(&mut database.connect(), 0), 2);
    }
}

pub(crate) fn opposite_orders_deadlock_though_read_for_update<B: Backend>() {
    let database = Arc::new(B::new());
    let results = two(&database, |conn, both_have_one, number| {
        conn.run_transaction(TransactionOptions::new(), |conn| {
            let [first, second] = [[0, 1], [1, 0]][number];
            B::counter_for_update(conn, first)?;
            if !B::ONE_WRITER {
                both_have_one.wait();
            }
            B::counter_for_update(conn, second)?;
            Ok::<_, Error>(())
        })
    });
    if B::ONE_WRITER {
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    } else {
        assert_one_is_the_victim(results);
    }
}

const ROUNDS: i64 = 20;

pub(crate) fn same_order_does_not_deadlock<B: Backend>() {
    let database = Arc::new(B::new());
    let results = two(&database, |conn, both, number| {
        for _ in 0..ROUNDS {
            both.wait();
            let counted = conn.run_transaction(TransactionOptions::new(), |conn| {
                let n = [
                    B::counter_for_update(conn, 0)?,
                    B::counter_for_update(conn, 1)?,
                ];
                // The order of the writes does not matter any more.
                for id in [[0, 1], [1, 0]][number] {
                    write::<B>(conn, id, n[usize::from(id == 1)] + 1)?;
                }
                Ok::<_, Error>(())
            });
            counted?;
        }
        Ok::<_, Error>(())
    });
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    for id in [0, 1] {
        assert_eq!(B::counter(&mut database.connect(), id), 2 * ROUNDS);
    }
}

pub(crate) fn object_locks_are_sorted_and_rows_are_not<B: Backend>() {
    let database = Arc::new(B::new());
    let results = two(&database, |conn, both, number| {
        let (ids, rows) = [(["a", "b"], [0, 1]), (["b", "a"], [1, 0])][number];
        for _ in 0..ROUNDS {
            both.wait();
            conn.with_object_lock(ids, |conn| {
                for id in rows {
                    B::count_up(conn, id);
                }
                Ok::<_, Error>(())
            })?;
        }
        Ok::<_, Error>(())
    });
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    for id in [0, 1] {
        assert_eq!(B::counter(&mut database.connect(), id), 2 * ROUNDS);
    }
}

/// What becomes of the update when another has updated what was read.
fn update_of_an_old_read<B: Backend>(level: IsolationLevel) -> (Result<(), Error>, i64) {
    let database = B::new();
    let [mut conn, mut other] = [database.connect(), database.connect()];
    let result = conn.run_transaction(TransactionOptions::new().isolation(level), |conn| {
        let n = B::counter(conn, 0);
        B::count_up(&mut other, 0);
        write::<B>(conn, 0, n + 1)
    });
    (result, B::counter(&mut other, 0))
}

pub(crate) fn an_update_of_an_old_read_is_lost_or_refused<B: Backend>() {
    if B::ONE_WRITER {
        // Not even with a transaction that begins by reading.
        let mut conn = B::new().stale_transaction();
        let error = write::<B>(&mut conn, 0, 1).expect_err("another has written");
        assert!(error.is_timeout(), "{error:?}");
        return;
    }
    let (result, n) = update_of_an_old_read::<B>(IsolationLevel::ReadCommitted);
    result.expect("it fails nowhere");
    assert_eq!(n, 1, "of two updates one is lost");
    let (result, n) = update_of_an_old_read::<B>(IsolationLevel::RepeatableRead);
    assert_eq!(n, 1);
    if B::refuses_old_snapshots(&mut B::new().connect()) {
        let error = result.expect_err("the row has changed");
        assert!(error.is_serialization_failure(), "{error:?}");
    } else {
        result.expect("it fails nowhere either");
    }
}
