//! Rows that the first use creates, and that are purged when they are unused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use diesel::Connection;
use diesel::connection::InstrumentationEvent;
use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, ListOptions};

use super::{acquire, one_hour, run_concurrently, slots_of};
use crate::behaviour::exclusion::begin_for_locks;
use crate::support::Backend;
use crate::support::threads::{result_of, roll_back, spawn};

fn slots<B: Backend>(conn: &mut B::Conn) -> i64 {
    B::number(conn, "SELECT count(*) FROM diesel_locks_slots")
}

/// While another holds slots of another semaphore in a long transaction.
pub(crate) fn thirty_two_connections_use_a_new_semaphore<B: Backend>() {
    let database = Arc::new(B::new());
    let mut long = database.connect();
    long.register_semaphores([Semaphore::new("long", 3)])
        .expect("register");
    if !B::ONE_WRITER {
        begin_for_locks::<B>(&mut long);
        let _ = acquire::<B>(&mut long, &Semaphore::new("long", 3));
    }
    let new = Semaphore::new("new", 40);
    run_concurrently(&database, 32, |conn, thread| {
        let slot = acquire::<B>(conn, &new);
        assert!((1..=40).contains(&slot.number()));
        if thread % 4 == 0 {
            conn.register_semaphores([&new]).expect("register");
        }
    });
    let mut conn = database.connect();
    assert_eq!(conn.held_slots(&slots_of(&new)).expect("rows").len(), 32);
    assert_eq!(slots::<B>(&mut conn), 43);
}

pub(crate) fn register_takes_all_variants_of_an_enum<B: Backend>() {
    #[derive(Clone, Copy)]
    enum Timer {
        Business,
        BlackOps,
    }
    impl AsRef<str> for Timer {
        fn as_ref(&self) -> &str {
            match self {
                Self::Business => "BUSINESS",
                Self::BlackOps => "BLACKOPS",
            }
        }
    }
    let database = B::new();
    let mut conn = database.connect();
    let all = [Timer::Business, Timer::BlackOps].map(|timer| Semaphore::new(timer, 1));
    for _ in 0..2 {
        conn.register_semaphores(&all).expect("register");
    }
    assert_eq!(slots::<B>(&mut conn), 2);
    let slot = B::in_transaction(&mut conn, |conn| {
        Ok(acquire::<B>(conn, &Semaphore::new(Timer::BlackOps, 1)))
    })
    .expect("commit");
    assert_eq!(slot.semaphore(), "BLACKOPS");
    assert_eq!(
        conn.held_slots(&slots_of(Timer::BlackOps))
            .expect("rows")
            .len(),
        1
    );
    assert_eq!(
        conn.held_slots(&slots_of(Timer::Business))
            .expect("rows")
            .len(),
        0
    );
}

pub(crate) fn purge_removes_what_is_free_and_old<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let used = Semaphore::new("used", 5);
    let unused = Semaphore::new("unused", 1100);
    let registered = Semaphore::new("registered", 4);
    let slot = acquire::<B>(&mut conn, &used);
    let gone = acquire::<B>(&mut conn, &unused);
    conn.release_slot(gone).expect("ours");
    conn.register_semaphores([Semaphore::new("registered", 9)])
        .expect("register");
    conn.register_semaphores([&registered]).expect("fewer now");
    conn.set_permits("paused", 0).expect("set");
    assert_eq!(slots::<B>(&mut conn), 5 + 1100 + 9 + 1);

    let one_hour = Duration::from_secs(3600);
    assert_eq!(
        conn.purge_slots(one_hour).expect("purge"),
        0,
        "nothing is old"
    );
    let purged = conn.purge_slots(Duration::ZERO).expect("purge");
    let above = 5 - usize::try_from(slot.number()).expect("small");
    assert_eq!(purged, 1100 + 5 + above);
    assert_eq!(conn.purge_slots(Duration::ZERO).expect("purge"), 0);
    let held = conn.held_slots(&slots_of(&used)).expect("rows");
    assert_eq!(held[0].token, Some(slot.token()));
    let paused = conn.semaphores(&ListOptions::new().name("paused"));
    let paused = paused.expect("rows").pop().expect("still paused");
    assert_eq!(paused.permits, Some(0));

    // What is gone comes back.
    for _ in 0..4 {
        let _ = acquire::<B>(&mut conn, &used);
    }
    let _ = acquire::<B>(&mut conn, &unused);
    let error = conn
        .purge_slots(Duration::MAX)
        .expect_err("longer than any lease");
    assert!(error.to_string().contains("longest lease"), "{error}");
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

pub(crate) fn purge_works_while_others_acquire<B: Backend>() {
    let database = Arc::new(B::new());
    let names = ["a", "b", "c"].map(|name| Semaphore::new(name, 4));
    let stop = AtomicBool::new(false);
    let purged = std::thread::scope(|scope| {
        // Also when an assertion fails.
        let stopping = OnDrop(|| stop.store(true, Ordering::SeqCst));
        let purger = scope.spawn(|| {
            let mut conn = database.connect();
            if B::ONE_WRITER {
                B::sql(&mut conn, "PRAGMA busy_timeout = 60000");
            }
            let mut purged = 0;
            while !stop.load(Ordering::SeqCst) {
                purged += conn.purge_slots(Duration::ZERO).expect("no deadlock");
                // SQLite has no queue of writers: one that never pauses starves the others.
                std::thread::sleep(Duration::from_millis(2));
            }
            purged
        });
        run_concurrently(&database, 4, |conn, thread| {
            for n in 0..30 {
                // Four users of four slots: there is always one.
                let slot = acquire::<B>(conn, &names[(thread + n) % 3]);
                conn.release_slot(slot).expect("ours");
            }
        });
        drop(stopping);
        purger.join().expect("no error")
    });
    assert!(purged > 0);
    let mut conn = database.connect();
    conn.purge_slots(Duration::ZERO).expect("purge");
    assert_eq!(slots::<B>(&mut conn), 0);
}

/// Whose slots stand next to those that are removed.
pub(crate) fn purge_waits_for_no_open_transaction<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut long = database.connect();
    let all = ["a", "b", "c"].map(|name| Semaphore::new(name, 3));
    for semaphore in &all {
        let slot = acquire::<B>(&mut conn, semaphore);
        conn.release_slot(slot).expect("ours");
    }
    begin_for_locks::<B>(&mut long);
    for _ in 0..3 {
        let _ = acquire::<B>(&mut long, &all[1]);
    }
    // Shorter than any limit of the test.
    B::set_short_lock_timeout(&mut conn);
    let purged = conn.purge_slots(Duration::ZERO);
    if B::ONE_WRITER {
        // With one writer the purge waits for the other writer, and times out.
        let error = purged.expect_err("somebody writes");
        assert!(error.is_timeout(), "{error:?}");
        roll_back(&mut long);
        conn.purge_slots(Duration::ZERO).expect("nobody writes");
        assert_eq!(slots::<B>(&mut conn), 0);
        return;
    }
    assert_eq!(purged.expect("nobody waits"), 6);
    roll_back(&mut long);
    assert_eq!(slots::<B>(&mut conn), 3);
}

/// A session that stalls while it adds or removes slots delays no request beyond its limit.
pub(crate) fn acquire_timeout_holds_while_a_resize_is_stalled<B: Backend>() {
    let database = Arc::new(B::new());
    let mut still = database.connect();
    begin_for_locks::<B>(&mut still);
    B::sql(&mut still, "UPDATE diesel_locks_fences SET fence = fence");
    let new = Semaphore::new("new", 2);
    let attempt = |wait: Option<Wait>, holds: bool| {
        let (database, new) = (Arc::clone(&database), new.clone());
        spawn(move || {
            let mut conn = database.connect();
            let nothing = |_: &mut B::Conn| Ok::<_, Error>(());
            match wait {
                None if holds => conn.try_with_slot(&new, nothing).map(|done| done.is_some()),
                Some(wait) if holds => conn.with_slot(&new, wait, nothing).map(|()| true),
                None => conn
                    .try_acquire_slot(&new, one_hour())
                    .map(|slot| slot.is_some()),
                Some(wait) => conn.acquire_slot(&new, one_hour(), wait).map(|_| true),
            }
        })
    };
    for holds in [false, true] {
        assert!(!result_of(&attempt(None, holds)).expect("an answer"));
        let limit = Wait::AtMost(Duration::from_millis(100));
        let late = result_of(&attempt(Some(limit), holds)).expect_err("in time");
        assert!(matches!(late, Error::LockTimeout { .. }), "{late:?}");
    }
    let waiters = [false, true].map(|holds| attempt(Some(Wait::Forever), holds));
    roll_back(&mut still);
    for waiter in &waiters {
        assert!(result_of(waiter).expect("in the end"));
    }
}

/// Another session registers the second semaphore while the first one is purged.
pub(crate) fn purge_keeps_what_is_registered_meanwhile<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut other = database.connect();
    for name in ["a", "b"] {
        let _ = acquire::<B>(&mut conn, &Semaphore::new(name, 1));
    }
    conn.register_semaphores([Semaphore::new("b", 1)])
        .expect("register");
    let mut begins = true;
    conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
        if let InstrumentationEvent::StartQuery { query, .. } = event
            && query.to_string().contains("diesel_locks_fences")
            && std::mem::take(&mut begins)
        {
            other
                .register_semaphores([Semaphore::new("b", 5)])
                .expect("register");
        }
    });
    assert_eq!(conn.purge_slots(Duration::ZERO).expect("purge"), 0);
    assert_eq!(slots::<B>(&mut conn), 1 + 5);
}
