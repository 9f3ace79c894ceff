//! Retries transactions that the database aborts.

use std::time::Duration;

use diesel_locks::{Error, RetryPolicy, TransactionOptions};

use crate::store::Store;

/// Many attempts, because 8 workers at one meeting conflict often.
const PATIENT: TransactionOptions = TransactionOptions::new().retry(
    RetryPolicy::max_attempts(21)
        .backoff(Duration::from_millis(10), Duration::from_millis(100))
        .retry_lock_timeouts(),
);

/// Runs the closure in a transaction, and retries it if necessary. Adds the number of retries to `retries`.
pub(crate) fn run_transaction<C: Store, T>(
    conn: &mut C,
    retries: &mut u32,
    mut work: impl FnMut(&mut C) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut attempts = 0_u32;
    let result = conn.run_transaction(PATIENT, |conn| {
        attempts += 1;
        work(conn)
    });
    *retries += attempts.saturating_sub(1);
    result
}
