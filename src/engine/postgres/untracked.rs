//! Detects a transaction that the application has begun by its own SQL: Diesel does not count it.

use crate::Error;
use crate::error::classify::{ErrorClass, classify};

/// BEGIN that fails in an open transaction that has run a query, or has a savepoint. In any other it is only a warning.
macro_rules! begin_tracked {
    () => {
        "BEGIN NOT DEFERRABLE"
    };
}

/// A query that fails, and names a setting, in a transaction that was open before the message. Also in one
/// that has not run a query.
///
/// Only at READ COMMITTED: the snapshot of the transaction would be taken here.
macro_rules! assert_begun {
    () => {
        "SELECT CASE WHEN now() <> statement_timestamp() THEN current_setting('diesel_locks.untracked') END"
    };
}
pub(super) use {assert_begun, begin_tracked};

/// Sent with a statement outside of a transaction.
#[cfg(feature = "async-postgres")]
pub(crate) const ASSERT_NO_TRANSACTION: &str = assert_begun!();

/// Maps the error of a message with one of the two. Any other error is returned as it is.
pub(crate) fn untracked(error: diesel::result::Error) -> Result<Error, diesel::result::Error> {
    if is_untracked(&error) {
        let source = Some(error);
        return Ok(Error::UntrackedTransaction { source });
    }
    Err(error)
}

/// Whether this is the error of a message that begins a transaction while one is open that Diesel does not know of.
/// PostgreSQL does not translate names of settings and of statements.
fn is_untracked(error: &diesel::result::Error) -> bool {
    let diesel::result::Error::DatabaseError(_, information) = error else {
        return false;
    };
    let message = information.message();
    message.contains("diesel_locks.untracked")
        || message.contains("DEFERRABLE")
        // The application's transaction has failed before.
        || classify(error) == ErrorClass::TransactionAborted
}
