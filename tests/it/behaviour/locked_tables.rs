//! Tries and waits while another session has locked the tables: called by the tests of the servers, which lock tables by
//! different statements.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use diesel::connection::{Connection, InstrumentationEvent, SimpleConnection};
use diesel_locks::prelude::*;
use diesel_locks::{Error, LockOutcome, SlotRenewer, StopToken};

use super::pool_waits::locks;
use crate::support::Backend;
use crate::support::threads::{HeldLock, Holder, LONG, result_of, spawn};

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
                    .map(LockOutcome::is_acquired)
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

/// [`lock_waits_and_tries_end`] while another session has a table locked, by the statement `hold` until `end`; on a connection that has
/// acquired the locks before if it is `warm`, and after `set_up`. Afterwards they are free.
pub(crate) fn waits_and_tries_end<B: Backend>(
    [hold, end]: [&str; 2],
    lock: &LockRequest,
    (warm, inside): (bool, bool),
    set_up: fn(&mut B::Conn),
) {
    let database = Arc::new(B::new());
    let limit = Duration::from_millis(300);
    let lock = lock.clone().wait(Wait::AtMost(limit));
    let mut conn = database.connect();
    let acquire = |conn: &mut B::Conn| conn.with_object_lock(&lock, |_| Ok::<_, Error>(()));
    if warm {
        acquire(&mut conn).expect("free");
    }
    let mut holder = database.connect();
    // When it returns, the table is locked. MySQL 9 does not prepare LOCK TABLES.
    holder.batch_execute(hold).expect(hold);
    set_up(&mut conn);
    let (mut conn, took) = lock_waits_and_tries_end::<B>(conn, &lock, limit, inside);
    // A wait without end is detected by `result_of`. This is more than is promised: the machine may be busy.
    let most = limit + Duration::from_secs(15);
    assert!(took <= most, "{took:?} is too late: {hold}, {lock:?}");
    holder.batch_execute(end).expect(end);
    acquire(&mut conn).expect("free again");
}

/// A writer that waits on a pool for this holder, while `lock` has the table of marks locked, or its mark, times out. When it has
/// waited for 0.1 s, it marks what it wants if only readers hold it.
pub(crate) fn writer_of_a_pool_ends<B: Backend>(
    database: &Arc<B>,
    holder: impl Into<HeldLock>,
    mut lock: impl FnMut(bool),
) {
    let holder = Holder::acquire(database, holder);
    lock(true);
    let writer = {
        let pool = locks(&**database, 1);
        spawn(move || {
            let wait = Wait::AtMost(Duration::from_millis(500));
            let request = LockRequest::new("a").wait(wait);
            let done = pool.with_object_lock(request, |_| Ok::<_, Error>(()));
            (pool, done)
        })
    };
    let (pool, done) = result_of(&writer);
    let error = done.expect_err("another holds it");
    assert!(error.is_timeout(), "{error:?}");
    lock(false);
    holder.release();
    let request = LockRequest::new("a").wait(LONG);
    pool.with_object_lock(request, |_| Ok::<_, Error>(()))
        .expect("free");
}

/// Tries and waits for slots while another session has their tables locked: each ends in time, without a slot. In a
/// transaction too, which continues. Returns when each has ended.
pub(crate) fn slot_tries_and_waits_end<B: Backend>(
    conn: &mut B::Conn,
    semaphore: &Semaphore,
    limit: Duration,
    inside: bool,
) -> Vec<Duration> {
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
                renewer.stopped_by(&token).run_as_leader(
                    &semaphore,
                    lease(),
                    |_| -> Result<(), Error> { panic!("the slot is held") },
                )
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
        let longest = limit + Duration::from_secs(15);
        assert!((limit..longest).contains(&took), "{took:?}");
        stop.stop();
        result_of(&standby).expect("stopped");
        set_locked(false);
        conn.release_slot(slot).expect("ours");
    }
}

/// What a request for a slot meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Situation {
    /// The semaphore has no slots yet.
    New,
    /// There are more slots than permits, and one that may be granted.
    FewerPermits,
    /// A session has locked the only slot. Locks on the table wait for that session.
    Locked,
}

type Request<B> = fn(&mut <B as Backend>::Conn, &Semaphore) -> Result<(), Error>;

fn requests<B: Backend>() -> [Request<B>; 4] {
    const LIMIT: Wait = Wait::AtMost(Duration::from_millis(50));
    [
        |conn, semaphore| conn.try_acquire_slot(semaphore, lease()).map(drop),
        |conn, semaphore| conn.acquire_slot(semaphore, lease(), LIMIT).map(drop),
        |conn, semaphore| conn.try_with_slot(semaphore, |_| Ok(())).map(drop),
        |conn, semaphore| conn.with_slot(semaphore, LIMIT, |_| Ok(())),
    ]
}

/// Another session requests a lock on a table before a statement of a request for a slot: of each request, in each
/// situation, before each statement in turn. It holds the lock, or waits for it and keeps the lock once it has it, until
/// the request has ended.
///
/// `lock`: the statement of that session. `is_requested`: counts the sessions that hold or wait for a lock on the table.
pub(crate) fn slot_requests_end_whenever_a_table_is_locked<B: Backend>(
    table: &'static str,
    lock: &'static str,
    unlock: &'static str,
    is_requested: &'static str,
) {
    let database = Arc::new(B::new());
    for (position, request) in requests::<B>().into_iter().enumerate() {
        for (situation, inside) in [
            (Situation::New, false),
            (Situation::FewerPermits, false),
            (Situation::FewerPermits, true),
            (Situation::Locked, false),
            (Situation::Locked, true),
        ] {
            for statement in 1..=10 {
                let name = format!("{table} {position} {situation:?} {inside} {statement}");
                let mut owner = database.connect();
                let semaphore = in_situation::<B>(&mut owner, situation, &name);
                let mut conn = database.connect();
                let ((ask, asked), (end, ended)) = (channel::<()>(), channel::<()>());
                let mut locker = database.connect();
                let locking = spawn(move || {
                    // The request may have ended before this statement.
                    if asked.recv().is_ok() {
                        locker.batch_execute(lock).expect(lock);
                        ended.recv_timeout(LONG).expect("the request ends");
                        locker.batch_execute(unlock).expect(unlock);
                    }
                });
                let statements = Arc::new(AtomicU32::new(0));
                let (count, mut watch) = (Arc::clone(&statements), database.connect());
                conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
                    let InstrumentationEvent::StartQuery { .. } = event else {
                        return;
                    };
                    if count.fetch_add(1, Ordering::Relaxed) + 1 == statement {
                        ask.send(()).expect("the thread waits for it");
                        let started = Instant::now();
                        while B::number(&mut watch, is_requested) == 0 {
                            assert!(started.elapsed() < LONG, "the table is not locked");
                        }
                    }
                });
                let done = spawn(move || {
                    if inside {
                        B::in_transaction(&mut conn, |conn| request(conn, &semaphore))
                    } else {
                        request(&mut conn, &semaphore)
                    }
                });
                let done = done.recv_timeout(LONG);
                let done = done.unwrap_or_else(|_| panic!("it does not end: {name}"));
                if let Err(error) = done {
                    assert!(error.is_timeout(), "{name}: {error:?}");
                }
                if situation == Situation::Locked {
                    B::sql(&mut owner, "ROLLBACK");
                }
                // If it was not asked, its end of the channel is gone.
                let _ = end.send(());
                result_of(&locking);
                if statements.load(Ordering::Relaxed) < statement {
                    break;
                }
            }
        }
    }
}

fn lease() -> LeaseOptions {
    LeaseOptions::new(Duration::from_secs(60))
}

fn in_situation<B: Backend>(owner: &mut B::Conn, situation: Situation, name: &str) -> Semaphore {
    match situation {
        Situation::New => Semaphore::new(name, 1),
        Situation::FewerPermits => {
            let many = Semaphore::new(name, 4);
            owner.register_semaphores([&many]).expect("registered");
            let slot = owner.try_acquire_slot(&many, lease());
            assert!(slot.expect("an answer").is_some(), "it is free");
            Semaphore::new(name, 2)
        }
        Situation::Locked => {
            let semaphore = Semaphore::new(name, 1);
            owner.register_semaphores([&semaphore]).expect("registered");
            B::sql(owner, "BEGIN");
            let locked = format!(
                "SELECT count(*) FROM (SELECT number FROM diesel_locks_slots WHERE name = '{name}' FOR UPDATE) AS one"
            );
            assert_eq!(B::number(owner, &locked), 1);
            semaphore
        }
    }
}
