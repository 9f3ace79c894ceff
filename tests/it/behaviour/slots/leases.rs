//! Refresh, release, expiry, and the clock.

use std::sync::Arc;
use std::time::Duration;

use diesel_locks::limits::{LONGEST_LEASE, LONGEST_WAIT};
use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, IsolationLevel, LeaseState, Slot};

use super::{HOUR, acquire, expire_lease, is_full, one_hour, single_slot, slots_of};
use crate::behaviour::exclusion::begin_for_locks;
use crate::support::Backend;
use crate::support::threads::{result_of, roll_back, spawn};

fn assert_lost<T: std::fmt::Debug>(result: Result<T, Error>) {
    let error = result.expect_err("the slot is another's");
    assert!(error.is_slot_lost(), "{error:?}");
}

pub(crate) fn slot_is_renewed_and_released<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut slot = conn
        .try_acquire_slot(&single_slot(), LeaseOptions::new(Duration::from_secs(100)))
        .expect("an answer")
        .expect("free");
    assert!(is_full::<B>(&mut conn, &single_slot()));
    assert!(slot.remaining() > Duration::from_secs(50));

    let state = conn.renew_slot(&mut slot, HOUR).expect("ours");
    assert_eq!(state, LeaseState::Unexpired);
    let held = &conn.held_slots(&slots_of(single_slot())).expect("rows")[0];
    assert!(held.remaining > Duration::from_secs(3000), "{held:?}");
    assert!(slot.remaining() > Duration::from_secs(3000));
    assert!(slot.remaining() <= HOUR);

    // A shorter one is shorter.
    conn.renew_slot(&mut slot, Duration::from_secs(9))
        .expect("ours");
    let held = &conn.held_slots(&slots_of(single_slot())).expect("rows")[0];
    assert!(held.remaining <= Duration::from_secs(9), "{held:?}");

    let state = conn.release_slot(&slot).expect("ours");
    assert_eq!(state, LeaseState::Unexpired);
    assert!(
        conn.held_slots(&slots_of(single_slot()))
            .expect("rows")
            .is_empty()
    );
    assert!(!is_full::<B>(&mut conn, &single_slot()));
}

pub(crate) fn renewing_an_expired_lease_reports_it<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut slot = acquire::<B>(&mut conn, &single_slot());
    expire_lease::<B>(&mut conn, &slot);
    assert!(
        conn.held_slots(&slots_of(single_slot()))
            .expect("rows")
            .is_empty()
    );
    let state = conn.renew_slot(&mut slot, HOUR).expect("nobody else's");
    assert_eq!(state, LeaseState::Expired);
    assert!(is_full::<B>(&mut conn, &single_slot()));
    expire_lease::<B>(&mut conn, &slot);
    let state = conn.release_slot(slot).expect("nobody else's");
    assert!(state.is_expired());
}

pub(crate) fn slot_granted_to_another_is_lost<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut old = acquire::<B>(&mut conn, &single_slot());
    expire_lease::<B>(&mut conn, &old);
    let new = acquire::<B>(&mut conn, &single_slot());
    assert_eq!(old.number(), new.number());
    assert_lost(conn.renew_slot(&mut old, HOUR));
    assert_lost(conn.release_slot(&old));
    // The new holder is not touched.
    let held = conn.held_slots(&slots_of(single_slot())).expect("rows");
    assert_eq!(held.len(), 1);
    assert_eq!(held[0].token, Some(new.token()));
    conn.release_slot(new).expect("ours");
}

pub(crate) fn releasing_twice_or_with_a_forged_token_changes_nothing<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let two = Semaphore::new("two", 2);
    let slot = acquire::<B>(&mut conn, &two);
    let other = acquire::<B>(&mut conn, &two);
    conn.release_slot(&slot).expect("ours");
    assert_lost(conn.release_slot(&slot));
    let forged = Slot::from_parts("two", other.number(), slot.token(), other.fence());
    assert_lost(conn.release_slot(&forged));
    for number in [0, 3, u32::MAX] {
        let nowhere = Slot::from_parts("two", number, other.token(), other.fence());
        assert_lost(conn.release_slot(&nowhere));
    }
    // Two slots, one held.
    let again = acquire::<B>(&mut conn, &two);
    assert!(is_full::<B>(&mut conn, &two));
    // Another process continues with the parts.
    let mut handed_on = Slot::from_parts("two", again.number(), again.token(), again.fence());
    conn.renew_slot(&mut handed_on, HOUR).expect("ours");
    conn.release_slot(handed_on).expect("ours");
    assert_lost(conn.release_slot(again));
}

pub(crate) fn force_release_all_releases_every_slot<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let three = Semaphore::new("three", 3);
    let mut slots: Vec<_> = (0..3).map(|_| acquire::<B>(&mut conn, &three)).collect();
    let other = acquire::<B>(&mut conn, &single_slot());
    assert_eq!(conn.force_release_all(&three).expect("a count"), 3);
    assert_eq!(conn.force_release_all("three").expect("a count"), 0);
    for slot in &mut slots {
        assert_lost(conn.renew_slot(slot, HOUR));
        assert_lost(conn.release_slot(&*slot));
    }
    for _ in 0..3 {
        let _ = acquire::<B>(&mut conn, &three);
    }
    conn.release_slot(other).expect("another semaphore's");
}

/// Not one that is paused.
pub(crate) fn force_release_all_of_an_unknown_semaphore_is_an_error<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let slot = acquire::<B>(&mut conn, &single_slot());
    let assert_unknown = |released: Result<usize, Error>, name: &str| match released {
        Err(Error::UnknownSemaphore { semaphore }) => assert_eq!(semaphore, name),
        released => panic!("{name}: {released:?}"),
    };
    for name in ["typo", "One", "one "] {
        assert_unknown(conn.force_release_all(name), name);
        begin_for_locks::<B>(&mut conn);
        assert_unknown(conn.force_release_all(name), name);
        // The transaction remains usable.
        let held = conn.held_slots(&slots_of("one")).expect("rows");
        assert_eq!(held.len(), 1);
        roll_back(&mut conn);
    }
    conn.set_permits("paused", 0).expect("a new semaphore");
    conn.release_slot(slot).expect("ours");
    assert_eq!(conn.force_release_all("one").expect("free"), 0);
    assert_eq!(conn.purge_slots(Duration::ZERO).expect("purge"), 1);
    assert_unknown(conn.force_release_all("one"), "one");
    assert_eq!(conn.force_release_all("paused").expect("known"), 0);
}

pub(crate) fn remaining_leases_use_the_database_clock<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let three = Semaphore::new("three", 3);
    let lease = one_hour().holder("worker-7 'x' \u{1f512}");
    let slot = conn
        .try_acquire_slot(&three, lease)
        .expect("an answer")
        .expect("free");
    let other = acquire::<B>(&mut conn, &three);
    let mut held = conn.held_slots(&slots_of(&three)).expect("rows");
    held.sort_by_key(|held| held.fence);
    assert_eq!(held.len(), 2);
    assert_eq!(held[0].semaphore, "three");
    assert_eq!(held[0].number, slot.number());
    assert_eq!(held[0].token, Some(slot.token()));
    assert_eq!(held[0].fence, slot.fence());
    assert_eq!(held[0].holder.as_deref(), Some("worker-7 'x' \u{1f512}"));
    assert_eq!(held[1].number, other.number());
    let lasts = held[0].expires_at - held[0].acquired_at;
    assert_eq!(lasts.to_std().expect("later"), HOUR);
    assert!(held[0].remaining <= HOUR && held[0].remaining > HOUR / 2);
}

/// Moves the time of the grant an hour into the future, as if the clock had been moved back since.
pub(crate) fn clock_that_was_set_back_does_not_delay_the_release<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    for permits in [1, 101] {
        let semaphore = Semaphore::new(format!("of-{permits}"), permits);
        let mut slots: Vec<_> = (0..permits)
            .map(|_| acquire::<B>(&mut conn, &semaphore))
            .collect();
        B::sql(
            &mut conn,
            "UPDATE diesel_locks_slots SET acquired_us = acquired_us + 3600000000, \
             expires_us = CASE WHEN expires_us > 0 THEN expires_us + 3600000000 ELSE 0 END, \
             hold_until_us = CASE WHEN hold_until_us > 0 THEN hold_until_us + 3600000000 ELSE 0 END",
        );
        let minute = Duration::from_secs(60);
        let slot = slots.last_mut().expect("a slot");
        conn.renew_slot(slot, minute).expect("ours");
        let held = conn.held_slots(&slots_of(&semaphore)).expect("rows");
        let held = held.iter().find(|held| held.number == slot.number());
        let remaining = held.expect("held").remaining;
        assert!(remaining <= minute, "{remaining:?}");
        conn.release_slot(&*slot).expect("ours");
        assert!(!is_full::<B>(&mut conn, &semaphore));
    }
}

/// A lease that is taken late in a long transaction is as long as any.
pub(crate) fn a_long_transaction_does_not_shorten_the_lease<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut other = database.connect();
    let two = Semaphore::new("two", 2);
    conn.register_semaphores([&two]).expect("register");
    let mut moment = None;
    let slot = B::in_transaction(&mut conn, |conn| {
        if B::ONE_WRITER {
            return Ok(acquire::<B>(conn, &two));
        }
        B::counter(conn, 0);
        // What another is granted after the transaction has begun ..
        let witness = acquire::<B>(&mut other, &two);
        moment = Some(other.held_slots(&slots_of(&two))?[0].acquired_at);
        other.release_slot(witness)?;
        // .. is before this.
        Ok(acquire::<B>(conn, &two))
    })
    .expect("commit");
    let held = conn.held_slots(&slots_of(&two)).expect("rows");
    assert_eq!(held[0].token, Some(slot.token()));
    if let Some(moment) = moment {
        assert!(held[0].acquired_at >= moment, "{held:?} {moment}");
    }
    let lasts = held[0].expires_at - held[0].acquired_at;
    assert_eq!(lasts.to_std().expect("later"), HOUR);
}

pub(crate) fn short_lease_expires<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let short = LeaseOptions::new(Duration::from_millis(1));
    let mut slot = conn
        .try_acquire_slot(&single_slot(), short)
        .expect("an answer")
        .expect("free");
    let waited = Wait::AtMost(Duration::from_secs(20));
    let next = conn
        .acquire_slot(&single_slot(), one_hour(), waited)
        .expect("it ends");
    assert!(next.fence() > slot.fence());
    assert_eq!(slot.remaining(), Duration::ZERO);
    assert_lost(conn.renew_slot(&mut slot, HOUR));
    conn.release_slot(next).expect("ours");
    let longest = conn
        .try_acquire_slot(&single_slot(), LeaseOptions::new(LONGEST_LEASE))
        .expect("an answer")
        .expect("free");
    let held = &conn.held_slots(&slots_of(single_slot())).expect("rows")[0];
    let lasts = held.expires_at - held.acquired_at;
    assert_eq!(lasts.to_std().expect("later"), LONGEST_LEASE);
    conn.release_slot(longest).expect("ours");
}

pub(crate) fn unusable_leases_are_refused<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut slot = acquire::<B>(&mut conn, &Semaphore::new("two", 2));
    for (duration, limit) in [
        (Duration::ZERO, "1 ms"),
        (Duration::from_micros(999), "1 ms"),
        (LONGEST_LEASE + Duration::from_nanos(1), "36,525 days"),
        (Duration::MAX, "36,525 days"),
    ] {
        let refused = conn.try_acquire_slot(&single_slot(), LeaseOptions::new(duration));
        let error = refused.expect_err("unusable");
        assert!(error.to_string().contains(limit), "{error}");
        assert!(matches!(error, Error::InvalidLease { requested, .. } if requested == duration));
        let refused = conn.renew_slot(&mut slot, duration);
        assert!(
            matches!(refused, Err(Error::InvalidLease { requested, .. }) if requested == duration)
        );
    }
    let long_tail = LeaseOptions::new(HOUR).hold_at_least(HOUR * 2);
    let refused = conn.try_acquire_slot(&single_slot(), long_tail);
    let reason = "hold_at_least is longer than the lease";
    assert!(matches!(refused, Err(Error::InvalidLease { reason: it, .. }) if it == reason));
    conn.release_slot(slot).expect("untouched");
}

/// Four nodes and one tick: one of them runs.
pub(crate) fn hold_at_least_delays_the_release<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let lease = || LeaseOptions::new(HOUR).hold_at_least(HOUR / 2);
    let mut ran = 0;
    for _ in 0..4 {
        if let Some(slot) = conn
            .try_acquire_slot(&single_slot(), lease())
            .expect("an answer")
        {
            ran += 1;
            conn.release_slot(&slot).expect("ours");
            assert_lost(conn.release_slot(slot));
        }
    }
    assert_eq!(ran, 1);
    let held = &conn.held_slots(&slots_of(single_slot())).expect("rows")[0];
    assert_eq!(held.token, None, "released");
    assert!(held.remaining <= HOUR / 2);
    // A refresh does not shorten it either.
    B::sql(
        &mut conn,
        "UPDATE diesel_locks_slots SET expires_us = 1, hold_until_us = 1",
    );
    let mut slot = conn
        .try_acquire_slot(&single_slot(), lease())
        .expect("an answer")
        .expect("the next tick");
    conn.renew_slot(&mut slot, Duration::from_secs(1))
        .expect("ours");
    let held = &conn.held_slots(&slots_of(single_slot())).expect("rows")[0];
    assert!(held.remaining > HOUR / 4, "{held:?}");
    assert_eq!(conn.force_release_all(single_slot()).expect("a count"), 1);
    assert!(!is_full::<B>(&mut conn, &single_slot()));
}

/// The slot is released after the end of its hold time, and then the clock is set back to a time before that end.
pub(crate) fn hold_time_lasts_after_the_clock_was_set_back<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let lease = LeaseOptions::new(HOUR).hold_at_least(HOUR);
    let slot = conn.try_acquire_slot(&single_slot(), lease);
    let slot = slot.expect("an answer").expect("a free slot");
    B::sql(
        &mut conn,
        "UPDATE diesel_locks_slots SET hold_until_us = acquired_us",
    );
    conn.release_slot(slot).expect("ours");
    B::sql(
        &mut conn,
        "UPDATE diesel_locks_slots SET acquired_us = acquired_us + 3600000000, \
         hold_until_us = hold_until_us + 3600000000, \
         expires_us = CASE WHEN expires_us > 0 THEN expires_us + 3600000000 ELSE 0 END",
    );
    assert!(is_full::<B>(&mut conn, &single_slot()));
    assert_eq!(conn.force_release_all(single_slot()).expect("a count"), 1);
    assert!(!is_full::<B>(&mut conn, &single_slot()));
}

pub(crate) fn waiter_gets_the_slot_when_it_is_released<B: Backend>() {
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    let slot = acquire::<B>(&mut conn, &single_slot());
    let error = conn
        .acquire_slot(&single_slot(), one_hour(), Wait::No)
        .expect_err("held");
    assert!(error.is_unavailable(), "{error:?}");
    let asked = Duration::from_millis(150);
    let started = std::time::Instant::now();
    let error = conn
        .acquire_slot(&single_slot(), one_hour(), Wait::AtMost(asked))
        .expect_err("held");
    assert!(error.is_timeout(), "{error:?}");
    assert!(error.to_string().contains("\"one\" (1 permit)"), "{error}");
    assert!(started.elapsed() >= asked);
    let error = conn
        .acquire_slot(&single_slot(), one_hour(), Wait::AtMost(LONGEST_WAIT * 2))
        .expect_err("too long");
    assert!(matches!(error, Error::InvalidWait { .. }), "{error:?}");

    let waiter = {
        let database = Arc::clone(&database);
        spawn(move || {
            let mut conn = database.connect();
            conn.acquire_slot(&single_slot(), one_hour(), Wait::Forever)
        })
    };
    conn.release_slot(&slot).expect("ours");
    let next = result_of(&waiter).expect("it comes free");
    assert!(next.fence() > slot.fence());
}

/// The snapshot is older than the grant.
pub(crate) fn force_release_all_in_a_snapshot_is_refused<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let level = TransactionOptions::new().isolation(IsolationLevel::RepeatableRead);
    let slot = conn.run_transaction(level, |conn| {
        B::counter(conn, 0);
        let slot = acquire::<B>(&mut database.connect(), &single_slot());
        let error = conn.force_release_all("one").expect_err("it sees no slot");
        let is_refused = matches!(error, Error::UnsuitableIsolation { .. });
        assert!(is_refused, "{error:?}");
        Ok::<_, Error>(slot)
    });
    conn.release_slot(slot.expect("commit")).expect("ours");
}
