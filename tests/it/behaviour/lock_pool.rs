//! Waiting for object locks without a connection.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use diesel::connection::Connection;
use diesel::r2d2::R2D2Connection;
use diesel_locks::prelude::*;
use diesel_locks::{Error, LockPool, SlotRenewer, StopToken};

use super::slots::one_hour;
use crate::support::Backend;
use crate::support::runs::Runs;
use crate::support::threads::{Holder, LONG, result_of, spawn};

const ID: &str = "Account:4711";

pub(super) fn locks<B: Backend>(database: &B, connections: u32) -> LockPool<B::Conn> {
    LockPool::new(database.pool(connections))
}

fn request() -> LockRequest {
    LockRequest::new(ID).wait(Wait::AtMost(LONG))
}

/// A thread that waits for the lock, and runs.
fn wait_for_lock<C: ObjectLockExt + R2D2Connection + Send + 'static>(
    locks: &LockPool<C>,
    request: LockRequest,
    runs: &Arc<Runs>,
) -> Receiver<Result<(), Error>> {
    let (locks, runs) = (locks.clone(), Arc::clone(runs));
    spawn(move || {
        locks.with_object_lock(request, |_| {
            runs.run();
            Ok(())
        })
    })
}

pub(super) fn await_waiters<C: R2D2Connection + 'static>(locks: &LockPool<C>, count: usize) {
    let started = Instant::now();
    while locks.waiting() != count {
        assert!(started.elapsed() < LONG, "{} wait", locks.waiting());
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn waiters_leave_connections_to_others<B: Backend>() {
    let database = Arc::new(B::new());
    let locks = locks(&*database, 2);
    let runs = Runs::new(1);
    let holder = Holder::acquire(&database, ID);
    let waiters = [(); 40].map(|()| wait_for_lock(&locks, request(), &runs));
    await_waiters(&locks, 40);
    for _ in 0..50 {
        let mut conn = locks.pool().get().expect("a connection");
        assert_eq!(B::number(&mut conn, "SELECT 1"), 1);
    }
    assert_eq!(runs.ended(), 0);
    holder.release();
    for waiter in waiters {
        result_of(&waiter).expect("the lock");
    }
    assert_eq!(runs.ended(), 40);
    assert_eq!(locks.waiting(), 0);
}

pub(crate) fn lock_pools_and_connections_exclude_each_other<B: Backend>() {
    let database = Arc::new(B::new());
    let pools = [locks(&*database, 3), locks(&*database, 3)];
    let both = || LockRequest::all([ID, "Account:4712"]).wait(Wait::AtMost(LONG));
    let mut threads = Vec::new();
    for pool in &pools {
        for number in 0..4 {
            let pool = pool.clone();
            let request = if number % 2 == 0 { request() } else { both() };
            threads.push(spawn(move || {
                for _ in 0..10 {
                    pool.with_object_lock(&request, |conn| {
                        B::count_up(conn, 0);
                        Ok::<_, Error>(())
                    })
                    .expect("the lock");
                }
            }));
        }
    }
    let conn = Arc::clone(&database);
    threads.push(spawn(move || {
        let mut conn = conn.connect();
        for _ in 0..10 {
            conn.with_object_lock(request(), |conn| {
                B::count_up(conn, 0);
                Ok::<_, Error>(())
            })
            .expect("the lock");
        }
    }));
    for thread in &threads {
        result_of(thread);
    }
    assert_eq!(B::counter(&mut database.connect(), 0), 90);
}

pub(crate) fn stopped_waiter_does_not_run<B: Backend>() {
    let database = Arc::new(B::new());
    let locks = locks(&*database, 2);
    let runs = Runs::new(1);
    let holder = Holder::acquire(&database, ID);
    let shutdown = StopToken::new();
    let client = shutdown.child();
    let hang_up = client.stop_on_drop();
    // The first one polls. The next one is woken by nothing but the stop.
    let ahead = wait_for_lock(&locks, request(), &runs);
    await_waiters(&locks, 1);
    let forever = || LockRequest::new(ID).wait(Wait::Forever);
    let waiter = wait_for_lock(&locks.stopped_by(&client), forever(), &runs);
    let others = [(); 3].map(|()| wait_for_lock(&locks.stopped_by(&shutdown), forever(), &runs));
    await_waiters(&locks, 5);
    drop(hang_up);
    // The lock is still held.
    let error = result_of(&waiter).expect_err("stopped");
    assert!(matches!(error, Error::Stopped { .. }), "{error:?}");
    assert!(error.to_string().contains(ID), "{error}");
    await_waiters(&locks, 4);
    shutdown.stop();
    for other in others {
        let error = result_of(&other).expect_err("stopped");
        assert!(matches!(error, Error::Stopped { .. }), "{error:?}");
    }
    assert_eq!(runs.ended(), 0);
    holder.release();
    result_of(&ahead).expect("the lock");
    let late = wait_for_lock(&locks.stopped_by(&shutdown), request(), &runs);
    let error = result_of(&late).expect_err("stopped before it began");
    assert!(matches!(error, Error::Stopped { .. }), "{error:?}");
    assert!(error.is_busy(), "{error:?}");
    assert!(!Error::from(diesel::result::Error::NotFound).is_busy());
    assert_eq!(runs.ended(), 1);
    result_of(&wait_for_lock(&locks, request(), &runs)).expect("the lock is free");
}

pub(crate) fn wait_for_a_connection_of_the_pool_ends<B: Backend>() {
    let database = B::new();
    let locks = locks(&database, 1);
    let runs = Runs::new(1);
    let borrowed = locks.pool().get().expect("a connection");
    let limit = Duration::from_millis(100);
    let limited = LockRequest::new(ID).wait(Wait::AtMost(limit));
    let error = result_of(&wait_for_lock(&locks, limited, &runs)).expect_err("no connection");
    assert!(matches!(error, Error::Pool(_)), "{error:?}");
    assert!(error.is_busy() && !error.is_timeout(), "{error:?}");
    let stop = StopToken::new();
    let waiter = wait_for_lock(&locks.stopped_by(&stop), request(), &runs);
    await_waiters(&locks, 1);
    stop.stop();
    let error = result_of(&waiter).expect_err("stopped");
    assert!(matches!(error, Error::Stopped { .. }), "{error:?}");
    assert_eq!(runs.ended(), 0);
    drop(borrowed);
    result_of(&wait_for_lock(&locks, request(), &runs)).expect("a connection");
}

pub(crate) fn wait_on_a_pool_ends_after_its_limit<B: Backend>() {
    let database = Arc::new(B::new());
    let pool = B::pool_with(&database.url(), 2, Duration::from_millis(300), |_| ());
    let locks = LockPool::new(pool);
    let runs = Runs::new(1);
    let holder = Holder::acquire(&database, ID);
    let requests = [
        (LockRequest::new(ID), 300),
        (
            request().wait(Wait::AtMost(Duration::from_millis(120))),
            120,
        ),
        (request().wait(Wait::AtMost(Duration::ZERO)), 0),
    ];
    for (request, millis) in requests {
        let error = result_of(&wait_for_lock(&locks, request, &runs)).expect_err("held");
        let Error::LockTimeout { waited, limit, .. } = error else {
            panic!("{error:?}");
        };
        assert_eq!(limit, Some(Duration::from_millis(millis)));
        assert!(waited >= Duration::from_millis(millis), "{waited:?}");
    }
    let error = result_of(&wait_for_lock(&locks, request().wait(Wait::No), &runs));
    let error = error.expect_err("held");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let error = result_of(&wait_for_lock(
        &locks,
        request().wait(Wait::AtMost(Duration::MAX)),
        &runs,
    ));
    assert!(matches!(error, Err(Error::InvalidWait { .. })), "{error:?}");
    holder.release();
    assert_eq!(runs.ended(), 0);
}

pub(crate) fn error_and_panic_on_a_pool_roll_back_and_release<B: Backend>() {
    let database = Arc::new(B::new());
    let locks = locks(&*database, 2);
    let runs = Runs::new(1);
    let outcome = locks.with_object_lock(request(), |conn| {
        B::count_up(conn, 0);
        Err::<(), _>(diesel::result::Error::RollbackTransaction.into())
    });
    assert!(matches!(outcome, Err(Error::Database(_))), "{outcome:?}");
    let mut waiter = None;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        locks.with_object_lock(request(), |conn| {
            B::count_up(conn, 0);
            waiter = Some(wait_for_lock(&locks, request(), &runs));
            await_waiters(&locks, 1);
            assert_ne!(runs.ended(), 0, "a bug of the application");
            Ok::<_, Error>(())
        })
    }));
    assert!(panicked.is_err());
    result_of(&waiter.expect("a waiter")).expect("the lock is released");
    assert_eq!(
        B::counter(&mut locks.pool().get().expect("a connection"), 0),
        0
    );
    assert_eq!(runs.ended(), 1);
}

pub(crate) fn lock_in_a_test_transaction_is_a_savepoint<B: Backend>() {
    let database = B::new();
    let pool = B::pool_with(&database.url(), 1, LONG, |conn| {
        conn.begin_test_transaction().expect("BEGIN");
    });
    let locks = LockPool::new(pool);
    let locked = locks.with_object_lock(request(), |conn| {
        B::count_up(conn, 0);
        Ok::<_, Error>(())
    });
    // At MySQL's default isolation level.
    let unsuitable = matches!(locked, Err(Error::UnsuitableIsolation { .. }));
    assert!(locked.is_ok() || unsuitable, "{locked:?}");
    let mut conn = locks.pool().get().expect("a connection");
    B::count_up(&mut conn, 0);
    let counted = if unsuitable { 1 } else { 2 };
    assert_eq!(B::counter(&mut conn, 0), counted);
    // The test transaction is still open: another session sees nothing of it.
    assert_eq!(B::counter(&mut database.connect(), 0), 0);
}

/// Few connections for many waiters, whatever the size of the pool.
pub(crate) fn waiters_borrow_a_connection_for_each_object<B: Backend>() {
    const IDS: usize = 10;
    const EACH: usize = 20;
    let database = Arc::new(B::new());
    let locks = locks(&*database, 20);
    let ids: Vec<_> = (0..IDS).map(|id| format!("Account:{id}")).collect();
    let all = LockRequest::all(ids.iter().map(String::as_str));
    let holder = Holder::acquire(&database, all);
    let ended = Arc::new(AtomicUsize::new(0));
    let waiters: Vec<_> = (0..IDS * EACH)
        .map(|number| {
            let (locks, ended) = (locks.clone(), Arc::clone(&ended));
            let request = LockRequest::new(ids[number % IDS].as_str());
            spawn(move || {
                locks.with_object_lock(request.wait(Wait::AtMost(LONG)), |_| {
                    ended.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, Error>(())
                })
            })
        })
        .collect();
    let limit = if B::ONE_WRITER { 1 } else { IDS };
    let started = Instant::now();
    let mut all_wait = None;
    // Longer than the longest pause between two attempts.
    while all_wait.is_none_or(|since: Instant| since.elapsed() < Duration::from_millis(300)) {
        assert!(started.elapsed() < LONG, "{} wait", locks.waiting());
        let state = locks.pool().state();
        let borrowed = state.connections - state.idle_connections;
        assert!(
            usize::try_from(borrowed).expect("few") <= limit,
            "{state:?}"
        );
        if locks.waiting() == IDS * EACH {
            all_wait.get_or_insert_with(Instant::now);
        }
        std::thread::yield_now();
    }
    assert_eq!(ended.load(Ordering::SeqCst), 0);
    holder.release();
    for waiter in &waiters {
        result_of(waiter).expect("the lock");
    }
    assert_eq!(ended.load(Ordering::SeqCst), IDS * EACH);
}

/// The time is up before the first attempt.
pub(crate) fn free_lock_of_a_pool_is_acquired_however_short_the_limit<B: Backend>() {
    let database = B::new();
    let locks = LockPool::new(database.pool(2));
    let renewer = SlotRenewer::new(database.pool(2));
    let semaphore = Semaphore::new(format!("short limit on {}", B::NAME), 1);
    for limit in [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_millis(1),
    ] {
        let wait = Wait::AtMost(limit);
        let request = LockRequest::new("a").wait(wait);
        let locked = locks.with_object_lock(request, |_| Ok::<_, Error>(()));
        locked.unwrap_or_else(|error| panic!("a free object, {limit:?}: {error:?}"));
        let held = locks.with_slot(&semaphore, wait, |_| Ok::<_, Error>(()));
        held.unwrap_or_else(|error| panic!("a free slot, {limit:?}: {error:?}"));
        let guard = renewer.acquire(&semaphore, &one_hour(), wait);
        let guard = guard.unwrap_or_else(|error| panic!("a free slot, {limit:?}: {error:?}"));
        guard.release().expect("ours");
    }
}
