//! Waiting for slots of transactions without a connection.

use std::sync::Arc;
use std::time::Duration;

use diesel::connection::Connection;
use diesel_locks::prelude::*;
use diesel_locks::{Error, LockPool, StopToken};

use super::pool_waits::{self, Holder, WAIT, Waited, await_waiters, locks, waiter};
use super::slots::{one_hour, single_slot};
use crate::support::Backend;
use crate::support::backend::fresh_name;
use crate::support::runs::Runs;
use crate::support::threads::{LONG, result_of, spawn};

/// The slot of a transaction.
#[derive(Clone)]
struct TransactionSlot(Semaphore);

impl Waited for TransactionSlot {
    fn new() -> Self {
        Self(Semaphore::new(fresh_name(), 1))
    }

    fn name(&self) -> String {
        format!("{:?} (1 permit)", self.0.name())
    }

    fn database<B: Backend>(&self) -> Arc<B> {
        database(&self.0)
    }

    fn hold<B: Backend>(
        &self,
        conn: &mut B::Conn,
        f: impl FnOnce(&mut B::Conn) -> Result<(), Error>,
    ) -> Result<(), Error> {
        conn.with_slot(&self.0, WAIT, f)
    }

    fn with<B: Backend>(
        &self,
        locks: &LockPool<B::Conn>,
        wait: Wait,
        f: impl FnOnce(&mut B::Conn) -> Result<(), Error>,
    ) -> Result<(), Error> {
        locks.with_slot(&self.0, wait, f)
    }
}

fn database<B: Backend>(semaphore: &Semaphore) -> Arc<B> {
    let database = B::new();
    let mut conn = database.connect();
    conn.register_semaphores([semaphore]).expect("register");
    Arc::new(database)
}

pub(crate) fn slot_waiters_leave_connections_to_others<B: Backend>() {
    pool_waits::waiters_leave_connections_to_others::<B, TransactionSlot>();
}

pub(crate) fn slot_wait_for_a_connection_of_the_pool_ends<B: Backend>() {
    pool_waits::wait_for_a_connection_of_the_pool_ends::<B, TransactionSlot>();
}

pub(crate) fn slot_wait_goes_on_without_a_connection<B: Backend>() {
    pool_waits::wait_goes_on_without_a_connection::<B, TransactionSlot>();
}

pub(crate) fn free_slot_is_acquired_while_an_attempt_does_not_return<B: Backend>() {
    pool_waits::free_is_acquired_while_an_attempt_does_not_return::<B, TransactionSlot>();
}

pub(crate) fn slot_on_a_pool_is_released_after_an_error_and_a_panic<B: Backend>() {
    pool_waits::error_and_panic_roll_back_and_release::<B, TransactionSlot>();
}

pub(crate) fn stopped_slot_waiter_does_not_run<B: Backend>() {
    pool_waits::stopped_waiter_does_not_run::<B, TransactionSlot>();
    let stop = StopToken::new();
    stop.stop();
    let locks = locks(&*database::<B>(&single_slot()), 2).stopped_by(&stop);
    let tried = locks.try_with_slot(&single_slot(), |_| Ok::<_, Error>(()));
    assert!(matches!(tried, Err(Error::Stopped { .. })), "{tried:?}");
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

pub(crate) fn slot_wait_on_a_pool_ends_after_its_limit<B: Backend>() {
    let one = TransactionSlot::new();
    let database = one.database::<B>();
    let locks = locks(&*database, 2);
    let runs = Runs::new(1);
    let holder = Holder::acquire(&one, &database);
    for millis in [120, 0] {
        let limit = Duration::from_millis(millis);
        let waits = waiter::<B>(&one, &locks, Wait::AtMost(limit), &runs);
        let error = result_of(&waits).expect_err("held");
        let Error::LockTimeout {
            waited, limit: of, ..
        } = error
        else {
            panic!("{error:?}");
        };
        assert_eq!(of, Some(limit));
        assert!(waited >= limit, "{waited:?}");
    }
    let error = result_of(&waiter::<B>(&one, &locks, Wait::No, &runs)).expect_err("held");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let tried = locks.try_with_slot(&one.0, |_| Ok::<_, Error>(()));
    assert_eq!(tried.expect("an answer"), None);
    let error = result_of(&waiter::<B>(
        &one,
        &locks,
        Wait::AtMost(Duration::MAX),
        &runs,
    ));
    assert!(matches!(error, Err(Error::InvalidWait { .. })), "{error:?}");
    let error = locks.with_slot(&Semaphore::new("", 1), WAIT, |_| Ok::<_, Error>(()));
    assert!(matches!(error, Err(Error::InvalidName { .. })), "{error:?}");
    holder.release();
    assert_eq!(runs.ended(), 0);
    let free = Wait::AtMost(Duration::ZERO);
    result_of(&waiter::<B>(&one, &locks, free, &runs)).expect("a free slot needs no time");
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
    let one = TransactionSlot::new();
    let database = one.database::<B>();
    let locks = locks(&*database, 2);
    let runs = Runs::new(1);
    let mut conn = database.connect();
    let slot = conn
        .acquire_slot(&one.0, one_hour(), Wait::No)
        .expect("a free slot");
    let waiters = [(); 5].map(|()| waiter::<B>(&one, &locks, Wait::Forever, &runs));
    await_waiters(&locks, 5);
    assert_eq!(runs.ended(), 0);
    conn.release_slot(slot).expect("ours");
    for waiter in waiters {
        result_of(&waiter).expect("the slot");
    }
}
