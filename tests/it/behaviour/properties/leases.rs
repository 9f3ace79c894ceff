//! How long leases last, and what is kept how long.

use std::time::Duration;

use diesel_locks::prelude::*;
use diesel_locks::{Error, LeaseState};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::{granted, one_hour, refused, refused_in_a_transaction, says, says_duration};
use crate::support::Backend;
use crate::support::generators::durations_around;
use crate::support::property::{CASES, Sessions, check_property_on};
use crate::support::tables::{SlotRow, is_renewal, us};

const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(36_525 * 86_400);

fn leases() -> impl Strategy<Value = Duration> {
    durations_around(vec![SHORTEST, LONGEST, Duration::from_secs(10)])
}

fn can_be_leased(duration: Duration) -> bool {
    (SHORTEST..=LONGEST).contains(&duration)
}

fn refuses<T: std::fmt::Debug>(
    result: Result<T, Error>,
    value: Duration,
    limit: &str,
) -> TestCaseResult {
    let error = refused(result)?;
    let typed = matches!(&error, Error::InvalidLease { requested, .. } if *requested == value);
    prop_assert!(typed, "{:?}", error);
    says_duration(&error, value)?;
    says(&error, &[limit])
}

/// The limit that a duration is beyond.
fn limit(duration: Duration) -> &'static str {
    if duration < SHORTEST {
        "the shortest lease is 1 ms"
    } else {
        "the longest lease is 36,525 days"
    }
}

fn row<B: Backend>(conn: &mut B::Conn) -> SlotRow {
    let mut slots = B::slots(conn);
    assert_eq!(slots.len(), 1);
    slots.pop_first().expect("one").1
}

pub(crate) fn property_lease_duration<B: Backend>() {
    let one_slot = Semaphore::new("one", 1);
    let hold_at_least = prop_oneof![Just(Duration::ZERO), leases()];
    let inputs = (leases(), hold_at_least, leases());
    check_property_on::<B, _>(
        CASES,
        &inputs,
        |Sessions { one, other }, (asked, hold_at_least, refreshed)| {
            one.register_semaphores([&one_slot])?;
            let before = B::tables(other);
            let lease = LeaseOptions::new(asked).hold_at_least(hold_at_least);
            if !can_be_leased(asked) || hold_at_least > asked {
                let (value, limit) = if can_be_leased(asked) {
                    (hold_at_least, "hold_at_least is longer than the lease")
                } else {
                    (asked, limit(asked))
                };
                refuses(one.try_acquire_slot(&one_slot, lease.clone()), value, limit)?;
                refused_in_a_transaction::<B>(one, |one| {
                    let result = one.acquire_slot(&one_slot, lease, Wait::Forever);
                    refuses(result, value, limit)
                })?;
                prop_assert_eq!(B::tables(other), before);
                return Ok(());
            }
            let slot = one.try_acquire_slot(&one_slot, lease)?;
            let mut slot = granted(slot, "one")?;
            prop_assert!(slot.remaining() <= asked);
            let leased = row::<B>(other);
            prop_assert_eq!(leased.expires_us - leased.acquired_us, us(asked));
            let hold_until_us = match us(hold_at_least) {
                0 => 0,
                held_us => leased.acquired_us + held_us,
            };
            prop_assert_eq!(leased.hold_until_us, hold_until_us);

            let before = B::now_us(other);
            let result = one.renew_slot(&mut slot, refreshed);
            let after = B::now_us(other);
            if !can_be_leased(refreshed) {
                refuses(result, refreshed, limit(refreshed))?;
                prop_assert_eq!(row::<B>(other), leased);
                return Ok(());
            }
            let state = result?;
            // One of a few milliseconds may have ended.
            if asked > Duration::from_secs(60) {
                prop_assert_eq!(state, LeaseState::Unexpired);
            }
            let now = row::<B>(other);
            let ends = before + us(refreshed)..=after + us(refreshed);
            prop_assert!(is_renewal::<B>(&leased, ends, now.expires_us), "{:?}", now);
            let same_but_the_end = SlotRow {
                expires_us: now.expires_us,
                ..leased
            };
            prop_assert_eq!(now, same_but_the_end);
            Ok(())
        },
    );
}

/// What has been unused for so long goes, what has been used since stays.
pub(crate) fn property_purge_age<B: Backend>() {
    let ages = [Duration::from_secs(3600), LONGEST];
    let ages = || prop_oneof![Just(Duration::ZERO), durations_around(ages.to_vec())];
    let inputs = (ages(), ages());
    check_property_on::<B, _>(CASES, &inputs, |Sessions { one, other }, (asked, age)| {
        let age = age.min(LONGEST);
        one.register_semaphores([Semaphore::new("registered", 2)])?;
        for name in ["free", "held"] {
            let slot = one.try_acquire_slot(&Semaphore::new(name, 1), one_hour())?;
            let slot = granted(slot, name)?;
            if name == "free" {
                one.release_slot(slot)?;
            }
        }
        let acquired = B::now_us(one) - us(age);
        B::sql(
            one,
            &format!("UPDATE diesel_locks_slots SET acquired_us = {acquired}"),
        );
        let before = B::tables(other);
        let result = one.purge_slots(asked);
        let mut after = before;
        if asked > LONGEST {
            let limit = "no slot can be unused for longer than the longest lease";
            refuses(result, asked, limit)?;
            prop_assert_eq!(B::tables(other), after);
            return Ok(());
        }
        // Time passes meanwhile.
        let purged = result?;
        if age < asked && asked.saturating_sub(age) < Duration::from_secs(60) {
            prop_assert!(purged <= 1);
            if purged == 1 {
                after.slots.remove(&("free".to_owned(), 1));
            }
            prop_assert_eq!(B::tables(other), after);
            return Ok(());
        }
        prop_assert_eq!(purged, usize::from(age >= asked));
        if age >= asked {
            after.slots.remove(&("free".to_owned(), 1));
        }
        prop_assert_eq!(B::tables(other), after);
        Ok(())
    });
}
