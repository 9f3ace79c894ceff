//! What a process does when it is asked to end.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use diesel_locks::prelude::*;
use diesel_locks::{Error, LockPool, Shutdown, Slot};

use super::slots::guards::{guarded, renewer};
use super::slots::{HOUR, one_hour};
use crate::support::Backend;
use crate::support::threads::{LONG, result_of, spawn};

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

    let (leading, node, token) = (
        begun("leader"),
        renewer.clone(),
        shutdown.stop_token().clone(),
    );
    let leader = spawn(move || {
        node.run_as_leader(&semaphore("leader"), &one_hour(), &token, |leader| {
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
        node.run(&semaphore("job"), &one_hour(), |guard| {
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
    let slot_waiter = spawn(move || node.acquire(&semaphore("held"), &one_hour(), Wait::Forever));
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
        assert_eq!(conn.held_slots(name).expect("rows"), [], "{name}");
    }
    assert!(held.is_held(), "of another process");

    let late = locks.with_object_lock("Account:2", |_| Ok::<_, Error>(()));
    assert!(matches!(late, Err(Error::Stopped { .. })), "{late:?}");
    let late = renewer.run(&semaphore("late"), &one_hour(), |_| Ok::<_, Error>(()));
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
    assert_eq!(renewer.release_all(), 1);
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
    assert_eq!(conn.held_slots("job").expect("rows"), []);
    drop((guard, lost));
    if !B::ONE_WRITER {
        finish.send(()).expect("it waits");
        result_of(&transaction).expect("committed");
    }
    assert!(shutdown.shut_down(LONG).is_empty(), "all have ended");
}
