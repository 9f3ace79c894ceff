//! How transactions are tried again.

use diesel_locks::{Retry, Transaction};

/// How often.
const ATTEMPTS: u32 = 20;

/// At the session's level; time-outs of locks too are tried again.
pub(super) fn retried() -> Transaction {
    Transaction::new().retry(Retry::up_to(ATTEMPTS).lock_timeouts())
}
