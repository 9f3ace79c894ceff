//! What a process does when it is asked to end.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use diesel::connection::{Connection, InstrumentationEvent};
use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, LockPool, Shutdown, Slot, SlotRenewer, TimerJob};

use super::slots::guards::{guarded, renewer};
use super::slots::{HOUR, one_hour, slots_of};
use crate::support::Backend;
use crate::support::threads::{LONG, begin, result_of, roll_back, spawn};

fn semaphore(name: &str) -> Semaphore {
    Semaphore::new(name, 1)
}

/// Waits end at once; closures end by themselves, and are waited for.
pub(crate) fn shutdown_waits_until_closures_have_ended<B: Backend>() {
    let database = Arc::new(B::new());
    let shutdown = Shutdown::new();
    let renewer = shutdown.add_renewer(&renewer::<B>(&database, 2));
    let locks = shutdown.add_lock_pool(&LockPool::new(database.pool(3)));
    let others = super::slots::guards::renewer::<B>(&database, 2);
    let held = guarded::<B>(&others, &semaphore("held"), &one_hour());
    let (running, runs) = channel();
    let await_begun = |name| assert_eq!(runs.recv_timeout(LONG), Ok(name));
    let begun = |name: &'static str| {
        let running = running.clone();
        move || running.send(name).expect("the test waits")
    };

    let (leading, node) = (begun("leader"), renewer.clone());
    let leader = spawn(move || {
        node.run_as_leader(&semaphore("leader"), one_hour(), |leader| {
            leading();
            while leader.sleep(HOUR) {}
            Ok::<_, Error>(())
        })
    });
    await_begun("leader");
    // Ends when the test says so, after the stop.
    let (finish_job, job_may_end) = channel::<()>();
    let (working, node) = (begun("job"), renewer.clone());
    let job = spawn(move || {
        node.try_run(&semaphore("job"), one_hour(), |guard| {
            working();
            job_may_end.recv_timeout(LONG).expect("the test says when");
            assert!(guard.is_held(), "it is not cut off");
            Ok::<_, Error>(())
        })
    });
    await_begun("job");
    let (finish_transaction, transaction_may_end) = channel::<()>();
    let (working, pool) = (begun("transaction"), locks.clone());
    let transaction = spawn(move || {
        pool.with_object_lock("Account:1", |_| {
            working();
            transaction_may_end
                .recv_timeout(LONG)
                .expect("the test says when");
            Ok::<_, Error>(())
        })
    });
    await_begun("transaction");
    let node = renewer.clone();
    let slot_waiter = spawn(move || node.acquire(&semaphore("held"), one_hour(), Wait::Forever));
    let pool = locks.clone();
    let lock_waiter = spawn(move || {
        let request = LockRequest::new("Account:1").wait(Wait::Forever);
        pool.with_object_lock(request, |_| Ok::<_, Error>(()))
    });

    let process = shutdown.clone();
    let ended = spawn(move || process.shut_down(LONG));
    let error = result_of(&slot_waiter).expect_err("stopped");
    assert!(matches!(error, Error::Stopped { .. }), "{error:?}");
    let error = result_of(&lock_waiter).expect_err("stopped");
    assert!(matches!(error, Error::Stopped { .. }), "{error:?}");
    assert!(shutdown.stop_token().is_stopped());
    assert!(ended.try_recv().is_err(), "the transaction runs");
    finish_transaction.send(()).expect("it waits");
    result_of(&transaction).expect("committed");
    finish_job.send(()).expect("it waits");
    let left = result_of(&ended);
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(left.slots, []);
    result_of(&leader).expect("no error");
    assert_eq!(result_of(&job).expect("no error"), Some(()));
    let mut conn = database.connect();
    for name in ["leader", "job"] {
        assert_eq!(
            conn.held_slots(&slots_of(name)).expect("rows"),
            [],
            "{name}"
        );
    }
    assert!(held.is_held(), "of another process");

    let late = locks.with_object_lock("Account:2", |_| Ok::<_, Error>(()));
    assert!(matches!(late, Err(Error::Stopped { .. })), "{late:?}");
    let late = renewer.try_run(&semaphore("late"), one_hour(), |_| Ok::<_, Error>(()));
    assert!(matches!(late, Err(Error::Stopped { .. })), "{late:?}");
    assert!(shutdown.shut_down(LONG).is_empty(), "a second call");
    held.release().expect("theirs");
}

pub(crate) fn shutdown_cuts_off_what_does_not_end<B: Backend>() {
    let database = Arc::new(B::new());
    let shutdown = Shutdown::new();
    let renewer = shutdown.add_renewer(&renewer::<B>(&database, 2));
    let locks = shutdown.add_lock_pool(&LockPool::new(database.pool(2)));
    let lost = guarded::<B>(&renewer, &semaphore("lost"), &one_hour());
    assert_eq!(renewer.release_guards(), 1);
    assert!(!lost.is_held(), "its owner goes on");
    let guard = guarded::<B>(&renewer, &semaphore("job"), &one_hour());
    let (begun, begins) = channel();
    let (finish, may_end) = channel::<()>();
    let pool = locks.clone();
    let transaction = spawn(move || {
        pool.with_object_lock("Account:1", |_| {
            begun.send(()).expect("the test waits");
            may_end.recv_timeout(LONG).expect("the test says when");
            Ok::<_, Error>(())
        })
    });
    begins.recv_timeout(LONG).expect("it begins");
    if B::ONE_WRITER {
        // The release needs the write lock.
        finish.send(()).expect("it waits");
        result_of(&transaction).expect("committed");
    }
    let left = shutdown.shut_down(Duration::from_millis(10));
    assert!(!left.is_empty(), "{left:?}");
    assert_eq!(left.transactions, usize::from(!B::ONE_WRITER));
    let names: Vec<_> = left.slots.iter().map(Slot::semaphore).collect();
    assert_eq!(names, ["job"]);
    assert_eq!(left.guards, 2);
    assert!(!guard.is_held(), "another may have it");
    let mut conn = database.connect();
    assert_eq!(conn.held_slots(&slots_of("job")).expect("rows"), []);
    drop((guard, lost));
    if !B::ONE_WRITER {
        finish.send(()).expect("it waits");
        result_of(&transaction).expect("committed");
    }
    assert!(shutdown.shut_down(LONG).is_empty(), "all have ended");
}

/// A transaction of another connection has the row of the slot.
pub(crate) fn slot_that_cannot_be_released_is_not_listed_as_released<B: Backend>() {
    let database = B::new();
    let shutdown = Shutdown::new();
    let renewer = shutdown.add_renewer(&renewer::<B>(&database, 2));
    let guard = guarded::<B>(&renewer, &semaphore("job"), &one_hour());
    let mut other = database.connect();
    begin(&mut other);
    B::sql(&mut other, "UPDATE diesel_locks_slots SET token = token");
    let mut left = shutdown.shut_down(Duration::ZERO);
    assert_eq!(left.slots, []);
    assert_eq!(left.guards, 1);
    roll_back(&mut other);
    left.guards = 0;
    left.slots.push(guard.slot().clone());
    assert!(!left.is_empty(), "a slot was cut off");
}

/// A second call has a limit of its own, and a registration does not wait, while the first call waits.
pub(crate) fn calls_of_a_shutdown_do_not_wait_for_each_other<B: Backend>() {
    let database = B::new();
    let shutdown = Shutdown::new();
    let pool = renewer::<B>(&database, 2);
    let locks = LockPool::new(database.pool(2));
    // Each counts once, however often it is added.
    let renewer = shutdown.add_renewer(&shutdown.add_renewer(&pool));
    let locks = shutdown.add_lock_pool(&shutdown.add_lock_pool(&locks));
    let lost = guarded::<B>(&renewer, &semaphore("lost"), &one_hour());
    assert_eq!(renewer.release_guards(), 1);
    let (begun, begins) = channel();
    let (finish, may_end) = channel::<()>();
    let process = shutdown.clone();
    let transaction = spawn(move || {
        locks.with_object_lock("Account:1", |_| {
            begun.send(()).expect("the test waits");
            while !process.stop_token().is_stopped() {
                std::thread::sleep(Duration::from_millis(1));
            }
            // It waits by now.
            std::thread::sleep(Duration::from_millis(20));
            drop(process.add_renewer(&pool));
            begun.send(()).expect("the test waits");
            may_end.recv_timeout(LONG).expect("the test says when");
            Ok::<_, Error>(())
        })
    });
    begins.recv_timeout(LONG).expect("it begins");
    let process = shutdown.clone();
    let first = spawn(move || process.shut_down(LONG));
    begins.recv_timeout(LONG).expect("it is registered");
    let process = shutdown.clone();
    let second = spawn(move || process.shut_down(Duration::from_millis(10)));
    let left = result_of(&second);
    assert_eq!((left.guards, left.transactions), (1, 1));
    assert!(first.try_recv().is_err(), "the transaction runs");
    finish.send(()).expect("it waits");
    result_of(&transaction).expect("committed");
    drop(lost);
    assert!(result_of(&first).is_empty(), "all have ended");
}

/// Work of a renewer that ends begins a transaction before.
pub(crate) fn shutdown_waits_for_what_begins_meanwhile<B: Backend>() {
    let database = B::new();
    let shutdown = Shutdown::new();
    let renewer = shutdown.add_renewer(&renewer::<B>(&database, 2));
    let locks = LockPool::new(database.pool(2));
    drop(shutdown.add_lock_pool(&locks));
    let work = guarded::<B>(&renewer, &semaphore("work"), &one_hour());
    // So that its end needs no write lock.
    assert_eq!(renewer.release_guards(), 1);
    let process = shutdown.clone();
    let ended = spawn(move || process.shut_down(LONG));
    while !shutdown.stop_token().is_stopped() {
        std::thread::sleep(Duration::from_millis(1));
    }
    // No transaction runs when it looks.
    std::thread::sleep(Duration::from_millis(100));
    let (begun, begins) = channel();
    let (finish, may_end) = channel::<()>();
    let transaction = spawn(move || {
        locks.with_object_lock("Account:1", |_| {
            begun.send(()).expect("the test waits");
            may_end.recv_timeout(LONG).expect("the test says when");
            Ok::<_, Error>(())
        })
    });
    begins.recv_timeout(LONG).expect("it begins");
    drop(work);
    let early = ended.recv_timeout(Duration::from_millis(200));
    assert!(early.is_err(), "the transaction runs");
    finish.send(()).expect("it waits");
    result_of(&transaction).expect("committed");
    assert!(result_of(&ended).is_empty());
}

/// Whenever a node that waits for a tick sends a statement, it is waited for.
pub(crate) fn shutdown_waits_for_a_node_that_looks_for_a_tick<B: Backend>() {
    let database = B::new();
    let shutdown: Shutdown = Shutdown::new();
    let (left, in_statements) = channel();
    let process = shutdown.clone();
    let pool = B::pool_of(&database.url(), 1, move |conn| {
        let (left, process) = (left.clone(), process.clone());
        conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
            if let InstrumentationEvent::StartQuery { .. } = event {
                // The test may have ended.
                let _ = left.send(process.shut_down(Duration::ZERO).guards);
            }
        });
    });
    let renewer = shutdown.add_renewer(&SlotRenewer::new(pool));
    let job = TimerJob::new("job", HOUR);
    renewer
        .run_on_timer(&job, one_hour(), |_| Ok::<_, Error>(()))
        .expect("stopped");
    drop(renewer);
    drop(shutdown);
    let counts: Vec<usize> = in_statements.try_iter().collect();
    assert!(
        !counts.is_empty() && counts.iter().all(|count| *count == 1),
        "{counts:?}"
    );
}
