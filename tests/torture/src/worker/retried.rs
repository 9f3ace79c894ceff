//! How transactions are tried again.

use diesel_locks::{RetryPolicy, TransactionOptions};

/// How often.
const ATTEMPTS: u32 = 20;

/// At the session's level; time-outs of locks too are tried again.
pub(super) fn retried() -> TransactionOptions {
    TransactionOptions::new().retry(RetryPolicy::max_attempts(ATTEMPTS).retry_lock_timeouts())
}
