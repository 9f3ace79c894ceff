//! How transactions are retried.

use diesel_locks::{RetryPolicy, TransactionOptions};

/// The maximum number of attempts.
const ATTEMPTS: u32 = 20;

/// At the session's level; time-outs of locks too are tried again.
pub(super) fn retry_options() -> TransactionOptions {
    TransactionOptions::new().retry(RetryPolicy::max_attempts(ATTEMPTS).retry_lock_timeouts())
}
