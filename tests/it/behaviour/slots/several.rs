//! Several permits at once, all or none.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use diesel::Connection;
use diesel::connection::InstrumentationEvent;
use diesel_locks::limits::{MAX_PERMITS, MAX_PERMITS_AT_ONCE};
use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, LeaseState, ListOptions, LockPool, Slot, StopToken};

use super::guards::{guarded, renewed, renewer};
use super::{HOUR, acquire, expire_lease, is_full, one_hour, run_concurrently, slots_of};
use crate::subprocess::RENEWED_LEASE;
use crate::support::Backend;
use crate::support::threads::{LONG, loss_of, result_of, spawn, until};
use crate::support::urls::fresh_name;

const LAST_FENCE: &str = "SELECT max(fence) FROM diesel_locks_slots";

/// The number of slots that a request has kept beyond their first leases of 5 s.
const KEPT_LONGER: &str = "SELECT count(*) FROM diesel_locks_slots WHERE expires_us - acquired_us BETWEEN 6000000 AND 60000000";

fn of_four() -> Semaphore {
    Semaphore::new("four", 4)
}

fn hour_of(permits: u32) -> LeaseOptions {
    one_hour().permits(permits)
}

/// How many slots are held in the database, those included with which requests for several take turns.
fn held<B: Backend>(conn: &mut B::Conn) -> usize {
    conn.held_slots(&ListOptions::new()).expect("rows").len()
}

pub(crate) fn several_permits_are_held_as_one<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let lease = hour_of(3).holder("node 1");
    let slot = conn.try_acquire_slot(&of_four(), &lease);
    let mut slot = slot.expect("an answer").expect("free");
    assert_eq!(slot.permits(), 3);
    assert!(slot.remaining() > HOUR / 2);
    let rows = conn.held_slots(&slots_of(of_four())).expect("rows");
    assert_eq!((rows.len(), held::<B>(&mut conn)), (3, 3));
    assert!(rows.iter().all(|row| row.remaining > HOUR / 2));
    assert!(
        rows.iter()
            .all(|row| row.holder.as_deref() == Some("node 1"))
    );
    assert_eq!(Some(slot.fence()), rows.iter().map(|row| row.fence).max());
    // All or none.
    assert_eq!(
        conn.try_acquire_slot(&of_four(), hour_of(2))
            .expect("an answer"),
        None
    );
    assert_eq!(held::<B>(&mut conn), 3);
    let other = acquire::<B>(&mut conn, &of_four());
    assert!(other.fence() > slot.fence());
    assert!(is_full::<B>(&mut conn, &of_four()));
    let renewed = conn.renew_slot(&mut slot, HOUR * 2).expect("held");
    assert_eq!(renewed, LeaseState::Unexpired);
    assert!(slot.remaining() > HOUR);
    let rows = conn.held_slots(&slots_of(of_four())).expect("rows");
    assert_eq!(rows.iter().filter(|row| row.remaining > HOUR).count(), 3);
    conn.set_slot_data(&slot, "half").expect("held");
    let rows = conn.held_slots(&slots_of(of_four())).expect("rows");
    let with_data = rows
        .iter()
        .filter(|row| row.data.as_deref() == Some("half"));
    assert_eq!(with_data.count(), 3);
    B::in_transaction(&mut conn, |conn| conn.pin_slot(&slot)).expect("held");
    // One of three permits is released. Two stay held.
    let mut parts = slot.split();
    conn.release_slot(parts.remove(1)).expect("held");
    let slot = parts.remove(0).and(parts);
    assert_eq!((slot.permits(), held::<B>(&mut conn)), (2, 3));
    // One of two is lost: so are both.
    let [first, second] = <[Slot; 2]>::try_from(slot.clone().split()).expect("two");
    expire_lease::<B>(&mut conn, &second);
    let next = [
        acquire::<B>(&mut conn, &of_four()),
        acquire::<B>(&mut conn, &of_four()),
    ];
    assert!(next.iter().any(|next| next.number() == second.number()));
    let pinned = B::in_transaction(&mut conn, |conn| conn.pin_slot(&slot));
    assert!(pinned.expect_err("lost").is_slot_lost());
    let error = conn.renew_slot(&mut slot.clone(), HOUR);
    assert!(error.expect_err("lost").is_slot_lost());
    // What is not lost is released.
    assert!(conn.release_slot(&slot).expect_err("lost").is_slot_lost());
    assert!(
        conn.release_slot(&first)
            .expect_err("released")
            .is_slot_lost()
    );
    for slot in next.into_iter().chain([other]) {
        assert_eq!(
            conn.release_slot(slot).expect("held"),
            LeaseState::Unexpired
        );
    }
    assert_eq!(held::<B>(&mut conn), 0);
}

/// Others request one permit without a pause, so that three are never free at once.
pub(crate) fn several_permits_are_acquired_beside_requests_for_one<B: Backend>() {
    let database = Arc::new(B::new());
    let semaphore = Semaphore::new(fresh_name(), 4);
    let (in_use, ended) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let others = if B::ONE_WRITER { 3 } else { 5 };
    let others: Vec<_> = (0..others)
        .map(|_| {
            let mut conn = database.connect();
            let (semaphore, in_use) = (semaphore.clone(), Arc::clone(&in_use));
            let ended = Arc::clone(&ended);
            spawn(move || {
                while !ended.load(Ordering::SeqCst) {
                    if B::ONE_WRITER {
                        // SQLite grants its write lock in no order: without a pause one connection keeps it.
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    let slot = conn
                        .acquire_slot(&semaphore, one_hour(), LONG)
                        .expect("a slot");
                    assert!(in_use.fetch_add(1, Ordering::SeqCst) < 4);
                    in_use.fetch_sub(1, Ordering::SeqCst);
                    conn.release_slot(slot).expect("held");
                }
            })
        })
        .collect();
    let locks = LockPool::new(database.pool(2));
    let renewer = renewer::<B>(&database, 2);
    let mut conn = database.connect();
    let use_three = || {
        assert!(in_use.fetch_add(3, Ordering::SeqCst) <= 1);
        in_use.fetch_sub(3, Ordering::SeqCst);
    };
    for _ in 0..3 {
        let slot = conn
            .acquire_slot(&semaphore, hour_of(3), LONG)
            .expect("free in time");
        use_three();
        conn.release_slot(slot).expect("held");
        let guard = renewer
            .acquire(&semaphore, hour_of(3), LONG)
            .expect("free in time");
        use_three();
        guard.release().expect("held");
        let within = |_: &mut B::Conn| {
            use_three();
            Ok::<_, Error>(())
        };
        conn.with_slots(&semaphore, 3, LONG, within)
            .expect("free in time");
        locks
            .with_slots(&semaphore, 3, LONG, within)
            .expect("free in time");
    }
    ended.store(true, Ordering::SeqCst);
    for other in &others {
        result_of(other);
    }
    assert_eq!(held::<B>(&mut conn), 0);
}

/// Each gets some that another waits for, if they do not take turns.
pub(crate) fn requests_for_several_permits_do_not_wait_for_each_other<B: Backend>() {
    let database = Arc::new(B::new());
    let (in_use, semaphore) = (AtomicUsize::new(0), of_four());
    run_concurrently(&database, 6, |conn, thread| {
        for round in 0..3 {
            let permits = 2 + (thread + round) % 3;
            let at_once = u32::try_from(permits).expect("few");
            let work = |in_use: &AtomicUsize| {
                let before = in_use.fetch_add(permits, Ordering::SeqCst);
                assert!(before + permits <= 4, "{before} and {permits}");
                in_use.fetch_sub(permits, Ordering::SeqCst);
            };
            if round == 1 {
                conn.with_slots(&semaphore, at_once, LONG, |_| {
                    work(&in_use);
                    Ok::<_, Error>(())
                })
                .expect("in turn");
            } else {
                let slot = conn.acquire_slot(&semaphore, hour_of(at_once), LONG);
                let slot = slot.expect("in turn");
                work(&in_use);
                conn.release_slot(slot).expect("held");
            }
        }
    });
    assert_eq!(held::<B>(&mut database.connect()), 0);
}

/// Another request came before. The test delays its first statement, so that it becomes the first of the queue without a permit.
pub(crate) fn request_that_keeps_permits_does_not_wait_for_the_first_of_the_queue<B: Backend>() {
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    // The queue belongs to the process.
    let semaphore = Semaphore::new(fresh_name(), 4);
    let one = acquire::<B>(&mut conn, &semaphore);
    let (begins, begun) = channel();
    let (go_on, continued) = channel::<()>();
    let first = {
        let (mut conn, semaphore) = (database.connect(), semaphore.clone());
        let mut gate = Some((begins, continued));
        conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
            if let InstrumentationEvent::StartQuery { .. } = event
                && let Some((begins, continued)) = gate.take()
            {
                begins.send(()).expect("it waits");
                continued.recv().expect("the test goes on");
            }
        });
        spawn(move || {
            let slot = conn.acquire_slot(&semaphore, hour_of(4), LONG)?;
            conn.release_slot(slot)
        })
    };
    begun.recv_timeout(LONG).expect("a statement");
    let second = {
        let (locks, semaphore) = (LockPool::new(database.pool(2)), semaphore.clone());
        spawn(move || locks.with_slots(&semaphore, 4, LONG, |_| Ok::<_, Error>(())))
    };
    // Those that are free, and the turn.
    until(|| held::<B>(&mut conn) == 5);
    let fence = B::number(&mut conn, LAST_FENCE);
    go_on.send(()).expect("it waits");
    until(|| B::number(&mut conn, KEPT_LONGER) == 4);
    assert_eq!(B::number(&mut conn, LAST_FENCE), fence, "no other grant");
    conn.release_slot(one).expect("held");
    result_of(&second).expect("granted");
    result_of(&first).expect("granted");
    assert_eq!(held::<B>(&mut conn), 0);
}

pub(crate) fn request_that_ends_leaves_no_permit_held<B: Backend>() {
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    let renewer = renewer::<B>(&database, 2);
    let locks = LockPool::new(database.pool(2));
    let first = conn
        .acquire_slot(&of_four(), hour_of(2), Wait::No)
        .expect("free");
    let wait = Wait::AtMost(Duration::from_millis(300));
    let semaphore = of_four();
    let ends = |conn: &mut B::Conn, wait: Wait| {
        [
            conn.acquire_slot(&semaphore, hour_of(3), wait).map(drop),
            conn.with_slots(&semaphore, 3, wait, |_| Ok(())),
            renewer.acquire(&semaphore, hour_of(3), wait).map(drop),
            locks.with_slots(&semaphore, 3, wait, |_| Ok(())),
        ]
    };
    for ended in ends(&mut conn, wait) {
        let error = ended.expect_err("too few are free");
        assert!(error.is_timeout(), "{error:?}");
        assert_eq!(held::<B>(&mut conn), 2);
    }
    for ended in ends(&mut conn, Wait::No) {
        assert!(ended.expect_err("too few are free").is_unavailable());
    }
    assert!(
        renewer
            .try_acquire(&semaphore, hour_of(3))
            .expect("an answer")
            .is_none()
    );
    assert_eq!(held::<B>(&mut conn), 2);
    // A wait that is stopped while it keeps what is free.
    let stop = StopToken::new();
    let waiter = {
        let (locks, semaphore) = (locks.stopped_by(&stop), semaphore.clone());
        spawn(move || locks.with_slots(&semaphore, 3, LONG, |_| Ok::<_, Error>(())))
    };
    until(|| held::<B>(&mut conn) == 5);
    stop.stop();
    let stopped = result_of(&waiter).expect_err("stopped");
    assert!(matches!(stopped, Error::Stopped { .. }), "{stopped:?}");
    assert_eq!(held::<B>(&mut conn), 2);
    // Its request keeps them beyond their leases of 5 s, and gets them when the last one is released.
    let waiter = {
        let mut conn = database.connect();
        let semaphore = semaphore.clone();
        spawn(move || conn.acquire_slot(&semaphore, hour_of(3), LONG))
    };
    until(|| held::<B>(&mut conn) == 5);
    let fence = B::number(&mut conn, LAST_FENCE);
    until(|| B::number(&mut conn, KEPT_LONGER) == 3);
    assert_eq!(B::number(&mut conn, LAST_FENCE), fence, "no other grant");
    let mut parts = first.split();
    conn.release_slot(parts.remove(0)).expect("held");
    let slot = result_of(&waiter).expect("granted");
    assert_eq!(held::<B>(&mut conn), 4);
    conn.release_slot(slot).expect("held");
    conn.release_slot(parts.remove(0)).expect("held");
}

pub(crate) fn guard_of_several_permits_is_lost_as_a_whole<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let renewer = renewer::<B>(&database, 2);
    let lease = renewed().permits(3);
    let guard = guarded::<B>(&renewer, &of_four(), &lease);
    let longer = RENEWED_LEASE * 5 / 4;
    until(|| {
        guard.ensure_held().expect("held");
        let rows = conn.held_slots(&slots_of(of_four())).expect("rows");
        let lasts = |row: &diesel_locks::SlotInfo| (row.expires_at - row.acquired_at).to_std();
        let extended = rows
            .iter()
            .filter(|row| lasts(row).expect("later") > longer);
        extended.count() == 3
    });
    // A request to give up one of them is one to the guard.
    let last = conn.held_slots(&slots_of(of_four())).expect("rows").pop();
    conn.request_release(&last.expect("three")).expect("held");
    until(|| guard.release_requested());
    drop(guard);
    until(|| held::<B>(&mut conn) == 0);

    let guard = guarded::<B>(&renewer, &of_four(), &lease);
    let loss = loss_of(&guard);
    let last = guard.slot().clone().split().pop().expect("three");
    // In one transaction, so that the guard is not renewed in between.
    let others = B::in_transaction(&mut conn, |conn| {
        expire_lease::<B>(conn, &last);
        let first = conn.try_acquire_slot(&of_four(), one_hour())?;
        let second = conn.try_acquire_slot(&of_four(), one_hour())?;
        Ok([first, second].map(|slot| slot.expect("free")))
    });
    let others = others.expect("committed");
    loss.recv_timeout(LONG).expect("lost");
    assert!(guard.ensure_held().expect_err("lost").is_slot_lost());
    drop(guard);
    until(|| held::<B>(&mut conn) == 2);
    for slot in others {
        conn.release_slot(slot).expect("held by others");
    }
}

pub(crate) fn transaction_holds_several_permits_until_it_ends<B: Backend>() {
    let database = B::new();
    let (mut conn, mut other) = (database.connect(), database.connect());
    let semaphore = of_four();
    let done = conn.with_slots(&semaphore, 3, Wait::No, |conn| {
        B::count_up(conn, 0);
        if B::ONE_WRITER {
            return Ok(());
        }
        assert_eq!(other.try_acquire_slot(&semaphore, hour_of(2))?, None);
        // Also when the leases have ended by which it has acquired them.
        until(|| held::<B>(&mut other) == 0);
        assert_eq!(other.try_acquire_slot(&semaphore, hour_of(2))?, None);
        let last = other.try_acquire_slot(&semaphore, one_hour())?;
        other.release_slot(last.expect("the fourth")).map(drop)
    });
    done.expect("free");
    assert_eq!(held::<B>(&mut conn), 0);
    let failed = conn.with_slots(&semaphore, 4, Wait::No, |conn| {
        B::count_up(conn, 0);
        Err::<(), _>(diesel::result::Error::RollbackTransaction.into())
    });
    let failed: Error = failed.expect_err("rolled back");
    assert!(matches!(failed, Error::Database(_)), "{failed:?}");
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        conn.with_slots(&semaphore, 4, Wait::No, |conn| -> Result<(), Error> {
            B::count_up(conn, 0);
            panic!("in the closure");
        })
    }));
    assert!(panicked.is_err());
    assert_eq!((B::counter(&mut conn, 0), held::<B>(&mut conn)), (1, 0));
    conn.with_slots(&semaphore, 4, Wait::No, |_| Ok::<_, Error>(()))
        .expect("free again");
}

pub(crate) fn unusable_numbers_of_permits_are_refused<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let renewer = renewer::<B>(&database, 2);
    let locks = LockPool::new(database.pool(2));
    let many = Semaphore::new("many", MAX_PERMITS);
    let number = Semaphore::registered("number");
    for (semaphore, requested, most) in [
        (&of_four(), 0, 4),
        (&of_four(), 5, 4),
        (&many, MAX_PERMITS_AT_ONCE + 1, MAX_PERMITS_AT_ONCE),
        (&number, u32::MAX, MAX_PERMITS_AT_ONCE),
    ] {
        let lease = hour_of(requested);
        for refused in [
            conn.try_acquire_slot(semaphore, &lease).map(drop),
            conn.acquire_slot(semaphore, &lease, LONG).map(drop),
            conn.with_slots(semaphore, requested, LONG, |_| Ok(())),
            renewer.try_acquire(semaphore, &lease).map(drop),
            renewer.acquire(semaphore, &lease, LONG).map(drop),
            locks.with_slots(semaphore, requested, LONG, |_| Ok(())),
        ] {
            let error = refused.expect_err("unusable");
            let text = error.to_string();
            let named = text.contains(&format!("1 to {most} are allowed"));
            let typed = matches!(error, Error::InvalidPermitsAtOnce { requested: r, most: m, .. } if (r, m) == (requested, most));
            assert!(typed && named, "{text}");
        }
    }
    let error = conn.try_acquire_slot(&of_four(), hour_of(2).hold_at_least(HOUR));
    let error = error.expect_err("refused");
    assert!(matches!(error, Error::InvalidLease { .. }), "{error:?}");
    let refused = B::in_transaction(&mut conn, |conn| {
        for refused in [
            conn.try_acquire_slot(&of_four(), hour_of(2)).map(drop),
            conn.acquire_slot(&of_four(), hour_of(2), LONG).map(drop),
            conn.with_slots(&of_four(), 2, LONG, |_| Ok(())),
        ] {
            let error = refused.expect_err("in a transaction");
            let typed = matches!(error, Error::AlreadyInTransaction { .. });
            assert!(typed, "{error:?}");
        }
        B::count_up(conn, 0);
        Ok(())
    });
    refused.expect("the transaction stays usable");
    // A number in the database that is too small is waited for, and nobody waits for this request meanwhile.
    conn.set_permits("number", 2).expect("set");
    let wait = Duration::from_millis(300);
    let error = conn
        .acquire_slot(&number, hour_of(3), wait)
        .expect_err("two");
    assert!(error.is_timeout(), "{error:?}");
    let waiter = {
        let (mut conn, number) = (database.connect(), number.clone());
        spawn(move || conn.acquire_slot(&number, hour_of(3), LONG))
    };
    let two = [
        acquire::<B>(&mut conn, &number),
        acquire::<B>(&mut conn, &number),
    ];
    conn.set_permits("number", 5).expect("set");
    let slot = result_of(&waiter).expect("three of five");
    for slot in two.into_iter().chain([slot]) {
        conn.release_slot(slot).expect("held");
    }
    assert_eq!(held::<B>(&mut conn), 0);
}

/// The pause before each statement is the round trip of the connection. The attempt takes longer than that of a request whose time is
/// up may take (2 s).
pub(crate) fn permits_of_a_slow_connection_are_granted<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let semaphore = Semaphore::new("of 25", 25);
    conn.register_semaphores([&semaphore]).expect("register");
    conn.set_instrumentation(|event: InstrumentationEvent<'_>| {
        if let InstrumentationEvent::StartQuery { .. } = event {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let started = Instant::now();
    let slot = conn.try_acquire_slot(&semaphore, hour_of(25));
    let slot = slot.expect("an answer").expect("all are free");
    assert_eq!(slot.permits(), 25);
    assert!(started.elapsed() > Duration::from_secs(2), "it is too fast");
}
