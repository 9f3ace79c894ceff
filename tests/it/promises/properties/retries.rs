//! How often a transaction is tried.

use std::time::Duration;

use diesel_locks::Error;
use diesel_locks::prelude::*;
use proptest::prelude::*;

use super::{refused, says};
use crate::support::Backend;
use crate::support::inputs::{durations_around, numbers_around};
use crate::support::property::{CASES, Sessions, holds_on};

/// More attempts than that take too long.
const MANY: u32 = 6;

fn deadlock() -> Error {
    Error::Deadlock {
        source: diesel::result::Error::RollbackTransaction,
    }
}

/// As many times as asked for when it fails each time; of any delays, within any time.
pub(crate) fn any_retry_is_tried_as_often_as_asked_for_or_refused<B: Backend>() {
    let durations = || durations_around(vec![Duration::from_secs(1)]);
    let attempts = prop_oneof![0..=MANY, numbers_around(vec![0, u32::MAX])];
    let inputs = (attempts, durations(), durations(), durations());
    holds_on::<B, _>(
        CASES,
        &inputs,
        |Sessions { one, other }, (attempts, within, first, longest)| {
            let before = (B::tables(other), B::counter(other, 0));
            let retry = Retry::up_to(attempts).within(within).delays(first, longest);
            // Fails as often as it may be tried, or succeeds at last; never so often that it would have to sleep
            // for as long as it was told to.
            let sleeps = first.min(longest) > Duration::from_millis(1) && within > Duration::ZERO;
            let failures = if sleeps { 0 } else { MANY };
            let (mut tried, mut numbers) = (0, Vec::new());
            let result =
                one.run_transaction_attempts(Transaction::new().retry(retry), |one, attempt| {
                    tried += 1;
                    numbers.push(attempt);
                    B::count_up(one, 0);
                    if tried <= failures {
                        Err(deadlock())
                    } else {
                        Ok(())
                    }
                });
            if attempts == 0 {
                let error = refused(result)?;
                prop_assert!(
                    matches!(error, Error::InvalidRetry { attempts: 0 }),
                    "{:?}",
                    error
                );
                says(&error, &["not 0", "1 to 4294967295"])?;
                prop_assert_eq!(tried, 0);
            } else if result.is_ok() {
                prop_assert_eq!(tried, failures + 1);
                prop_assert!(tried <= attempts);
            } else {
                prop_assert!(refused(result)?.is_deadlock());
                prop_assert!(tried <= attempts);
                // It gave up before the last attempt only if the time was up.
                prop_assert!(
                    tried == attempts || within < Duration::from_secs(10),
                    "{} tried",
                    tried
                );
            }
            prop_assert_eq!(numbers, (1..=tried).collect::<Vec<_>>());
            let committed = i64::from(attempts > 0 && tried == failures + 1);
            let after = (B::tables(other), B::counter(other, 0) - committed);
            prop_assert_eq!(after, before);
            Ok(())
        },
    );
}
