//! Permits that change, and numbers and names that can't be.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use diesel_locks::error::InvalidName;
use diesel_locks::limits::MAX_PERMITS;
use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, Slot};

use super::{acquire, expire_lease, is_full, one_hour, run_concurrently, slots_of};
use crate::support::Backend;

fn of(permits: u32) -> Semaphore {
    Semaphore::new("changing", permits)
}

pub(crate) fn more_permits_are_more_slots<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    for _ in 0..2 {
        let _ = acquire::<B>(&mut conn, &of(2));
    }
    assert!(is_full::<B>(&mut conn, &of(2)));
    for _ in 0..3 {
        let _ = acquire::<B>(&mut conn, &of(5));
    }
    assert!(is_full::<B>(&mut conn, &of(5)));
    assert!(is_full::<B>(&mut conn, &of(2)));
}

/// Holders keep their slots, and no slot is granted, until fewer than the new number are held.
pub(crate) fn fewer_permits_revoke_no_slot<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut slots: Vec<_> = (0..5).map(|_| acquire::<B>(&mut conn, &of(5))).collect();
    slots.sort_by_key(Slot::number);
    // From the lowest on, so that it is those above the new number that stay.
    for (left, slot) in (0..5).rev().zip(&slots) {
        assert_eq!(
            is_full::<B>(&mut conn, &of(2)),
            left > 0,
            "{} held",
            left + 1
        );
        conn.release_slot(slot).expect("ours");
        if left < 2 {
            let one_more = acquire::<B>(&mut conn, &of(2));
            assert!(one_more.number() <= 2);
            if left == 1 {
                assert!(is_full::<B>(&mut conn, &of(2)), "one above and one below");
            }
            conn.release_slot(one_more).expect("ours");
        }
    }
}

/// A slot above the new number that a transaction holds counts too.
pub(crate) fn fewer_permits_count_holding_transactions<B: Backend>() {
    if B::ONE_WRITER {
        // One transaction at a time holds anything.
        return;
    }
    let database = B::new();
    let mut conn = database.connect();
    let mut other = database.connect();
    let first = acquire::<B>(&mut conn, &of(2));
    let second = acquire::<B>(&mut conn, &of(2));
    let (low, high) = if first.number() == 1 {
        (first, second)
    } else {
        (second, first)
    };
    conn.release_slot(high).expect("ours");
    conn.try_with_slot(&of(2), |_| {
        assert!(is_full::<B>(&mut other, &of(1)));
        other.release_slot(&low)?;
        assert!(
            is_full::<B>(&mut other, &of(1)),
            "the transaction holds slot 2"
        );
        let held = other.try_with_slot(&of(1), |_| Ok::<_, Error>(()))?;
        assert_eq!(held, None);
        Ok::<_, Error>(())
    })
    .expect("an answer")
    .expect("free");
    assert!(!is_full::<B>(&mut other, &of(1)));
}

/// So does one whose lease had ended and is being refreshed by a transaction.
pub(crate) fn fewer_permits_count_renewing_transactions<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut other = database.connect();
    let mut slots = [
        acquire::<B>(&mut conn, &of(2)),
        acquire::<B>(&mut conn, &of(2)),
    ];
    slots.sort_by_key(Slot::number);
    let [low, mut high] = slots;
    conn.release_slot(low).expect("ours");
    expire_lease::<B>(&mut conn, &high);
    B::in_transaction(&mut conn, |conn| {
        conn.renew_slot(&mut high, super::HOUR)?;
        let tried = other.try_acquire_slot(&of(1), one_hour());
        // There would be two holders after the commit. With one writer, the request waits for the transaction and times
        // out.
        if B::ONE_WRITER {
            let error = tried.expect_err("somebody writes");
            assert!(error.is_timeout(), "{error:?}");
        } else {
            assert_eq!(tried.expect("an answer"), None);
        }
        Ok(())
    })
    .expect("commit");
    assert!(is_full::<B>(&mut other, &of(1)));
    other.release_slot(high).expect("ours");
    assert!(!is_full::<B>(&mut other, &of(1)));
}

pub(crate) fn two_versions_at_once_never_hold_more_than_the_larger_number<B: Backend>() {
    let database = Arc::new(B::new());
    database
        .connect()
        .register_semaphores([of(5)])
        .expect("register");
    let holders = AtomicUsize::new(0);
    run_concurrently(&database, 16, |conn, thread| {
        let version = of(if thread % 2 == 0 { 5 } else { 2 });
        for _ in 0..8 {
            if let Some(slot) = conn
                .try_acquire_slot(&version, one_hour())
                .expect("an answer")
            {
                let before = holders.fetch_add(1, Ordering::SeqCst);
                assert!(before < 5, "{} holders", before + 1);
                holders.fetch_sub(1, Ordering::SeqCst);
                conn.release_slot(slot).expect("ours");
            }
        }
    });
}

/// When the larger number is gone, the smaller one holds, also for those who race.
pub(crate) fn lowered_permits_are_never_exceeded<B: Backend>() {
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    let mut slots: Vec<_> = (0..6).map(|_| acquire::<B>(&mut conn, &of(6))).collect();
    slots.sort_by_key(Slot::number);
    // One above the new number stays; the others, below and above, go.
    let stays = slots.pop().expect("six");
    for slot in slots {
        conn.release_slot(slot).expect("ours");
    }
    let holders = AtomicUsize::new(1);
    run_concurrently(&database, 16, |conn, _| {
        for _ in 0..8 {
            if let Some(slot) = conn
                .try_acquire_slot(&of(3), one_hour())
                .expect("an answer")
            {
                let before = holders.fetch_add(1, Ordering::SeqCst);
                assert!(before < 3, "{} holders", before + 1);
                holders.fetch_sub(1, Ordering::SeqCst);
                conn.release_slot(slot).expect("ours");
            }
        }
    });
    conn.release_slot(stays).expect("ours");
    for _ in 0..3 {
        let _ = acquire::<B>(&mut conn, &of(3));
    }
    assert!(is_full::<B>(&mut conn, &of(3)));
}

/// Slots that are free above the new number are locked now and then by others, who look for those that may be granted.
pub(crate) fn lowered_permits_refuse_nothing_while_a_slot_is_free<B: Backend>() {
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    conn.register_semaphores([&of(24)]).expect("registered");
    // As many as there are permits: the others leave one slot free.
    run_concurrently(&database, 16, |conn, _| {
        for _ in 0..20 {
            let slot = acquire::<B>(conn, &of(16));
            conn.release_slot(slot).expect("ours");
        }
    });
}

pub(crate) fn unusable_numbers_and_names_are_refused<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    for permits in [0, MAX_PERMITS + 1, u32::MAX] {
        let semaphore = of(permits);
        for result in [
            conn.try_acquire_slot(&semaphore, one_hour()).map(drop),
            conn.try_with_slot(&semaphore, |_| Ok(())).map(drop),
            conn.register_semaphores([&semaphore]),
        ] {
            let error = result.expect_err("out of range");
            assert!(
                matches!(error, Error::InvalidPermits { permits: p, .. } if p == permits),
                "{error:?}"
            );
        }
    }
    let too_long = "x".repeat(256);
    for name in ["", "a\0b", &too_long] {
        let semaphore = Semaphore::new(name, 1);
        for result in [
            conn.try_acquire_slot(&semaphore, one_hour()).map(drop),
            conn.held_slots(&slots_of(name)).map(drop),
            conn.force_release_all(name).map(drop),
        ] {
            let error = result.expect_err("unusable");
            assert!(matches!(error, Error::InvalidName(_)), "{error:?}");
        }
        // Such a slot can't have been granted. The transaction stays usable.
        let mut forged = Slot::from_parts(name, 1, uuid::Uuid::nil(), 0);
        B::in_transaction(&mut conn, |conn| {
            for result in [
                conn.renew_slot(&mut forged, super::HOUR).map(drop),
                conn.release_slot(&forged).map(drop),
                conn.pin_slot(&forged),
            ] {
                let error = result.expect_err("unusable");
                assert!(matches!(error, Error::InvalidName(_)), "{error:?}");
            }
            B::count_up(conn, 0);
            Ok(())
        })
        .expect("commit");
    }
    for holder in ["a\0b", &too_long] {
        let error = conn
            .try_acquire_slot(&of(1), one_hour().holder(holder))
            .expect_err("unusable");
        assert!(
            matches!(
                error,
                Error::InvalidName(InvalidName::Nul { .. } | InvalidName::TooLong { .. })
            ),
            "{error:?}"
        );
    }
    assert_eq!(
        B::number(&mut conn, "SELECT count(*) FROM diesel_locks_slots"),
        0
    );
}

pub(crate) fn names_are_compared_as_bytes_and_kept_whole<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let longest = "🔒".repeat(255);
    let almost = format!("{}y", "🔒".repeat(254));
    let names = [
        "a",
        "A",
        "á",
        "a ",
        "a\u{301}",
        "'; DROP TABLE diesel_locks_slots; --",
        "%",
        &longest,
        &almost,
    ];
    for name in names {
        let semaphore = Semaphore::new(name, 1);
        let slot = conn
            .try_acquire_slot(&semaphore, one_hour().holder(name))
            .expect("an answer")
            .unwrap_or_else(|| panic!("{name:?} is another semaphore"));
        let held = conn.held_slots(&slots_of(name)).expect("rows");
        assert_eq!(held.len(), 1);
        assert_eq!(held[0].holder.as_deref(), Some(name));
        assert_eq!(held[0].token, Some(slot.token()));
    }
    for name in names {
        assert_eq!(conn.force_release_all(name).expect("a count"), 1);
    }
}

/// Though the only slot that there is is locked by a transaction.
pub(crate) fn more_permits_are_more_slots_while_a_transaction_holds_one<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut other = database.connect();
    conn.try_with_slot(&of(1), |_| {
        if !B::ONE_WRITER {
            let second = acquire::<B>(&mut other, &of(2));
            assert_eq!(second.number(), 2);
            assert!(is_full::<B>(&mut other, &of(2)));
            let third = other.try_with_slot(&of(3), |_| Ok::<_, Error>(()))?;
            assert_eq!(third, Some(()));
        }
        Ok::<_, Error>(())
    })
    .expect("an answer")
    .expect("free");
}
