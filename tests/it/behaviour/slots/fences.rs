//! Fences, and a writer that was paused past its lease.

use std::collections::HashSet;
use std::sync::Arc;

use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt};

use super::{acquire, expire_lease, is_full, run_concurrently, single_slot, slots_of};
use crate::support::Backend;

/// The year 2090, in the unit of fences.
const FUTURE: i64 = 3_786_912_000_000_000 / 64;

pub(crate) fn fences_grow_and_never_repeat<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let three = Semaphore::new("three", 3);
    let mut seen = HashSet::new();
    let mut last_of = [0; 4];
    for round in 0..10 {
        let slots: Vec<_> = (0..3).map(|_| acquire::<B>(&mut conn, &three)).collect();
        for slot in slots {
            assert!(seen.insert(slot.fence()), "twice: {}", slot.fence());
            let last = &mut last_of[slot.number() as usize];
            assert!(slot.fence() > *last, "round {round}");
            *last = slot.fence();
            conn.release_slot(slot).expect("ours");
        }
        if round % 3 == 0 {
            conn.force_release_all(&three).expect("a count");
            let purged = conn.purge_slots(std::time::Duration::ZERO).expect("purge");
            assert_eq!(purged, 3);
        }
    }
}

/// The database's clock jumps backwards while there are no rows.
pub(crate) fn fences_survive_purge_and_a_clock_that_jumps_backwards<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let slot = acquire::<B>(&mut conn, &single_slot());
    conn.release_slot(&slot).expect("ours");
    let fence = (FUTURE << 17) | 1;
    B::sql(
        &mut conn,
        &format!("UPDATE diesel_locks_slots SET fence = {fence}"),
    );
    let purged = conn.purge_slots(std::time::Duration::ZERO).expect("purge");
    assert_eq!(purged, 1);
    let slot = acquire::<B>(&mut conn, &single_slot());
    assert_eq!(slot.fence(), ((FUTURE + 1) << 17) | 1);
    let other = acquire::<B>(&mut conn, &Semaphore::new("another", 1));
    assert!(other.fence() > fence, "new rows begin above");
}

/// Makes the row look as if the clock had jumped backwards after the grant of the slot.
fn grant_at<B: Backend>(conn: &mut B::Conn, unit: i64, semaphore: &Semaphore, number: u32) -> i64 {
    let fence = unit << 17 | i64::from(number);
    let name = semaphore.name();
    B::sql(
        conn,
        &format!(
            "UPDATE diesel_locks_slots SET fence = {fence} WHERE name = '{name}' AND number = {number}"
        ),
    );
    if B::ONE_WRITER {
        // The last fence of all is kept there.
        B::sql(
            conn,
            &format!("UPDATE diesel_locks_fences SET fence = {fence}"),
        );
    }
    fence
}

pub(crate) fn fences_grow_between_slots_after_the_clock_was_set_back<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    for permits in [2, 8, 100, 101, 1100] {
        let semaphore = Semaphore::new(format!("of-{permits}"), permits);
        let first = acquire::<B>(&mut conn, &semaphore);
        for (unit, number) in [(FUTURE, first.number()), (FUTURE + 100, permits)] {
            let before = grant_at::<B>(&mut conn, unit, &semaphore, number);
            let mut last = before;
            for _ in 0..2 {
                let slot = if permits > 2 {
                    acquire::<B>(&mut conn, &semaphore)
                } else {
                    B::in_transaction(&mut conn, |conn| Ok(acquire::<B>(conn, &semaphore)))
                        .expect("commit")
                };
                assert!(slot.fence() > last, "slot {number} of {permits}");
                last = slot.fence();
                conn.release_slot(slot).expect("ours");
            }
            // What comes now is not because of this one.
            if !B::ONE_WRITER {
                B::sql(&mut conn, "UPDATE diesel_locks_slots SET fence = number");
            }
        }
    }
}

pub(crate) fn fences_grow_over_a_slot_above_the_permits<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let five = Semaphore::new("changing", 5);
    let two = Semaphore::new("changing", 2);
    conn.register_semaphores([&five]).expect("register");
    let future = grant_at::<B>(&mut conn, FUTURE, &two, 5);
    let slot = acquire::<B>(&mut conn, &two);
    assert!(slot.fence() > future);
    let future = grant_at::<B>(&mut conn, FUTURE + 100, &two, 4);
    B::in_transaction(&mut conn, |conn| {
        assert!(acquire::<B>(conn, &two).fence() > future);
        Ok(())
    })
    .expect("commit");
}

pub(crate) fn fences_grow_over_a_slot_that_was_purged<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let [five, two] = [5, 2].map(|permits| Semaphore::new("changing", permits));
    conn.register_semaphores([&five]).expect("register");
    conn.register_semaphores([&two]).expect("register");
    let future = grant_at::<B>(&mut conn, FUTURE, &two, 5);
    let purged = conn.purge_slots(std::time::Duration::ZERO).expect("purge");
    assert_eq!(purged, 3);
    assert!(acquire::<B>(&mut conn, &two).fence() > future);
}

/// As a test suite that empties all tables leaves it.
pub(crate) fn missing_fence_row_is_restored<B: Backend>() {
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    let kept = Semaphore::new("kept", 3);
    let first = acquire::<B>(&mut conn, &kept);
    conn.release_slot(&first).expect("ours");
    let future = grant_at::<B>(&mut conn, FUTURE, &kept, 3);
    let empty = |conn: &mut B::Conn| B::sql(conn, "DELETE FROM diesel_locks_fences");

    // Fences that are known are not forgotten.
    empty(&mut conn);
    let new = acquire::<B>(&mut conn, &Semaphore::new("new", 2));
    assert!(new.fence() > future);
    empty(&mut conn);
    conn.register_semaphores([Semaphore::new("kept", 1)])
        .expect("register");
    empty(&mut conn);
    conn.purge_slots(std::time::Duration::ZERO).expect("purge");
    assert!(acquire::<B>(&mut conn, &Semaphore::new("kept", 1)).fence() > future);
    empty(&mut conn);
    let raised = conn.raise_fences(std::time::Duration::ZERO).expect("raise");
    assert!(raised > future);

    // All at once, and all tables.
    empty(&mut conn);
    B::sql(&mut conn, "DELETE FROM diesel_locks_slots");
    B::sql(&mut conn, "DELETE FROM diesel_locks_semaphores");
    run_concurrently(&database, 8, |conn, thread| match thread % 4 {
        0 => {
            conn.register_semaphores([Semaphore::new("registered", 2)])
                .expect("register");
        }
        1 => {
            conn.purge_slots(std::time::Duration::ZERO).expect("purge");
        }
        2 => {
            conn.raise_fences(std::time::Duration::ZERO).expect("raise");
        }
        _ => {
            let _ = acquire::<B>(conn, &Semaphore::new("used", 8));
        }
    });
    assert_eq!(
        B::number(&mut conn, "SELECT count(*) FROM diesel_locks_fences"),
        1
    );
}

pub(crate) fn raised_fences_are_larger_than_lost_ones<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let three = Semaphore::new("three", 3);
    let held = acquire::<B>(&mut conn, &three);
    let one_hour = std::time::Duration::from_secs(3600);
    // Of a grant that was lost: its clock was 59 minutes ahead.
    let now = B::now_us(&mut conn);
    let lost = (((now + 59 * 60 * 1_000_000) / 64) << 17) | 2;
    let raised = conn.raise_fences(one_hour).expect("raise");
    assert!(raised > lost);
    let next = acquire::<B>(&mut conn, &three);
    assert!(next.fence() > raised);
    let in_transaction = B::in_transaction(&mut conn, |conn| Ok(acquire::<B>(conn, &three)));
    assert!(in_transaction.expect("commit").fence() > next.fence());
    let new = acquire::<B>(&mut conn, &Semaphore::new("new", 101));
    assert!(new.fence() > raised);
    let again = conn.raise_fences(one_hour).expect("raise");
    assert!(again - raised >= (3600 * 1_000_000 / 64) << 17);
    let shown = conn.held_slots(&slots_of(&three)).expect("rows");
    assert!(shown.iter().any(|slot| slot.fence == held.fence()));
    B::in_transaction(&mut conn, |conn| conn.pin_slot(&held)).expect("still ours");

    let too_far = conn.raise_fences(std::time::Duration::MAX);
    assert!(
        matches!(too_far, Err(Error::FencesTooLarge { .. })),
        "{too_far:?}"
    );
    let inside = B::in_transaction(&mut conn, |conn| conn.raise_fences(one_hour));
    assert!(
        matches!(inside, Err(Error::AlreadyInTransaction { .. })),
        "{inside:?}"
    );
}

/// Writes only if no later holder has written.
fn write<B: Backend>(conn: &mut B::Conn, fence: i64) -> bool {
    let before = B::number(conn, "SELECT n FROM counters WHERE id = 0");
    B::sql(
        conn,
        &format!("UPDATE counters SET n = {fence} WHERE id = 0 AND n < {fence}"),
    );
    B::number(conn, "SELECT n FROM counters WHERE id = 0") != before
}

pub(crate) fn stale_writer_is_refused_by_its_fence<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    // Of several slots too: the paused holder's may not be the one that is granted next.
    for permits in [1, 3] {
        let semaphore = Semaphore::new(format!("writers-{permits}"), permits);
        let paused = acquire::<B>(&mut conn, &semaphore);
        expire_lease::<B>(&mut conn, &paused);
        let next = acquire::<B>(&mut conn, &semaphore);
        assert!(write::<B>(&mut conn, next.fence()));
        assert!(!write::<B>(&mut conn, paused.fence()), "{permits} permits");
    }
}

pub(crate) fn a_stale_writer_is_stopped_by_pin_slot<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut other = database.connect();
    let paused = acquire::<B>(&mut conn, &single_slot());
    let error = conn.pin_slot(&paused).expect_err("no transaction");
    assert!(matches!(error, Error::NotInTransaction { .. }), "{error:?}");

    // Expired, and not granted again: ours as long as the transaction lasts.
    expire_lease::<B>(&mut conn, &paused);
    B::in_transaction(&mut conn, |conn| {
        conn.pin_slot(&paused)?;
        if !B::ONE_WRITER {
            assert!(is_full::<B>(&mut other, &single_slot()));
        }
        B::count_up(conn, 1);
        Ok(())
    })
    .expect("still ours");

    let next = acquire::<B>(&mut other, &single_slot());
    let written = B::in_transaction(&mut conn, |conn| {
        B::count_up(conn, 1);
        conn.pin_slot(&paused)
    });
    assert!(written.expect_err("another's").is_slot_lost());
    assert_eq!(B::counter(&mut conn, 1), 1, "rolled back");
    B::in_transaction(&mut conn, |conn| conn.pin_slot(&next)).expect("the new holder's");
}

/// Nor does a holder come back after a transaction has held its slot.
pub(crate) fn expired_lease_is_lost_when_a_transaction_holds_the_slot<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut other = database.connect();
    let mut paused = acquire::<B>(&mut conn, &single_slot());
    expire_lease::<B>(&mut conn, &paused);
    let rolled_back = other.try_with_slot(&single_slot(), |_| {
        Err::<(), _>(Error::from(diesel::result::Error::RollbackTransaction))
    });
    assert!(rolled_back.is_err());
    B::in_transaction(&mut conn, |conn| conn.pin_slot(&paused)).expect("undone: still ours");
    let held = other
        .try_with_slot(&single_slot(), |conn| {
            B::count_up(conn, 1);
            Ok::<_, Error>(())
        })
        .expect("an answer");
    assert_eq!(held, Some(()));
    let pinned = B::in_transaction(&mut conn, |conn| conn.pin_slot(&paused));
    assert!(pinned.expect_err("another held it").is_slot_lost());
    let refreshed = conn.renew_slot(&mut paused, super::HOUR);
    assert!(refreshed.expect_err("another held it").is_slot_lost());
    let released = conn.release_slot(paused);
    assert!(released.expect_err("another held it").is_slot_lost());
    assert!(!is_full::<B>(&mut conn, &single_slot()));
}
