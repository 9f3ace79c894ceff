//! Retries statements that are safe to repeat.

use crate::error::classify::{ErrorClass, classify};
use crate::transaction::backend::TransactionBackend;
use crate::{Error, transaction::depth};

/// The error of a statement.
pub(super) trait StatementError: Into<Error> {
    /// Whether a deadlock or a serialization failure has aborted the transaction.
    fn is_retryable(&self) -> bool;
}

impl StatementError for diesel::result::Error {
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
pub(super) fn autocommit_retry<C, T, E>(
    conn: &mut C,
    statement: impl Fn(&mut C) -> Result<T, E>,
) -> Result<T, Error>
where
    C: TransactionBackend,
    E: StatementError,
{
    let autocommit = depth::depth(conn)? == 0;
    loop {
        match statement(conn) {
            Err(error) if autocommit && error.is_retryable() => {}
            result => return result.map_err(Into::into),
        }
    }
}
