//! Waiting for slots of transactions without a connection.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use diesel::connection::Connection;
use diesel_locks::prelude::*;
use diesel_locks::{Error, LockPool, StopToken};

use super::lock_pool::{await_waiters, locks};
use super::slots::{one_hour, single_slot};
use crate::support::Backend;
use crate::support::runs::Runs;
use crate::support::threads::{LONG, result_of, spawn};

const WAIT: Wait = Wait::AtMost(LONG);

fn database<B: Backend>(semaphore: &Semaphore) -> Arc<B> {
    let database = B::new();
    let mut conn = database.connect();
    conn.register_semaphores([semaphore]).expect("register");
    Arc::new(database)
}

/// A thread that waits for a slot, and runs.
fn wait_for_slot<C: SemaphoreExt + diesel::r2d2::R2D2Connection + Send + 'static>(
    locks: &LockPool<C>,
    wait: Wait,
    runs: &Arc<Runs>,
) -> Receiver<Result<(), Error>> {
    let (locks, runs) = (locks.clone(), Arc::clone(runs));
    spawn(move || {
        locks.with_slot(&single_slot(), wait, |_| {
            runs.run();
            Ok(())
        })
    })
}

/// A transaction on a connection outside the pools, which holds the slot.
struct Holder {
    release: Sender<()>,
    thread: Receiver<Result<(), Error>>,
}

impl Holder {
    fn acquire<B: Backend>(database: &Arc<B>) -> Self {
        let (release, released) = channel::<()>();
        let (held, is_held) = channel();
        let database = Arc::clone(database);
        let thread = spawn(move || {
            database.connect().with_slot(&single_slot(), WAIT, |_| {
                held.send(()).expect("the test waits");
                released.recv().expect("the test says when");
                Ok(())
            })
        });
        is_held.recv_timeout(LONG).expect("a free slot");
        Self { release, thread }
    }

    fn release(self) {
        self.release.send(()).expect("it waits");
        result_of(&self.thread).expect("commit");
    }
}

pub(crate) fn slot_waiters_leave_connections_to_others<B: Backend>() {
    let database = database::<B>(&single_slot());
    let locks = locks(&*database, 2);
    let runs = Runs::new(1);
    let holder = Holder::acquire(&database);
    let waiters = [(); 40].map(|()| wait_for_slot(&locks, WAIT, &runs));
    await_waiters(&locks, 40);
    for _ in 0..50 {
        let mut conn = locks.pool().get().expect("a connection");
        assert_eq!(B::number(&mut conn, "SELECT 1"), 1);
    }
    assert_eq!(runs.ended(), 0);
    holder.release();
    for waiter in waiters {
        result_of(&waiter).expect("the slot");
    }
    assert_eq!(runs.ended(), 40);
    assert_eq!(locks.waiting(), 0);
}

pub(crate) fn lock_pools_and_connections_share_the_permits<B: Backend>() {
    let two = Semaphore::new("two", 2);
    let database = database::<B>(&two);
    let pools = [locks(&*database, 3), locks(&*database, 3)];
    let runs = Runs::new(2);
    let mut threads = Vec::new();
    for pool in &pools {
        for _ in 0..5 {
            let (pool, runs, two) = (pool.clone(), Arc::clone(&runs), two.clone());
            threads.push(spawn(move || {
                for _ in 0..10 {
                    pool.with_slot(&two, WAIT, |_| {
                        runs.run();
                        Ok::<_, Error>(())
                    })
                    .expect("a slot");
                }
            }));
        }
    }
    let (conn, plain) = (Arc::clone(&database), Arc::clone(&runs));
    let semaphore = two.clone();
    threads.push(spawn(move || {
        let mut conn = conn.connect();
        for _ in 0..10 {
            conn.with_slot(&semaphore, WAIT, |_| {
                plain.run();
                Ok::<_, Error>(())
            })
            .expect("a slot");
        }
    }));
    let (pool, tried) = (pools[0].clone(), Arc::clone(&runs));
    let trying = spawn(move || {
        let mut granted = 0;
        for _ in 0..20 {
            let run = pool.try_with_slot(&two, |_| {
                tried.run();
                Ok::<_, Error>(())
            });
            granted += usize::from(run.expect("an answer").is_some());
        }
        granted
    });
    for thread in &threads {
        result_of(thread);
    }
    let tried = result_of(&trying);
    assert_eq!(runs.ended(), 110 + tried);
}

pub(crate) fn stopped_slot_waiter_does_not_run<B: Backend>() {
    let database = database::<B>(&single_slot());
    let locks = locks(&*database, 2);
    let runs = Runs::new(1);
    let holder = Holder::acquire(&database);
    let shutdown = StopToken::new();
    let client = shutdown.child();
    let hang_up = client.stop_on_drop();
    // The first one polls. The next ones are woken by nothing but the stop.
    let ahead = wait_for_slot(&locks, WAIT, &runs);
    await_waiters(&locks, 1);
    let waiter = wait_for_slot(&locks.stopped_by(&client), Wait::Forever, &runs);
    let stoppable = locks.stopped_by(&shutdown);
    let others = [(); 3].map(|()| wait_for_slot(&stoppable, Wait::Forever, &runs));
    await_waiters(&locks, 5);
    drop(hang_up);
    // The slot is still held.
    let error = result_of(&waiter).expect_err("stopped");
    assert!(matches!(error, Error::Stopped { .. }), "{error:?}");
    assert!(error.to_string().contains("one (1 permit)"), "{error}");
    await_waiters(&locks, 4);
    shutdown.stop();
    for other in others {
        let error = result_of(&other).expect_err("stopped");
        assert!(matches!(error, Error::Stopped { .. }), "{error:?}");
    }
    assert_eq!(runs.ended(), 0);
    holder.release();
    result_of(&ahead).expect("the slot");
    let late = wait_for_slot(&stoppable, WAIT, &runs);
    let error = result_of(&late).expect_err("stopped before it began");
    assert!(matches!(error, Error::Stopped { .. }), "{error:?}");
    let tried = stoppable.try_with_slot(&single_slot(), |_| Ok::<_, Error>(()));
    assert!(matches!(tried, Err(Error::Stopped { .. })), "{tried:?}");
    assert_eq!(runs.ended(), 1);
    result_of(&wait_for_slot(&locks, WAIT, &runs)).expect("the slot is free");
}

pub(crate) fn slot_wait_for_a_connection_of_the_pool_ends<B: Backend>() {
    let database = database::<B>(&single_slot());
    let locks = locks(&*database, 1);
    let runs = Runs::new(1);
    let borrowed = locks.pool().get().expect("a connection");
    let limit = Wait::AtMost(Duration::from_millis(100));
    let error = result_of(&wait_for_slot(&locks, limit, &runs)).expect_err("no connection");
    assert!(matches!(error, Error::Pool(_)), "{error:?}");
    let stop = StopToken::new();
    let waiter = wait_for_slot(&locks.stopped_by(&stop), Wait::Forever, &runs);
    await_waiters(&locks, 1);
    stop.stop();
    let error = result_of(&waiter).expect_err("stopped");
    assert!(matches!(error, Error::Stopped { .. }), "{error:?}");
    assert_eq!(runs.ended(), 0);
    drop(borrowed);
    result_of(&wait_for_slot(&locks, WAIT, &runs)).expect("a connection");
}

pub(crate) fn slot_wait_on_a_pool_ends_after_its_limit<B: Backend>() {
    let database = database::<B>(&single_slot());
    let locks = locks(&*database, 2);
    let runs = Runs::new(1);
    let holder = Holder::acquire(&database);
    for millis in [120, 0] {
        let limit = Duration::from_millis(millis);
        let waiter = wait_for_slot(&locks, Wait::AtMost(limit), &runs);
        let error = result_of(&waiter).expect_err("held");
        let Error::LockTimeout {
            waited, limit: of, ..
        } = error
        else {
            panic!("{error:?}");
        };
        assert_eq!(of, Some(limit));
        assert!(waited >= limit, "{waited:?}");
    }
    let error = result_of(&wait_for_slot(&locks, Wait::No, &runs)).expect_err("held");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let tried = locks.try_with_slot(&single_slot(), |_| Ok::<_, Error>(()));
    assert_eq!(tried.expect("an answer"), None);
    let error = result_of(&wait_for_slot(&locks, Wait::AtMost(Duration::MAX), &runs));
    assert!(matches!(error, Err(Error::InvalidWait { .. })), "{error:?}");
    let error = locks.with_slot(&Semaphore::new("", 1), WAIT, |_| Ok::<_, Error>(()));
    assert!(matches!(error, Err(Error::InvalidName { .. })), "{error:?}");
    holder.release();
    assert_eq!(runs.ended(), 0);
    let free = Wait::AtMost(Duration::ZERO);
    result_of(&wait_for_slot(&locks, free, &runs)).expect("a free slot needs no time");
}

pub(crate) fn slot_on_a_pool_is_released_after_an_error_and_a_panic<B: Backend>() {
    let database = database::<B>(&single_slot());
    let locks = locks(&*database, 2);
    let runs = Runs::new(1);
    let outcome = locks.with_slot(&single_slot(), WAIT, |conn| {
        B::count_up(conn, 0);
        Err::<(), _>(diesel::result::Error::RollbackTransaction.into())
    });
    assert!(matches!(outcome, Err(Error::Database(_))), "{outcome:?}");
    let mut waiter = None;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        locks.with_slot(&single_slot(), WAIT, |conn| {
            B::count_up(conn, 0);
            waiter = Some(wait_for_slot(&locks, WAIT, &runs));
            await_waiters(&locks, 1);
            assert_ne!(runs.ended(), 0, "a bug of the application");
            Ok::<_, Error>(())
        })
    }));
    assert!(panicked.is_err());
    result_of(&waiter.expect("a waiter")).expect("the slot is released");
    let mut conn = locks.pool().get().expect("a connection");
    assert_eq!(B::counter(&mut conn, 0), 0);
    assert_eq!(runs.ended(), 1);
}

pub(crate) fn slot_in_a_test_transaction_is_a_savepoint<B: Backend>() {
    let database = database::<B>(&single_slot());
    let pool = B::pool_with(&database.url(), 1, LONG, |conn| {
        conn.begin_test_transaction().expect("BEGIN");
    });
    let locks = LockPool::new(pool);
    let run = locks.with_slot(&single_slot(), WAIT, |conn| {
        B::count_up(conn, 0);
        Ok::<_, Error>(())
    });
    // At MySQL's default isolation level.
    let unsuitable = matches!(run, Err(Error::UnsuitableIsolation { .. }));
    assert!(run.is_ok() || unsuitable, "{run:?}");
    let mut conn = locks.pool().get().expect("a connection");
    let counted = i64::from(!unsuitable);
    assert_eq!(B::counter(&mut conn, 0), counted);
    // The test transaction is still open: another session sees nothing of it, and the slot is held.
    let mut other = database.connect();
    assert_eq!(B::counter(&mut other, 0), 0);
    if !unsuitable && !B::ONE_WRITER {
        let tried = other.try_with_slot(&single_slot(), |_| Ok::<_, Error>(()));
        assert_eq!(tried.expect("an answer"), None);
    }
}

pub(crate) fn slot_waiter_on_a_pool_is_woken_by_a_leased_slot<B: Backend>() {
    let database = database::<B>(&single_slot());
    let locks = locks(&*database, 2);
    let runs = Runs::new(1);
    let mut conn = database.connect();
    let slot = conn
        .acquire_slot(&single_slot(), one_hour(), Wait::No)
        .expect("a free slot");
    let waiters = [(); 5].map(|()| wait_for_slot(&locks, Wait::Forever, &runs));
    await_waiters(&locks, 5);
    assert_eq!(runs.ended(), 0);
    conn.release_slot(slot).expect("ours");
    for waiter in waiters {
        result_of(&waiter).expect("the slot");
    }
}
