//! How often a transaction is tried.

use std::time::Duration;

use diesel_locks::prelude::*;
use diesel_locks::{Error, RetryPolicy};
use proptest::prelude::*;

use super::{refused, says};
use crate::support::Backend;
use crate::support::generators::{durations_around, numbers_around};
use crate::support::property::{CASES, Sessions, check_property_on};

/// More attempts than that take too long.
const MANY: u32 = 6;

fn deadlock() -> Error {
    Error::Deadlock {
        source: diesel::result::Error::RollbackTransaction,
    }
}

/// Runs a transaction that fails this many times and then succeeds. Returns the number of attempts and the result.
/// Checks that a failed attempt leaves nothing behind.
fn run<B: Backend>(
    Sessions { one, other }: &mut Sessions<B>,
    retry: RetryPolicy,
    failures: u32,
) -> Result<(u32, Result<(), Error>), TestCaseError> {
    let before = (B::tables(other), B::counter(other, 0));
    let mut tried = 0;
    let result = one.run_transaction(TransactionOptions::new().retry(retry), |one| {
        tried += 1;
        B::count_up(one, 0);
        if tried <= failures {
            Err(deadlock())
        } else {
            Ok(())
        }
    });
    prop_assert_eq!(result.is_ok(), tried > failures);
    let committed = i64::from(result.is_ok());
    let after = (B::tables(other), B::counter(other, 0) - committed);
    prop_assert_eq!(after, before);
    Ok((tried, result))
}

/// As many times as asked for when it fails each time; of any delays, within any time.
pub(crate) fn property_retry_attempts<B: Backend>() {
    transaction_is_attempted_max_attempts_times::<B>();
    extreme_retry_policies_run_or_are_refused::<B>();
}

/// With time enough, so that only the number of attempts counts.
fn transaction_is_attempted_max_attempts_times<B: Backend>() {
    let enough = prop_oneof![Just(Duration::from_secs(60)), Just(Duration::MAX)];
    let backoff = || (0..=1000_u64).prop_map(Duration::from_micros);
    let inputs = (1..=8_u32, 0..=8_u32, enough, backoff(), backoff());
    check_property_on::<B, _>(
        CASES,
        &inputs,
        |sessions, (attempts, failures, within, first, longest)| {
            let retry = RetryPolicy::max_attempts(attempts)
                .max_elapsed(within)
                .backoff(first, longest);
            let (tried, result) = run(sessions, retry, failures)?;
            prop_assert_eq!(tried, attempts.min(failures + 1));
            if tried <= failures {
                prop_assert!(refused(result)?.is_deadlock());
            }
            Ok(())
        },
    );
}

/// Whatever is asked for, no number overflows.
fn extreme_retry_policies_run_or_are_refused<B: Backend>() {
    let durations = || durations_around(vec![Duration::from_secs(1)]);
    let attempts = prop_oneof![0..=MANY, numbers_around(vec![0, u32::MAX])];
    let inputs = (attempts, durations(), durations(), durations());
    check_property_on::<B, _>(
        CASES,
        &inputs,
        |sessions, (attempts, within, first, longest)| {
            let retry = RetryPolicy::max_attempts(attempts)
                .max_elapsed(within)
                .backoff(first, longest);
            // Fails in all attempts if the pauses are short, and otherwise succeeds at once.
            let sleeps = first.min(longest) > Duration::from_millis(1) && within > Duration::ZERO;
            let failures = if sleeps { 0 } else { MANY };
            let (tried, result) = run(sessions, retry, failures)?;
            if attempts == 0 {
                let error = refused(result)?;
                prop_assert!(
                    matches!(error, Error::InvalidRetry { attempts: 0 }),
                    "{:?}",
                    error
                );
                says(&error, &["not 0", "1 to 4294967295"])?;
                prop_assert_eq!(tried, 0);
                return Ok(());
            }
            prop_assert!(tried <= attempts);
            if tried <= failures {
                prop_assert!(refused(result)?.is_deadlock());
                // There were fewer attempts than allowed only if the time was up.
                prop_assert!(
                    tried == attempts || within < Duration::from_secs(10),
                    "{} tried",
                    tried
                );
            }
            Ok(())
        },
    );
}
