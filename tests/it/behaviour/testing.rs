//! What the feature `testing` has for the tests of an application.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use diesel_locks::prelude::*;
use diesel_locks::testing::{self, Failure};
use diesel_locks::{Error, InspectExt, LockPool, RetryPolicy, StopToken, TimerJob};

use super::leader::{Node, next};
use super::slots::guards::{count_statements, guarded, renewer};
use super::slots::{HOUR, acquire, is_full, one_hour, slots_of};
use crate::support::Backend;
use crate::support::threads::{LONG, begin, loss_of, until};
use crate::support::urls::fresh_name;

/// Failures and queues belong to the process: each test has names of its own.
fn semaphore(permits: u32) -> Semaphore {
    Semaphore::new(fresh_name(), permits)
}

fn held<B: Backend>(conn: &mut B::Conn, semaphore: &Semaphore) -> usize {
    conn.held_slots(&slots_of(semaphore)).expect("rows").len()
}

pub(crate) fn moved_lease_is_renewed_or_lost<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let renewer = renewer::<B>(&database, 2);
    let (one, other) = (semaphore(1), semaphore(1));
    let guard = guarded::<B>(&renewer, &one, &one_hour());
    let kept = guarded::<B>(&renewer, &other, &one_hour());
    let lost = loss_of(&guard);
    let remaining = |conn: &mut B::Conn| {
        let held = conn.held_slots(&slots_of(&one)).expect("rows");
        held[0].remaining
    };

    // As if half of it had passed: the renewer makes it a full one.
    let moved = testing::expire_leases(&mut conn, &one, HOUR / 2);
    assert_eq!(moved.expect("moved"), 1);
    until(|| remaining(&mut conn) > HOUR * 3 / 4);
    assert!(guard.is_held());

    assert_eq!(
        testing::expire_leases(&mut conn, &one, HOUR).expect("moved"),
        1
    );
    lost.recv_timeout(LONG).expect("it is lost");
    assert!(guard.ensure_held().expect_err("lost").is_slot_lost());
    let next = acquire::<B>(&mut conn, &one);
    assert!(next.fence() > guard.fence());
    drop(guard);
    conn.release_slot(next).expect("ours");
    assert_eq!(
        testing::expire_leases(&mut conn, &one, HOUR).expect("none"),
        0
    );
    assert!(kept.is_held(), "another semaphore");
    assert_eq!(held::<B>(&mut conn, &other), 1);

    for unusable in [Duration::ZERO, Duration::MAX] {
        let error = testing::expire_leases(&mut conn, &one, unusable).expect_err("unusable");
        assert!(matches!(error, Error::InvalidLease { .. }), "{error:?}");
    }
}

/// A patient one, which would ask in an hour otherwise.
pub(crate) fn standby_takes_a_moved_lease_over<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let one = semaphore(1);
    let former = acquire::<B>(&mut conn, &one);
    let patient = renewer::<B>(&database, 2).poll_interval(HOUR);
    let (elected, elections) = channel();
    let standby = Node::with_renewer::<B>(&patient, &one, "standby", &elected);
    let early = elections.recv_timeout(Duration::from_millis(200));
    early.expect_err("an hour is left");
    let moved = testing::expire_leases(&mut conn, &one, HOUR);
    assert_eq!(moved.expect("moved"), 1);
    let (_, fence) = next(&elections);
    assert!(fence > former.fence());
    assert!(conn.release_slot(former).expect_err("lost").is_slot_lost());
    standby.stop();
}

pub(crate) fn minimum_hold_time_is_moved<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let job = semaphore(1);
    let slot = conn.acquire_slot(&job, one_hour().hold_at_least(HOUR / 2), Wait::No);
    conn.release_slot(slot.expect("free")).expect("ours");
    assert!(is_full::<B>(&mut conn, &job), "it stays unavailable");
    let moved = testing::expire_leases(&mut conn, &job, HOUR / 4);
    assert_eq!(moved.expect("moved"), 1);
    assert!(
        is_full::<B>(&mut conn, &job),
        "a quarter of an hour is left"
    );
    // An open transaction, as that of a test, sees it too.
    B::in_transaction(&mut conn, |conn| {
        let moved = testing::expire_leases(conn, &job, HOUR / 4);
        assert_eq!(moved.expect("moved"), 1);
        Ok(())
    })
    .expect("committed");
    assert!(!is_full::<B>(&mut conn, &job));
}

pub(crate) fn tick_whose_lease_is_moved_is_lost<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let (renewer, stop) = (renewer::<B>(&database, 2), StopToken::new());
    let name = fresh_name();
    let job = TimerJob::new(&name, Duration::from_millis(200));
    let mut fences = Vec::new();
    let run = renewer
        .stopped_by(&stop)
        .run_on_timer(&job, one_hour(), |tick| {
            fences.push(tick.guard().fence());
            if fences.len() > 1 {
                stop.stop();
                return Ok::<_, Error>(());
            }
            let moved = testing::expire_leases(&mut conn, &name, HOUR);
            assert_eq!(moved.expect("moved"), 1);
            assert!(!tick.sleep(HOUR) && !tick.is_active() && !tick.guard().is_held());
            Ok(())
        });
    run.expect("no error");
    assert!(fences[0] < fences[1], "another grant");
}

pub(crate) fn object_is_held_as_by_another<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let order = ObjectId::new("Order", 4711);
    let other = testing::hold_object_lock(database.connect(), &order).expect("free");
    let refused = conn.try_with_object_lock(&order, |_| Ok::<_, Error>(()));
    assert_eq!(refused.expect("an answer"), None);
    let late = conn.with_object_lock(order.at_most(Duration::from_millis(60)), |_| {
        Ok::<_, Error>(())
    });
    assert!(late.expect_err("held").is_timeout());
    let second = testing::hold_object_lock(database.connect(), &order);
    assert!(second.expect_err("held").is_unavailable());

    // The connection is that of the caller again, without a transaction.
    let mut own = other.release().expect("released");
    assert!(database.is_free(order.as_str()));
    own.run_transaction(TransactionOptions::new(), |_| Ok::<_, Error>(()))
        .expect("no transaction is open");
    let shared = LockRequest::shared(&order).wait(Wait::AtMost(LONG));
    drop(testing::hold_object_lock(own, shared).expect("free"));
    assert!(database.is_free(order.as_str()));

    // A pooled connection.
    let pool = database.pool(1);
    let conn = pool.get().expect("a connection");
    let other = testing::hold_object_lock(conn, [&order]).expect("free");
    assert!(!database.is_free(order.as_str()));
    drop(other);
    assert!(database.is_free(order.as_str()));
    let mut conn = pool.get().expect("it was returned");
    begin(&mut *conn);
    let error = testing::hold_object_lock(conn, &order).expect_err("in a transaction");
    assert!(
        matches!(error, Error::AlreadyInTransaction { .. }),
        "{error:?}"
    );
}

pub(crate) fn slots_are_held_as_by_another<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let three = semaphore(3);
    let other = testing::hold_slots(database.connect(), &three, 2).expect("free");
    assert_eq!(held::<B>(&mut conn, &three), 2);
    let slot = acquire::<B>(&mut conn, &three);
    assert!(is_full::<B>(&mut conn, &three));
    for count in [Some(1), None] {
        let refused = testing::hold_slots(database.connect(), &three, count);
        assert!(refused.expect_err("all are held").is_unavailable());
    }
    let own = other.release().expect("released");
    let refused = testing::hold_slots(own, &three, 3);
    assert!(refused.expect_err("two are free").is_unavailable());
    assert_eq!(held::<B>(&mut conn, &three), 1, "none of them is held");

    let other = testing::hold_slots(database.connect(), &three, None).expect("free");
    assert!(is_full::<B>(&mut conn, &three));
    let late = conn.with_slot(&three, Duration::from_millis(60), |_| Ok::<_, Error>(()));
    assert!(late.expect_err("all are held").is_timeout());
    conn.release_slot(slot).expect("ours");
    drop(other);
    assert_eq!(held::<B>(&mut conn, &three), 0);

    // Taken over by the application.
    let other = testing::hold_slots(database.connect(), &three, None).expect("free");
    let moved = testing::expire_leases(&mut conn, &three, HOUR);
    assert_eq!(moved.expect("moved"), 3);
    let slot = acquire::<B>(&mut conn, &three);
    other.release().expect("two of them are its own still");
    conn.release_slot(slot).expect("ours");
}

pub(crate) fn attempts_to_lock_an_object_fail_as_chosen<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let name = fresh_name();
    let id = || LockRequest::new(&name);
    let choose = |failure, attempts| testing::fail_object_lock(&name, failure, attempts);
    let nothing = |_: &mut B::Conn| Ok::<_, Error>(());
    let statements = Arc::new(AtomicUsize::new(0));
    count_statements(&mut conn, &[""], &statements);

    let failures = choose(Failure::Refused, 3);
    let refused = conn.try_with_object_lock(id(), nothing);
    assert_eq!(refused.expect("an answer"), None);
    let refused = conn.with_object_lock(id().wait(Wait::No), nothing);
    assert!(refused.expect_err("refused").is_unavailable());
    assert_eq!(statements.load(Ordering::SeqCst), 0);
    conn.with_object_lock(LockRequest::all([name.as_str(), "another"]), nothing)
        .expect("the wait continues");
    assert_eq!(failures.left(), 0);
    let other_id = conn.try_with_object_lock("another", nothing);
    assert!(other_id.expect("an answer").is_some());

    let failures = choose(Failure::Refused, u32::MAX);
    let started = Instant::now();
    let wait = Duration::from_millis(60);
    let late = conn.with_object_lock(id().wait(wait), nothing);
    assert!(late.expect_err("refused").is_timeout() && started.elapsed() >= wait);
    drop(failures);
    let free = conn.try_with_object_lock(id(), nothing);
    assert!(free.expect("an answer").is_some(), "they are taken back");

    let _timeout = choose(Failure::TimedOut, 1);
    let late = conn.with_object_lock(id(), nothing).expect_err("too late");
    assert!(matches!(late, Error::LockTimeout { .. }), "{late:?}");

    // In an open transaction.
    let failures = choose(Failure::Deadlock, 1);
    let victim = B::in_transaction(&mut conn, |conn| conn.lock_object(id()));
    assert!(victim.expect_err("a deadlock").is_retryable());
    assert_eq!(failures.left(), 0);

    let mut runs = 0;
    let failures = choose(Failure::Deadlock, 2);
    let retried = id().retry(RetryPolicy::max_attempts(3));
    conn.run_transaction(retried, |_| {
        runs += 1;
        Ok::<_, Error>(())
    })
    .expect("the third attempt");
    assert_eq!((runs, failures.left()), (1, 0));

    let _lost = choose(Failure::ConnectionLost, 1);
    let lost = conn.with_object_lock(id(), nothing).expect_err("lost");
    assert!(lost.is_connection_lost(), "{lost:?}");
    conn.with_object_lock(id(), nothing).expect_err("unusable");
    assert!(database.is_free(&name));
}

pub(crate) fn waits_of_a_lock_pool_fail_as_chosen<B: Backend>() {
    let database = B::new();
    let locks = LockPool::new(database.pool(2));
    let (name, exports) = (fresh_name(), semaphore(1));
    let wait = Wait::AtMost(LONG);
    let id = || LockRequest::new(&name).wait(wait);
    let nothing = |_: &mut B::Conn| Ok::<_, Error>(());

    let failures = testing::fail_object_lock(&name, Failure::Refused, 3);
    let refused = locks.try_with_object_lock(&name, nothing);
    assert_eq!(refused.expect("an answer"), None);
    locks.with_object_lock(id(), nothing).expect("it waits");
    assert_eq!(failures.left(), 0);
    let failures = testing::fail_slot(&exports, Failure::Refused, 3);
    let refused = locks.try_with_slot(&exports, nothing);
    assert_eq!(refused.expect("an answer"), None);
    locks.with_slot(&exports, wait, nothing).expect("it waits");
    assert_eq!(failures.left(), 0);

    let _late = testing::fail_object_lock(&name, Failure::TimedOut, 1);
    let _no_slot = testing::fail_slot(&exports, Failure::TimedOut, 1);
    let lock = locks.with_object_lock(id(), nothing);
    let slot = locks.with_slot(&exports, wait, nothing);
    for late in [lock, slot] {
        let error = late.expect_err("too late");
        assert!(
            matches!(&error, Error::LockTimeout { limit, .. } if *limit == Some(LONG)),
            "{error:?}"
        );
    }

    let failures = testing::fail_object_lock(&name, Failure::ConnectionLost, 1);
    let retried = || id().retry(RetryPolicy::max_attempts(2));
    locks
        .run_transaction(retried(), nothing)
        .expect("another connection");
    assert_eq!(failures.left(), 0);
    let _deadlocks = testing::fail_object_lock(&name, Failure::Deadlock, 3);
    let victim = locks.run_transaction(retried(), nothing);
    assert!(victim.expect_err("two attempts").is_retryable());
}

pub(crate) fn attempts_to_acquire_a_slot_fail_as_chosen<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let exports = semaphore(1);
    let choose = |failure, attempts| testing::fail_slot(&exports, failure, attempts);
    let nothing = |_: &mut B::Conn| Ok::<_, Error>(());

    let failures = choose(Failure::Refused, 4);
    let refused = conn.try_acquire_slot(&exports, one_hour());
    assert_eq!(refused.expect("an answer"), None);
    let refused = conn.try_with_slot(&exports, nothing);
    assert_eq!(refused.expect("an answer"), None);
    conn.with_slot(&exports, Wait::Forever, nothing)
        .expect("it waits");
    assert_eq!(failures.left(), 0);
    let _late = choose(Failure::TimedOut, 1);
    let late = conn.acquire_slot(&exports, one_hour(), Wait::AtMost(LONG));
    let error = late.expect_err("too late");
    assert!(
        matches!(&error, Error::LockTimeout { limit, .. } if *limit == Some(LONG)),
        "{error:?}"
    );
    let _deadlock = choose(Failure::Deadlock, 1);
    let victim = conn.with_slot(&exports, Wait::Forever, nothing);
    assert!(victim.expect_err("a deadlock").is_retryable());

    // Only renewals lose a slot.
    let failures = choose(Failure::SlotLost, 2);
    let mut slot = acquire::<B>(&mut conn, &exports);
    let lost = conn.renew_slot(&mut slot, HOUR).expect_err("lost");
    assert!(lost.is_slot_lost(), "{lost:?}");
    drop(failures);
    conn.renew_slot(&mut slot, HOUR).expect("taken back");
    conn.release_slot(slot).expect("ours");

    let _lost = choose(Failure::ConnectionLost, 1);
    let lost = conn.try_acquire_slot(&exports, one_hour());
    assert!(lost.expect_err("lost").is_connection_lost());
}

pub(crate) fn guard_loses_its_slot_as_chosen<B: Backend>() {
    let database = B::new();
    let renewer = renewer::<B>(&database, 2);
    let (one, other) = (semaphore(1), semaphore(1));
    let guard = guarded::<B>(&renewer, &one, &one_hour());
    let kept = guarded::<B>(&renewer, &other, &one_hour());
    let lost = loss_of(&guard);
    let failures = testing::fail_slot(&one, Failure::SlotLost, 1);
    lost.recv_timeout(LONG).expect("it is lost");
    assert_eq!(failures.left(), 0);
    assert!(guard.ensure_held().expect_err("lost").is_slot_lost());
    assert!(kept.is_held());
}
