//! How long a request waits.

use std::time::{Duration, Instant};

use diesel_locks::prelude::*;
use diesel_locks::{Error, Retention};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::{granted, nothing, one_hour, refused, says, says_duration};
use crate::behaviour::waiting::of_free;
use crate::support::Backend;
use crate::support::generators::durations_around;
use crate::support::property::{CASES, Sessions, check_property_on};

const LONGEST: Duration = Duration::from_millis(2_147_483_647);

/// Short, because a property is tested many times.
const SHORT: Duration = Duration::from_millis(3);

fn refuses<T: std::fmt::Debug>(result: Result<T, Error>, value: Duration) -> TestCaseResult {
    let error = refused(result)?;
    let typed = matches!(error, Error::InvalidWait { requested } if requested == value);
    prop_assert!(typed, "{:?}", error);
    says_duration(&error, value)?;
    says_duration(&error, LONGEST)
}

fn times_out<T: std::fmt::Debug>(
    attempt: impl FnOnce() -> Result<T, Error>,
    limit: Duration,
    what: &str,
) -> TestCaseResult {
    let started = Instant::now();
    let error = refused(attempt())?;
    prop_assert!(error.is_timeout(), "{:?}", error);
    prop_assert!(started.elapsed() >= limit);
    says(&error, &[what])
}

/// A wait of any length that is possible has what is free; one that is too long is refused, free or not.
pub(crate) fn property_wait<B: Backend>() {
    let one_slot = Semaphore::new("one", 1);
    let retention = prop_oneof![Just(Retention::Transient), Just(Retention::Kept)];
    let inputs = (durations_around(vec![LONGEST, SHORT]), retention);
    check_property_on::<B, _>(
        CASES,
        &inputs,
        |Sessions { one, other }, (limit, retention)| {
            one.register_semaphores([&one_slot])?;
            let wait = Wait::AtMost(limit);
            let lock = LockRequest::new("a").retention(retention).wait(wait);
            if limit > LONGEST {
                let before = B::tables(other);
                refuses(one.with_object_lock(&lock, nothing), limit)?;
                super::refused_in_a_transaction::<B>(one, |one| {
                    refuses(one.lock_object(&lock), limit)?;
                    refuses(one.acquire_slot(&one_slot, one_hour(), wait), limit)
                })?;
                refuses(one.with_slot(&one_slot, wait, nothing), limit)?;
                prop_assert_eq!(B::tables(other), before);
                return Ok(());
            }
            of_free(|| one.with_object_lock(&lock, nothing))?;
            of_free(|| B::in_transaction(one, |one| one.lock_object(&lock)))?;
            of_free(|| one.with_slot(&one_slot, wait, nothing))?;
            let slot = of_free(|| one.acquire_slot(&one_slot, one_hour(), wait))?;
            if limit <= SHORT {
                let attempt = || other.acquire_slot(&one_slot, one_hour(), wait);
                times_out(attempt, limit, "\"one\" (1 permit)")?;
                one.with_object_lock("a", |_| {
                    times_out(|| other.with_object_lock(&lock, nothing), limit, "a")
                })?;
            }
            one.release_slot(slot)?;
            granted(other.try_with_object_lock("a", nothing)?, "a")
        },
    );
}
