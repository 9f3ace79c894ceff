//! Waiting on a `LockPool`, for a lock or for a slot of a transaction: what both have in common.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use diesel::connection::{Connection, InstrumentationEvent};
use diesel::r2d2::R2D2Connection;
use diesel_locks::prelude::*;
use diesel_locks::{Error, LockPool, RetryPolicy, StopToken};

use super::events::Collector;
use crate::support::Backend;
use crate::support::R2d2;
use crate::support::runs::Runs;
use crate::support::threads::{LONG, result_of, spawn, until};
use crate::support::urls::fresh_name;

pub(super) const WAIT: Wait = Wait::AtMost(LONG);

const ID: &str = "Account:4711";

/// What is waited for. Other tests of the process do not wait for the same.
#[derive(Clone)]
pub(super) enum Waited {
    Object,
    Slot(Semaphore),
}

impl Waited {
    fn both() -> [Self; 2] {
        [Self::Object, Self::slot()]
    }

    /// Of a semaphore with one permit.
    pub(super) fn slot() -> Self {
        Self::Slot(Semaphore::new(fresh_name(), 1))
    }

    /// In errors.
    fn name(&self) -> String {
        match self {
            Self::Object => ID.to_owned(),
            Self::Slot(semaphore) => format!("{:?} (1 permit)", semaphore.name()),
        }
    }

    /// A database of the test's own.
    pub(super) fn database<B: Backend>(&self) -> Arc<B> {
        let database = B::new();
        if let Self::Slot(semaphore) = self {
            let mut conn = database.connect();
            conn.register_semaphores([semaphore]).expect("register");
        }
        Arc::new(database)
    }

    /// Runs `f` in a transaction that has it, on a connection outside the pool.
    fn hold<B: Backend>(
        &self,
        conn: &mut B::Conn,
        f: impl FnOnce(&mut B::Conn) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match self {
            Self::Object => conn.with_object_lock(LockRequest::new(ID).wait(WAIT), f),
            Self::Slot(semaphore) => conn.with_slot(semaphore, WAIT, f),
        }
    }

    /// Runs `f` in a transaction that has it.
    fn with<B: Backend>(
        &self,
        locks: &LockPool<R2d2<B::Conn>>,
        wait: Wait,
        f: impl FnOnce(&mut B::Conn) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match self {
            Self::Object => locks.with_object_lock(LockRequest::new(ID).wait(wait), f),
            Self::Slot(semaphore) => locks.with_slot(semaphore, wait, f),
        }
    }
}

pub(super) fn locks<B: Backend>(database: &B, connections: u32) -> LockPool<R2d2<B::Conn>> {
    LockPool::new(database.pool(connections))
}

/// A thread that waits, and runs.
pub(super) fn waiter<B: Backend>(
    waited: &Waited,
    locks: &LockPool<R2d2<B::Conn>>,
    wait: Wait,
    runs: &Arc<Runs>,
) -> Receiver<Result<(), Error>> {
    let (waited, locks, runs) = (waited.clone(), locks.clone(), Arc::clone(runs));
    spawn(move || {
        waited.with::<B>(&locks, wait, |_| {
            runs.run();
            Ok(())
        })
    })
}

/// A transaction on a connection outside the pool.
pub(super) struct Holder {
    release: Sender<()>,
    thread: Receiver<Result<(), Error>>,
}

impl Holder {
    /// Returns when it has what others wait for.
    pub(super) fn acquire<B: Backend>(waited: &Waited, database: &Arc<B>) -> Self {
        let (release, released) = channel::<()>();
        let (held, is_held) = channel();
        let (waited, database) = (waited.clone(), Arc::clone(database));
        let thread = spawn(move || {
            waited.hold::<B>(&mut database.connect(), |_| {
                held.send(()).expect("the test waits");
                released.recv().expect("the test says when");
                Ok(())
            })
        });
        is_held.recv_timeout(LONG).expect("it is free");
        Self { release, thread }
    }

    pub(super) fn release(self) {
        self.release.send(()).expect("it waits");
        result_of(&self.thread).expect("commit");
    }
}

pub(super) fn await_waiters<C: R2D2Connection + 'static>(locks: &LockPool<R2d2<C>>, count: usize) {
    until(|| locks.waiting() == count);
}

pub(crate) fn waiters_leave_connections_to_others<B: Backend>() {
    for waited in Waited::both() {
        let database = waited.database::<B>();
        let locks = locks(&*database, 2);
        let runs = Runs::new(1);
        let holder = Holder::acquire(&waited, &database);
        let waiters = [(); 40].map(|()| waiter::<B>(&waited, &locks, WAIT, &runs));
        await_waiters(&locks, 40);
        for _ in 0..50 {
            let mut conn = locks.pool().get().expect("a connection");
            assert_eq!(B::number(&mut conn, "SELECT 1"), 1);
        }
        assert_eq!(runs.ended(), 0);
        holder.release();
        for waiter in waiters {
            result_of(&waiter).expect("it comes free");
        }
        assert_eq!(runs.ended(), 40);
        assert_eq!(locks.waiting(), 0);
    }
}

pub(crate) fn stopped_waiter_does_not_run<B: Backend>() {
    for waited in Waited::both() {
        let database = waited.database::<B>();
        let locks = locks(&*database, 2);
        let runs = Runs::new(1);
        let holder = Holder::acquire(&waited, &database);
        let shutdown = StopToken::new();
        let client = shutdown.child();
        let hang_up = client.stop_on_drop();
        // The first one polls. The next ones are woken by nothing but the stop.
        let ahead = waiter::<B>(&waited, &locks, WAIT, &runs);
        await_waiters(&locks, 1);
        let first = waiter::<B>(&waited, &locks.stopped_by(&client), Wait::Forever, &runs);
        let stoppable = locks.stopped_by(&shutdown);
        let others = [(); 3].map(|()| waiter::<B>(&waited, &stoppable, Wait::Forever, &runs));
        await_waiters(&locks, 5);
        drop(hang_up);
        // It is still held.
        let error = result_of(&first).expect_err("stopped");
        assert!(matches!(error, Error::Stopped { .. }), "{error:?}");
        assert!(error.to_string().contains(&waited.name()), "{error}");
        await_waiters(&locks, 4);
        shutdown.stop();
        for other in others {
            let error = result_of(&other).expect_err("stopped");
            assert!(matches!(error, Error::Stopped { .. }), "{error:?}");
        }
        assert_eq!(runs.ended(), 0);
        holder.release();
        result_of(&ahead).expect("it comes free");
        let late = waiter::<B>(&waited, &stoppable, WAIT, &runs);
        let error = result_of(&late).expect_err("stopped before it began");
        assert!(matches!(error, Error::Stopped { .. }), "{error:?}");
        assert!(error.is_busy(), "{error:?}");
        assert!(!Error::from(diesel::result::Error::NotFound).is_busy());
        assert_eq!(runs.ended(), 1);
        result_of(&waiter::<B>(&waited, &locks, WAIT, &runs)).expect("it is free");
    }
}

pub(crate) fn wait_for_a_connection_of_the_pool_ends<B: Backend>() {
    for waited in Waited::both() {
        let database = waited.database::<B>();
        let locks = locks(&*database, 1);
        let runs = Runs::new(1);
        let borrowed = locks.pool().get().expect("a connection");
        let limit = Wait::AtMost(Duration::from_millis(100));
        let error =
            result_of(&waiter::<B>(&waited, &locks, limit, &runs)).expect_err("no connection");
        assert!(matches!(error, Error::Pool(_)), "{error:?}");
        assert!(error.is_busy() && !error.is_timeout(), "{error:?}");
        let stop = StopToken::new();
        let waits = waiter::<B>(&waited, &locks.stopped_by(&stop), Wait::Forever, &runs);
        await_waiters(&locks, 1);
        stop.stop();
        let error = result_of(&waits).expect_err("stopped");
        assert!(matches!(error, Error::Stopped { .. }), "{error:?}");
        assert_eq!(runs.ended(), 0);
        drop(borrowed);
        result_of(&waiter::<B>(&waited, &locks, WAIT, &runs)).expect("a connection");
    }
}

/// The pool gives no connection within its time-out, after the waiter has been refused.
pub(crate) fn wait_goes_on_without_a_connection<B: Backend>() {
    for waited in Waited::both() {
        let database = waited.database::<B>();
        let statements = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&statements);
        let pool = B::pool_with(
            &database.url(),
            1,
            Duration::from_millis(400),
            move |conn| {
                let counted = Arc::clone(&counted);
                conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
                    if let InstrumentationEvent::StartQuery { .. } = event {
                        counted.fetch_add(1, Ordering::SeqCst);
                    }
                });
            },
        );
        let locks = LockPool::new(pool);
        let holder = Holder::acquire(&waited, &database);
        // A wait that ends without a connection, and one that gets one again.
        let begin = |limit| {
            let before = statements.load(Ordering::SeqCst);
            let (waited, pool) = (waited.clone(), locks.clone());
            let waits = std::thread::spawn(move || {
                waited.with::<B>(&pool, Wait::AtMost(limit), |_| Ok(()))
            });
            until(|| statements.load(Ordering::SeqCst) > before);
            // Its first attempt has ended when the only connection is free.
            let mut borrowed = None;
            let started = Instant::now();
            while borrowed.is_none() {
                match locks.pool().get() {
                    Ok(conn) => borrowed = Some(conn),
                    Err(error) => assert!(started.elapsed() < LONG, "{error}"),
                }
            }
            let thread = waits.thread().id();
            let collector = Collector::global();
            until(|| collector.events_of(thread).contains("no connection") || waits.is_finished());
            (waits, borrowed)
        };
        let limit = Duration::from_secs(4);
        let (waits, borrowed) = begin(limit);
        let error = waits.join().expect("no panic").expect_err("held");
        drop(borrowed);
        let Error::LockTimeout {
            waited,
            source: Some(source),
            ..
        } = error
        else {
            panic!("{error:?}");
        };
        assert!(waited >= limit, "{waited:?}");
        let source = Error::from(source);
        assert!(matches!(source, Error::Pool(_)), "{source:?}");
        let (waits, borrowed) = begin(LONG);
        drop(borrowed);
        holder.release();
        waits.join().expect("no panic").expect("it comes free");
    }
}

/// One connection stops before its next statement, until the test ends.
pub(crate) fn free_is_acquired_while_an_attempt_does_not_return<B: Backend>() {
    const REQUESTS: usize = 8;
    for waited in Waited::both() {
        let database = waited.database::<B>();
        let (stops, stopped) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let gate = Arc::new(RwLock::new(()));
        let closed = gate.write().expect("no panic");
        let (has_stopped, stop, waits) =
            (Arc::clone(&stopped), Arc::clone(&stops), Arc::clone(&gate));
        let pool = B::pool_with(&database.url(), 4, LONG, move |conn| {
            let (stopped, stops, gate) = (
                Arc::clone(&has_stopped),
                Arc::clone(&stop),
                Arc::clone(&waits),
            );
            conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
                let begins = matches!(event, InstrumentationEvent::StartQuery { .. });
                if begins && stops.swap(false, Ordering::SeqCst) {
                    stopped.store(true, Ordering::SeqCst);
                    drop(gate.read().expect("no panic"));
                }
            });
        });
        let locks = LockPool::new(pool);
        let runs = Runs::new(1);
        stops.store(true, Ordering::SeqCst);
        let stalled = waiter::<B>(&waited, &locks, WAIT, &runs);
        until(|| stopped.load(Ordering::SeqCst));
        let limit = Wait::AtMost(Duration::from_millis(500));
        for request in 0..REQUESTS {
            let outcome = result_of(&waiter::<B>(&waited, &locks, limit, &runs));
            outcome.unwrap_or_else(|error| panic!("request {request}: {error:?}"));
        }
        drop(closed);
        result_of(&stalled).expect("it is free");
        assert_eq!(runs.ended(), REQUESTS + 1);
    }
}

pub(crate) fn error_and_panic_roll_back_and_release<B: Backend>() {
    for waited in Waited::both() {
        let database = waited.database::<B>();
        let locks = locks(&*database, 2);
        let runs = Runs::new(1);
        let outcome = waited.with::<B>(&locks, WAIT, |conn| {
            B::count_up(conn, 0);
            Err(diesel::result::Error::RollbackTransaction.into())
        });
        assert!(matches!(outcome, Err(Error::Database(_))), "{outcome:?}");
        let mut waits = None;
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            waited.with::<B>(&locks, WAIT, |conn| {
                B::count_up(conn, 0);
                waits = Some(waiter::<B>(&waited, &locks, WAIT, &runs));
                await_waiters(&locks, 1);
                assert_ne!(runs.ended(), 0, "a bug of the application");
                Ok(())
            })
        }));
        assert!(panicked.is_err());
        result_of(&waits.expect("a waiter")).expect("it is released");
        let mut conn = locks.pool().get().expect("a connection");
        assert_eq!(B::counter(&mut conn, 0), 0);
        assert_eq!(runs.ended(), 1);
    }
}

pub(crate) fn wait_ends_after_its_limit<B: Backend>() {
    for waited in Waited::both() {
        let database = waited.database::<B>();
        let locks = locks(&*database, 2);
        let runs = Runs::new(1);
        let holder = Holder::acquire(&waited, &database);
        let ended = |wait| result_of(&waiter::<B>(&waited, &locks, wait, &runs));
        for millis in [120, 0] {
            let limit = Duration::from_millis(millis);
            assert_timed_out(&ended(Wait::AtMost(limit)), limit);
        }
        let error = ended(Wait::No).expect_err("held");
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        let error = ended(Wait::AtMost(Duration::MAX)).expect_err("held");
        assert!(matches!(error, Error::InvalidWait { .. }), "{error:?}");
        holder.release();
        assert_eq!(runs.ended(), 0);
        ended(Wait::AtMost(Duration::ZERO)).expect("what is free needs no time");
    }
}

/// A request that sets no limit has that of the pool.
pub(crate) fn wait_for_a_lock_ends_after_the_time_out_of_the_pool<B: Backend>() {
    let database = Waited::Object.database::<B>();
    let limit = Duration::from_millis(300);
    let locks = LockPool::new(B::pool_with(&database.url(), 2, limit, |_| ()));
    let holder = Holder::acquire(&Waited::Object, &database);
    let waits =
        spawn(move || locks.with_object_lock(ID, |_| -> Result<(), Error> { panic!("held") }));
    assert_timed_out(&result_of(&waits), limit);
    holder.release();
}

fn assert_timed_out(outcome: &Result<(), Error>, expected: Duration) {
    let Err(Error::LockTimeout { waited, limit, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(*limit, Some(expected));
    assert!(*waited >= expected, "{waited:?}");
}

pub(crate) fn transaction_in_a_test_transaction_is_a_savepoint<B: Backend>() {
    for waited in Waited::both() {
        let database = waited.database::<B>();
        let pool = B::pool_with(&database.url(), 1, LONG, |conn| {
            conn.begin_test_transaction().expect("BEGIN");
        });
        let locks = LockPool::new(pool);
        let run = waited.with::<B>(&locks, WAIT, |conn| {
            B::count_up(conn, 0);
            Ok(())
        });
        // At MySQL's default isolation level.
        let unsuitable = matches!(run, Err(Error::UnsuitableIsolation { .. }));
        assert!(run.is_ok() || unsuitable, "{run:?}");
        // It would throw the connection away, with the test transaction, before it retries.
        let retried = LockRequest::new(ID).retry(RetryPolicy::max_attempts(2));
        let refused = locks.run_transaction(retried, |_| -> Result<(), Error> {
            unreachable!("it is not run")
        });
        assert!(
            matches!(refused, Err(Error::AlreadyInTransaction { .. })),
            "{refused:?}"
        );
        let mut conn = locks.pool().get().expect("a connection");
        B::count_up(&mut conn, 0);
        let counted = if unsuitable { 1 } else { 2 };
        assert_eq!(B::counter(&mut conn, 0), counted);
        // The test transaction is still open: another session sees nothing of it, and a slot is held.
        let mut other = database.connect();
        assert_eq!(B::counter(&mut other, 0), 0);
        if let Waited::Slot(semaphore) = &waited
            && !unsuitable
            && !B::ONE_WRITER
        {
            let tried = other.try_with_slot(semaphore, |_| Ok::<_, Error>(()));
            assert_eq!(tried.expect("an answer"), None);
        }
    }
}
