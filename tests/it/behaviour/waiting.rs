//! How long a wait lasts, and what is left after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use diesel_locks::limits::LONGEST_WAIT;
use diesel_locks::prelude::*;
use diesel_locks::{Error, Retention};

use crate::support::Backend;
use crate::support::threads::{Holder, LONG, result_of, spawn};

const ID: &str = "BondBO:DK0015966592";

/// What is allowed beyond the time asked for.
const GRACE: Duration = Duration::from_millis(250);

fn requests(wait: Wait) -> [LockRequest; 2] {
    [Retention::Transient, Retention::Kept]
        .map(|retention| LockRequest::new(ID).wait(wait).retention(retention))
}

fn assert_timed_out(result: Result<(), Error>, limit: Duration) {
    let error = result.expect_err("another holds it");
    assert!(error.is_timeout(), "{error:?}");
    assert!(error.to_string().contains(ID), "{error}");
    let Error::LockTimeout { waited, .. } = error else {
        panic!("{error:?}");
    };
    assert!(waited >= limit, "{waited:?} is too early");
}

/// Asserts that the wait times out, and at its limit in one of several attempts: the promise is about the database, not about a
/// busy machine.
fn assert_ends_in_time(limit: Duration, mut wait: impl FnMut() -> Result<(), Error>) {
    let mut fastest = Duration::MAX;
    for _ in 0..8 {
        let started = Instant::now();
        let result = wait();
        fastest = fastest.min(started.elapsed());
        assert_timed_out(result, limit);
        if fastest <= limit + GRACE {
            return;
        }
    }
    panic!("{fastest:?} is too late");
}

pub(crate) fn wait_ends_after_its_timeout<B: Backend>() {
    let database = Arc::new(B::new());
    for held in requests(Wait::Forever) {
        let holder = Holder::acquire(&database, held);
        for millis in [0, 1, 30, 300, 1200] {
            let limit = Duration::from_millis(millis);
            for wanted in requests(Wait::AtMost(limit)) {
                let mut conn = database.connect();
                assert_ends_in_time(limit, || conn.with_object_lock(&wanted, |_| Ok(())));
                assert_eq!(B::counter(&mut conn, 0), 0, "the connection stays usable");
            }
        }
        holder.release();
    }
    assert_eq!(database.connect().purge_object_locks().expect("purge"), 1);
}

/// The outcome of a request for what is free, repeated if it has timed out because the machine is busy.
pub(crate) fn of_free<T>(mut request: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let mut tries = 1;
    loop {
        let started = Instant::now();
        let result = request();
        let is_slow = started.elapsed() >= Duration::from_millis(150);
        if !is_slow || tries == 10 || !result.as_ref().is_err_and(Error::is_timeout) {
            return result;
        }
        tries += 1;
    }
}

/// A statement takes time, even if it does not wait.
pub(crate) fn free_lock_is_acquired_with_a_zero_timeout<B: Backend>() {
    let database = B::new();
    for limit in [0, 1, 1_000_000].map(Duration::from_nanos) {
        for wanted in requests(Wait::AtMost(limit)) {
            // A new session has planned nothing yet.
            of_free(|| {
                let mut conn = database.connect();
                conn.with_object_lock(&wanted, |_| Ok(()))
            })
            .expect("free");
            of_free(|| {
                let mut conn = database.connect();
                B::in_transaction(&mut conn, |conn| conn.lock_object(&wanted))
            })
            .expect("free");
        }
    }
}

/// A wait is not longer for being short.
pub(crate) fn short_timeout_is_not_prolonged<B: Backend>() {
    let database = Arc::new(B::new());
    let limit = Duration::from_millis(5);
    for held in requests(Wait::Forever) {
        let holder = Holder::acquire(&database, held);
        for wanted in requests(Wait::AtMost(limit)) {
            let mut conn = database.connect();
            let mut fastest = [Duration::MAX; 2];
            let begun = Instant::now();
            // The best of as many as it takes: the promise is about the database, not about a busy machine.
            while fastest.iter().any(|time| *time > limit * 8) {
                assert!(begun.elapsed() < LONG, "{fastest:?}");
                let started = Instant::now();
                let at_top = conn.with_object_lock(&wanted, |_| Ok(()));
                fastest[0] = fastest[0].min(started.elapsed());
                let started = Instant::now();
                let inside = B::in_transaction(&mut conn, |conn| conn.lock_object(&wanted));
                fastest[1] = fastest[1].min(started.elapsed());
                for result in [at_top, inside] {
                    assert!(
                        matches!(&result, Err(Error::LockTimeout { waited, .. }) if *waited >= limit),
                        "{result:?}"
                    );
                }
            }
        }
        holder.release();
    }
}

pub(crate) fn transaction_survives_a_timeout<B: Backend>() {
    let database = Arc::new(B::new());
    let limit = Duration::from_millis(200);
    for (count, wanted) in (1..).zip(requests(Wait::AtMost(limit))) {
        let holder = Holder::acquire(&database, ID);
        let mut conn = database.connect();
        B::in_transaction(&mut conn, |conn| {
            if !B::ONE_WRITER {
                B::count_up(conn, 1);
            }
            assert_ends_in_time(limit, || conn.lock_object(&wanted));
            if B::ONE_WRITER {
                holder.release();
                B::count_up(conn, 1);
            } else {
                B::count_up(conn, 1);
                holder.release();
            }
            Ok(())
        })
        .expect("the transaction goes on");
        let counted = if B::ONE_WRITER { count } else { 2 * count };
        assert_eq!(B::counter(&mut conn, 1), counted);
    }
}

/// Each holder soon releases the lock, and another acquires it: the limit applies to all of them together.
pub(crate) fn timeout_holds_while_the_lock_changes_hands<B: Backend>() {
    timeout_holds_while_others_take_turns::<B>(6, [20, 100], 3, GRACE);
}

/// Each holder holds the lock for less than the shortest limit of a single wait, and a waiter that misses it often must
/// still time out. Not through a pooler, where the waiters would wait for its sessions.
pub(crate) fn timeout_holds_while_the_lock_changes_hands_quickly<B: Backend>() {
    timeout_holds_while_others_take_turns::<B>(60, [5, 1], 10, GRACE * 2);
}

/// `others` sessions hold the lock in turn, for `millis[0]` each. Another session waits for each kind of lock, with the limit
/// `millis[1]`, at least `waits` times, and until it has exceeded that by more than `grace` one time in four at most, on a busy
/// machine.
fn timeout_holds_while_others_take_turns<B: Backend>(
    others: usize,
    millis: [u64; 2],
    waits: usize,
    grace: Duration,
) {
    let [held, limit] = millis.map(Duration::from_millis);
    let database = Arc::new(B::new());
    let stop = Arc::new(AtomicBool::new(false));
    let others: Vec<_> = (0..others)
        .map(|_| {
            let (database, stop) = (Arc::clone(&database), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut conn = database.connect();
                while !stop.load(Ordering::Relaxed) {
                    conn.with_object_lock(ID, |_| {
                        std::thread::sleep(held);
                        diesel::QueryResult::Ok(())
                    })
                    .expect("the lock comes free");
                }
            })
        })
        .collect();
    database.await_waiting(3);
    let begun = Instant::now();
    for wanted in requests(Wait::AtMost(limit)) {
        let (mut ended, mut late) = (0, 0);
        while ended < waits || late * 4 > ended {
            let mut conn = database.connect();
            let started = Instant::now();
            let mut granted = None;
            let result = conn.with_object_lock(&wanted, |_| {
                granted = Some(started.elapsed());
                Ok(())
            });
            let took = granted.unwrap_or_else(|| {
                let took = started.elapsed();
                assert_timed_out(result, limit);
                took
            });
            ended += 1;
            late += usize::from(took > limit + grace);
            assert!(begun.elapsed() < LONG, "{late} of {ended}: {took:?}");
        }
    }
    stop.store(true, Ordering::Relaxed);
    for other in others {
        other.join().expect("no error");
    }
}

pub(crate) fn no_wait_returns_unavailable<B: Backend>() {
    let database = Arc::new(B::new());
    let holder = Holder::acquire(&database, ID);
    for wanted in requests(Wait::No) {
        let error = database
            .connect()
            .with_object_lock(wanted, |_| Ok::<_, Error>(()))
            .expect_err("another holds it");
        assert!(error.is_unavailable(), "{error:?}");
        assert!(error.to_string().contains(ID), "{error}");
    }
    holder.release();
}

pub(crate) fn try_of_a_held_lock_returns_immediately<B: Backend>() {
    let database = Arc::new(B::new());
    for held in requests(Wait::Forever) {
        let holder = Holder::acquire(&database, held);
        for wanted in requests(Wait::No) {
            let mut conn = database.connect();
            let (begun, mut fastest) = (Instant::now(), Duration::MAX);
            // The best of as many as it takes: the promise is about the database, not about a busy machine.
            while fastest > Duration::from_millis(50) {
                assert!(begun.elapsed() < LONG, "{fastest:?}");
                let started = Instant::now();
                let tried = conn
                    .try_with_object_lock(&wanted, |_| Ok::<_, Error>(()))
                    .expect("an answer");
                assert_eq!(tried, None);
                fastest = fastest.min(started.elapsed());
            }
        }
        holder.release();
        let tried = database
            .connect()
            .try_with_object_lock(ID, |_| Ok::<_, Error>(4))
            .expect("an answer");
        assert_eq!(tried, Some(4));
    }
}

/// A request that says otherwise is not ignored.
pub(crate) fn try_with_another_wait_is_rejected<B: Backend>() {
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    let nothing = |_: &mut B::Conn| Ok::<_, Error>(());
    for wait in [Wait::Forever, Wait::AtMost(Duration::from_millis(500))] {
        for wanted in requests(wait) {
            let refusals = [
                (
                    "try_with_object_lock",
                    conn.try_with_object_lock(&wanted, nothing).map(drop),
                ),
                (
                    "try_lock_object",
                    B::in_transaction(&mut conn, |conn| conn.try_lock_object(&wanted).map(drop)),
                ),
            ];
            for (name, refusal) in refusals {
                let error = refusal.expect_err("it asks for a wait");
                let Error::ConflictingWait { method, wait: said } = &error else {
                    panic!("{name}: {error:?}");
                };
                assert_eq!((*method, *said), (name, wait));
                assert!(error.to_string().starts_with(name), "{error}");
            }
        }
    }
    for wanted in requests(Wait::No) {
        let tried = conn.try_with_object_lock(wanted, nothing).expect("free");
        assert_eq!(tried, Some(()));
    }
}

pub(crate) fn failed_try_leaves_the_transaction_usable<B: Backend>() {
    let database = Arc::new(B::new());
    for wanted in requests(Wait::No) {
        let holder = Holder::acquire(&database, ID);
        let mut conn = database.connect();
        let before = B::counter(&mut conn, 1);
        B::in_transaction(&mut conn, |conn| {
            assert!(!conn.try_lock_object(&wanted)?.is_acquired());
            holder.release();
            assert!(conn.try_lock_object(&wanted)?.is_acquired());
            B::count_up(conn, 1);
            Ok(())
        })
        .expect("the transaction goes on");
        assert_eq!(B::counter(&mut conn, 1), before + 1);
    }
}

pub(crate) fn session_limits_are_restored_after_a_wait<B: Backend>() {
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    B::set_session_limits(&mut conn);
    let before = B::session_limits(&mut conn);
    for wait in [Wait::AtMost(Duration::from_millis(50)), Wait::No] {
        for wanted in requests(wait) {
            let holder = Holder::acquire(&database, ID);
            conn.with_object_lock(&wanted, |_| Ok::<_, Error>(()))
                .expect_err("another holds it");
            assert_eq!(B::session_limits(&mut conn), before);
            holder.release();
            of_free(|| {
                conn.with_object_lock(&wanted, |conn| {
                    assert_eq!(B::session_limits(conn), before, "inside the closure too");
                    Ok(())
                })
            })
            .expect("the lock is free");
            assert_eq!(B::session_limits(&mut conn), before);
            of_free(|| {
                B::in_transaction(&mut conn, |conn| {
                    conn.lock_object(&wanted)?;
                    assert_eq!(B::session_limits(conn), before);
                    Ok(())
                })
            })
            .expect("the lock is free");
        }
    }
}

pub(crate) fn too_long_wait_is_rejected<B: Backend>() {
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    let asked = LONGEST_WAIT + Duration::from_millis(1);
    let error = conn
        .with_object_lock(LockRequest::new(ID).wait(Wait::AtMost(asked)), |_| {
            Ok::<_, Error>(())
        })
        .expect_err("more than the servers can count");
    assert!(matches!(error, Error::InvalidWait { .. }), "{error:?}");
    assert!(error.to_string().contains("2147483647 ms"), "{error}");
    conn.with_object_lock(
        LockRequest::new(ID).wait(Wait::AtMost(LONGEST_WAIT)),
        |_| Ok::<_, Error>(()),
    )
    .expect("the longest is fine");
}

/// Again and again, at top level and inside a transaction.
pub(crate) fn connection_waits_again_after_a_timeout<B: Backend>() {
    let database = Arc::new(B::new());
    for held in requests(Wait::Forever) {
        let holder = Holder::acquire(&database, held);
        let theirs = {
            let database = Arc::clone(&database);
            spawn(move || {
                let mut conn = database.connect();
                for wanted in requests(Wait::AtMost(Duration::from_millis(20))) {
                    for _ in 0..3 {
                        let error = conn
                            .with_object_lock(&wanted, |_| Ok::<_, Error>(()))
                            .expect_err("held");
                        assert!(error.is_timeout(), "{error:?}");
                        let error = B::in_transaction(&mut conn, |conn| conn.lock_object(&wanted))
                            .expect_err("held");
                        assert!(error.is_timeout(), "{error:?}");
                    }
                }
                conn
            })
        };
        let mut conn = result_of(&theirs);
        holder.release();
        for wanted in requests(Wait::Forever) {
            conn.with_object_lock(&wanted, |_| Ok::<_, Error>(()))
                .expect("free");
        }
    }
}
