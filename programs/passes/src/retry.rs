//! Transactions that the database gave up are tried again.

use std::time::Duration;

use diesel_locks::{Error, RetryPolicy, TransactionOptions};

use crate::store::Store;

/// With 8 organisers at one meeting many are in each other's way.
const PATIENT: TransactionOptions = TransactionOptions::new().retry(
    RetryPolicy::max_attempts(21)
        .backoff(Duration::from_millis(10), Duration::from_millis(100))
        .retry_lock_timeouts(),
);

/// Runs the closure in a transaction, again from its beginning when need be. `retries` grows by how often.
pub(crate) fn run_transaction<C: Store, T>(
    conn: &mut C,
    retries: &mut u32,
    mut work: impl FnMut(&mut C) -> Result<T, Error>,
) -> Result<T, Error> {
    conn.run_transaction_attempts(PATIENT, |conn, attempt| {
        *retries += u32::from(attempt > 1);
        work(conn)
    })
}
