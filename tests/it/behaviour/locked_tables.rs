//! Tries and waits while another session has locked the tables: called by the tests of the servers, which lock tables by
//! different statements.

use std::time::{Duration, Instant};

use diesel_locks::prelude::*;
use diesel_locks::{Error, SlotRenewer, StopToken};

use crate::support::Backend;
use crate::support::threads::{result_of, spawn};

/// Waits for the locks of a request, whose limit is `limit`, and then tries them, in a transaction if `inside` is set. The
/// wait times out, not before its limit, and the try is refused. Returns how long the wait took.
pub(crate) fn lock_waits_and_tries_end<B: Backend>(
    mut conn: B::Conn,
    lock: &LockRequest,
    limit: Duration,
    inside: bool,
) -> (B::Conn, Duration) {
    let waiter = {
        let lock = lock.clone();
        spawn(move || {
            let before = B::session_limits(&mut conn);
            let started = Instant::now();
            let result = if inside {
                B::in_transaction(&mut conn, |conn| conn.lock_object(&lock))
            } else {
                conn.with_object_lock(&lock, |_| Ok::<_, Error>(()))
            };
            let took = started.elapsed();
            assert_eq!(B::session_limits(&mut conn), before);
            (conn, result, took)
        })
    };
    let (mut conn, result, took) = result_of(&waiter);
    let error = result.expect_err("the table is locked");
    assert!(error.is_timeout(), "{error:?}");
    assert!(took >= limit, "{took:?} is too early");
    let attempt = {
        let lock = lock.clone().wait(Wait::No);
        spawn(move || {
            let result = if inside {
                B::in_transaction(&mut conn, |conn| conn.try_lock_object(&lock))
            } else {
                let done = conn.try_with_object_lock(&lock, |_| Ok::<_, Error>(()));
                done.map(|done| done.is_some())
            };
            (conn, result)
        })
    };
    let (conn, locked) = result_of(&attempt);
    assert!(!locked.expect("an answer"));
    (conn, took)
}

/// Tries and waits for slots while another session has their tables locked: each ends in time, without a slot. In a
/// transaction too, which continues. Returns when each has ended.
pub(crate) fn slot_tries_and_waits_end<B: Backend>(
    conn: &mut B::Conn,
    semaphore: &Semaphore,
    limit: Duration,
    inside: bool,
) -> Vec<Duration> {
    let lease = || LeaseOptions::new(Duration::from_secs(60));
    let started = Instant::now();
    let limits = B::session_limits(conn);
    let mut ended = Vec::new();
    let mut attempts = |conn: &mut B::Conn| {
        let mut note = |result: Result<bool, Error>| {
            ended.push(started.elapsed());
            result
        };
        let tried = conn.try_acquire_slot(semaphore, lease());
        assert!(!note(tried.map(|slot| slot.is_some()))?);
        let waited = conn.acquire_slot(semaphore, lease(), Wait::AtMost(limit));
        let error = note(waited.map(|_| true)).expect_err("the table is locked");
        assert!(error.is_timeout(), "{error:?}");
        let tried = conn.try_with_slot(semaphore, |_| Ok::<_, Error>(()));
        assert!(!note(tried.map(|done| done.is_some()))?);
        let waited = conn.with_slot(semaphore, Wait::AtMost(limit), |_| Ok::<_, Error>(()));
        let error = note(waited.map(|()| true)).expect_err("the table is locked");
        assert!(error.is_timeout(), "{error:?}");
        Ok::<_, Error>(())
    };
    if inside {
        B::in_transaction(conn, attempts).expect("the transaction continues");
    } else {
        attempts(conn).expect("answers");
    }
    assert_eq!(B::session_limits(conn), limits, "the limits of the session");
    // Far more than it takes, and far less than without a limit.
    assert!(ended[3] < Duration::from_secs(20), "{ended:?}");
    for (tried, waited) in [(0, 1), (2, 3)] {
        let wait = ended[waited].saturating_sub(ended[tried]);
        assert!(wait >= limit, "{ended:?}");
    }
    ended
}

/// Waits that look at the holders, which they do after a second, while another session has the table locked: one by its
/// limit, and one of a standby by its stop.
pub(crate) fn long_slot_waits_end<B: Backend>(database: &B, mut set_locked: impl FnMut(bool)) {
    let limit = Duration::from_millis(2500);
    let lease = || LeaseOptions::new(Duration::from_secs(3600));
    let semaphore = Semaphore::new("long", 1);
    for inside in [false, true] {
        let mut conn = database.connect();
        let slot = conn.try_acquire_slot(&semaphore, lease());
        let slot = slot.expect("an answer").expect("free");
        let stop = StopToken::new();
        let (token, renewer) = (stop.clone(), SlotRenewer::new(database.pool(2)));
        let standby = {
            let semaphore = semaphore.clone();
            spawn(move || {
                renewer.run_as_leader(&semaphore, &lease(), &token, |_| -> Result<(), Error> {
                    panic!("the slot is held")
                })
            })
        };
        // It has been refused.
        std::thread::sleep(Duration::from_millis(200));
        set_locked(true);
        let waiter = {
            let semaphore = semaphore.clone();
            spawn(move || {
                let started = Instant::now();
                let wait = |conn: &mut B::Conn| {
                    let waited = conn.acquire_slot(&semaphore, lease(), Wait::AtMost(limit));
                    Ok::<_, Error>(waited.expect_err("the table is locked"))
                };
                let error = if inside {
                    B::in_transaction(&mut conn, wait)
                } else {
                    wait(&mut conn)
                };
                (
                    conn,
                    error.expect("the transaction continues"),
                    started.elapsed(),
                )
            })
        };
        let (mut conn, error, took) = result_of(&waiter);
        assert!(error.is_timeout(), "{error:?}");
        assert!((limit..2 * limit).contains(&took), "{took:?}");
        stop.stop();
        result_of(&standby).expect("stopped");
        set_locked(false);
        conn.release_slot(slot).expect("ours");
    }
}
