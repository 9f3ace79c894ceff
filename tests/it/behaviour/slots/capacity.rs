//! Never more holders than permits, and no refusal while a slot is free.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use diesel_locks::limits::MAX_PERMITS;
use diesel_locks::prelude::*;
use diesel_locks::{InspectExt, ListOptions, Slot};

use super::{HOUR, acquire, expire_lease, is_full, one_hour, run_concurrently, slots_of};
use crate::support::Backend;

/// Counts holders in this process, beside the database. Each sends a statement while it holds: two who
/// should not hold at the same time would else hardly ever do.
struct Holders {
    permits: usize,
    now: AtomicUsize,
}

impl Holders {
    fn enter(&self) {
        let before = self.now.fetch_add(1, Ordering::SeqCst);
        assert!(before < self.permits, "{} holders", before + 1);
    }

    fn leave(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }

    /// Holds a leased slot for as long as a statement takes.
    fn hold<B: Backend>(&self, conn: &mut B::Conn, slot: &mut Slot) {
        self.enter();
        conn.renew_slot(slot, HOUR).expect("it is ours");
        self.leave();
    }
}

/// One of the ways to hold a slot and to end it.
fn cycle<B: Backend>(conn: &mut B::Conn, semaphore: &Semaphore, holders: &Holders, way: usize) {
    match way % 5 {
        0 | 1 => {
            if let Some(mut slot) = conn
                .try_acquire_slot(semaphore, one_hour())
                .expect("an answer")
            {
                holders.hold::<B>(conn, &mut slot);
                conn.release_slot(slot).expect("it is ours");
            }
        }
        2 => {
            if let Some(mut slot) = conn
                .try_acquire_slot(semaphore, one_hour())
                .expect("an answer")
            {
                holders.hold::<B>(conn, &mut slot);
                expire_lease::<B>(conn, &slot);
            }
        }
        3 => {
            let rolls_back = way.is_multiple_of(2);
            let slot = B::in_transaction(conn, |conn| {
                let slot = conn.try_acquire_slot(semaphore, one_hour())?;
                if slot.is_some() {
                    holders.enter();
                    B::counter(conn, 0);
                    if rolls_back {
                        holders.leave();
                    }
                }
                if rolls_back {
                    return Err(diesel::result::Error::RollbackTransaction.into());
                }
                Ok(slot)
            });
            if let Ok(Some(mut slot)) = slot {
                conn.renew_slot(&mut slot, HOUR).expect("it is ours");
                holders.leave();
                conn.release_slot(slot).expect("it is ours");
            }
        }
        _ => {
            conn.try_with_slot(semaphore, |conn| {
                holders.enter();
                B::counter(conn, 0);
                holders.leave();
                Ok::<_, diesel_locks::Error>(())
            })
            .expect("an answer");
        }
    }
}

pub(crate) fn sixty_four_connections_never_hold_more_than_the_permits<B: Backend>() {
    let database = Arc::new(B::new());
    let semaphore = Semaphore::new("hot", 7);
    database
        .connect()
        .register_semaphores([&semaphore])
        .expect("register");
    let holders = Holders {
        permits: 7,
        now: AtomicUsize::new(0),
    };
    run_concurrently(&database, 64, |conn, thread| {
        for n in 0..6 {
            cycle::<B>(conn, &semaphore, &holders, thread * 7 + n * 3);
        }
    });
    // And none is lost.
    let mut conn = database.connect();
    let mut numbers: Vec<_> = (0..7)
        .map(|_| acquire::<B>(&mut conn, &semaphore).number())
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7]);
    assert!(is_full::<B>(&mut conn, &semaphore));
}

/// Seven others can't hold eight slots: no refusal is right.
pub(crate) fn eight_connections_always_get_one_of_eight_slots<B: Backend>() {
    let database = Arc::new(B::new());
    let semaphore = Semaphore::new("eight", 8);
    run_concurrently(&database, 8, |conn, thread| {
        for n in 0..20 {
            if n % 4 == 3 && !B::ONE_WRITER {
                let got = conn
                    .try_with_slot(&semaphore, |_| Ok::<_, diesel_locks::Error>(()))
                    .expect("an answer");
                assert_eq!(got, Some(()), "connection {thread}, cycle {n}");
                continue;
            }
            let slot = acquire::<B>(conn, &semaphore);
            conn.release_slot(slot).expect("it is ours");
        }
    });
}

pub(crate) fn a_full_semaphore_refuses_without_a_write<B: Backend>() {
    let database = B::new();
    let semaphore = Semaphore::new("three", 3);
    let mut conn = database.connect();
    for _ in 0..3 {
        let _ = acquire::<B>(&mut conn, &semaphore);
    }
    let mut other = database.connect();
    B::in_transaction(&mut other, |other| {
        let before = B::writes(other);
        for _ in 0..10 {
            assert!(is_full::<B>(other, &semaphore));
        }
        assert_eq!(B::writes(other), before);
        // The witness does see a write.
        B::count_up(other, 0);
        assert!(B::writes(other) > before);
        Ok(())
    })
    .expect("commit");
}

pub(crate) fn many_permits_are_all_granted<B: Backend>() {
    let database = B::new();
    let semaphore = Semaphore::new("many", 2500);
    let mut conn = database.connect();
    conn.register_semaphores([&semaphore]).expect("register");
    B::sql(
        &mut conn,
        "UPDATE diesel_locks_slots SET expires_us = 9000000000000000 WHERE number <> 1 AND number <> 2500",
    );
    let mut numbers = [
        acquire::<B>(&mut conn, &semaphore).number(),
        acquire::<B>(&mut conn, &semaphore).number(),
    ];
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2500]);
    assert!(is_full::<B>(&mut conn, &semaphore));
    let mut listed = |options| conn.held_slots(&options).expect("rows").len();
    assert_eq!(listed(slots_of(&semaphore)), 2500);
    assert_eq!(listed(slots_of(&semaphore).limit(2499)), 2499);
    assert_eq!(listed(ListOptions::new()), 100);
}

/// Their rows are made when the semaphore is used for the first time.
pub(crate) fn maximum_permits_are_all_granted<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let semaphore = Semaphore::new("most", MAX_PERMITS);
    let slot = acquire::<B>(&mut conn, &semaphore);
    let slots = B::number(&mut conn, "SELECT count(*) FROM diesel_locks_slots");
    assert_eq!(slots, i64::from(MAX_PERMITS));
    conn.release_slot(slot).expect("it is ours");
    B::sql(
        &mut conn,
        &format!(
            "UPDATE diesel_locks_slots SET expires_us = 9000000000000000 WHERE number < {MAX_PERMITS}"
        ),
    );
    let last = acquire::<B>(&mut conn, &semaphore);
    assert_eq!(last.number(), MAX_PERMITS);
    assert!(is_full::<B>(&mut conn, &semaphore));
    let got = conn
        .try_with_slot(&semaphore, |_| Ok::<_, diesel_locks::Error>(()))
        .expect("an answer");
    assert_eq!(got, None);
    conn.release_slot(last).expect("it is ours");
    let again = acquire::<B>(&mut conn, &semaphore);
    assert_eq!(again.number(), MAX_PERMITS);
    // One permit less, and nearly all free: more than a statement can name.
    B::sql(&mut conn, "UPDATE diesel_locks_slots SET expires_us = 0");
    let fewer = Semaphore::new("most", MAX_PERMITS - 1);
    let lowest = acquire::<B>(&mut conn, &fewer);
    assert_eq!(lowest.number(), 1);
}
