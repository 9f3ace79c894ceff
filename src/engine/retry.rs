//! Retries statements that are safe to repeat.

use crate::Error;
use crate::error::classify::{ErrorClass, classify};

/// The error of a statement.
pub(super) trait StatementError: Into<Error> {
    /// Not `From`: the compiler lists the types of which an application's error could be made, and would list this one.
    fn of(error: diesel::result::Error) -> Self;

    /// Whether a deadlock or a serialization failure has aborted the transaction.
    #[cfg_attr(
        not(any(feature = "_mysql", feature = "_postgres")),
        allow(dead_code, reason = "SQLite has one writer")
    )]
    fn is_retryable(&self) -> bool;
}

impl StatementError for diesel::result::Error {
    fn of(error: Self) -> Self {
        error
    }

    fn is_retryable(&self) -> bool {
        matches!(
            classify(self),
            ErrorClass::SerializationFailure | ErrorClass::Deadlock
        )
    }
}

/// Retries a statement, if it is its own transaction, until no deadlock or serialization failure aborts it. At a
/// session's default level above READ COMMITTED a single statement can fail with the latter. In an open transaction the
/// statement runs once.
///
/// A macro, because a future that calls a closure which returns futures is not known to be `Send`.
#[cfg(any(feature = "_mysql", feature = "_postgres"))]
macro_rules! autocommit_retry {
    ($conn:expr, $statement:expr) => {{
        let autocommit = crate::transaction::depth::depth($conn)? == 0;
        loop {
            match $statement {
                Err(error)
                    if autocommit && crate::engine::retry::StatementError::is_retryable(&error) => {
                }
                result => break result.map_err(crate::Error::from),
            }
        }
    }};
}
#[cfg(any(feature = "_mysql", feature = "_postgres"))]
pub(super) use autocommit_retry;
