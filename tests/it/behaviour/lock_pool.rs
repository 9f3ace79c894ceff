//! Waiting for object locks without a connection.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use diesel::connection::Connection;
use diesel_locks::prelude::*;
use diesel_locks::{Error, LockPool, SlotRenewer};

use super::pool_waits::{self, Holder, WAIT, Waited, locks};
use super::slots::one_hour;
use crate::support::Backend;
use crate::support::threads::{self, LONG, result_of, spawn, until};

const ID: &str = "Account:4711";

/// An object lock.
#[derive(Clone)]
struct ObjectLock;

impl Waited for ObjectLock {
    fn new() -> Self {
        Self
    }

    fn name(&self) -> String {
        ID.to_owned()
    }

    fn hold<B: Backend>(
        &self,
        conn: &mut B::Conn,
        f: impl FnOnce(&mut B::Conn) -> Result<(), Error>,
    ) -> Result<(), Error> {
        conn.with_object_lock(request(), f)
    }

    fn with<B: Backend>(
        &self,
        locks: &LockPool<B::Conn>,
        wait: Wait,
        f: impl FnOnce(&mut B::Conn) -> Result<(), Error>,
    ) -> Result<(), Error> {
        locks.with_object_lock(LockRequest::new(ID).wait(wait), f)
    }
}

fn request() -> LockRequest {
    LockRequest::new(ID).wait(WAIT)
}

pub(crate) fn waiters_leave_connections_to_others<B: Backend>() {
    pool_waits::waiters_leave_connections_to_others::<B, ObjectLock>();
}

pub(crate) fn stopped_waiter_does_not_run<B: Backend>() {
    pool_waits::stopped_waiter_does_not_run::<B, ObjectLock>();
}

pub(crate) fn wait_for_a_connection_of_the_pool_ends<B: Backend>() {
    pool_waits::wait_for_a_connection_of_the_pool_ends::<B, ObjectLock>();
}

pub(crate) fn wait_goes_on_without_a_connection<B: Backend>() {
    pool_waits::wait_goes_on_without_a_connection::<B, ObjectLock>();
}

pub(crate) fn free_lock_is_acquired_while_an_attempt_does_not_return<B: Backend>() {
    pool_waits::free_is_acquired_while_an_attempt_does_not_return::<B, ObjectLock>();
}

pub(crate) fn error_and_panic_on_a_pool_roll_back_and_release<B: Backend>() {
    pool_waits::error_and_panic_roll_back_and_release::<B, ObjectLock>();
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

pub(crate) fn wait_on_a_pool_ends_after_its_limit<B: Backend>() {
    let database = Arc::new(B::new());
    let pool = B::pool_with(&database.url(), 2, Duration::from_millis(300), |_| ());
    let locks = LockPool::new(pool);
    let holder = Holder::acquire(&ObjectLock, &database);
    let locked = |request: LockRequest| {
        let locks = locks.clone();
        let waits = spawn(move || {
            locks.with_object_lock(request, |_| -> Result<(), Error> { panic!("it is held") })
        });
        result_of(&waits).expect_err("held")
    };
    let requests = [
        (LockRequest::new(ID), 300),
        (
            request().wait(Wait::AtMost(Duration::from_millis(120))),
            120,
        ),
        (request().wait(Wait::AtMost(Duration::ZERO)), 0),
    ];
    for (request, millis) in requests {
        let error = locked(request);
        let Error::LockTimeout { waited, limit, .. } = error else {
            panic!("{error:?}");
        };
        assert_eq!(limit, Some(Duration::from_millis(millis)));
        assert!(waited >= Duration::from_millis(millis), "{waited:?}");
    }
    let error = locked(request().wait(Wait::No));
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let error = locked(request().wait(Wait::AtMost(Duration::MAX)));
    assert!(matches!(error, Error::InvalidWait { .. }), "{error:?}");
    holder.release();
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
    let holder = threads::Holder::acquire(&database, all);
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

/// Each of the requests locks an object of its own: they wait for connections and not for locks.
pub(crate) fn requests_for_free_locks_leave_a_connection_to_others<B: Backend>() {
    const REQUESTS: usize = 12;
    let database = B::new();
    let locks = locks(&database, 4);
    let running = Arc::new(AtomicUsize::new(0));
    let gate = Arc::new(RwLock::new(()));
    let closed = gate.write().expect("no panic");
    let requests: Vec<_> = (0..REQUESTS)
        .map(|id| {
            let (locks, running, gate) = (locks.clone(), Arc::clone(&running), Arc::clone(&gate));
            let request = LockRequest::new(ObjectId::new("Account", id)).wait(WAIT);
            spawn(move || {
                locks.with_object_lock(request, |_| {
                    running.fetch_add(1, Ordering::SeqCst);
                    drop(gate.read().expect("no panic"));
                    Ok::<_, Error>(())
                })
            })
        })
        .collect();
    let most = if B::ONE_WRITER { 1 } else { 3 };
    until(|| running.load(Ordering::SeqCst) == most && locks.waiting() == REQUESTS - most);
    for _ in 0..50 {
        let mut conn = locks.pool().get().expect("a connection");
        assert_eq!(B::number(&mut conn, "SELECT 1"), 1);
    }
    assert_eq!(running.load(Ordering::SeqCst), most);
    drop(closed);
    for request in &requests {
        result_of(request).expect("the lock");
    }
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
