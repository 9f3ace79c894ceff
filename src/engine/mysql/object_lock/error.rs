//! Why locks were not acquired.

use crate::Error;
use crate::engine::mysql::execute::MysqlError;

/// Why the locks were not acquired.
pub(in crate::engine::mysql) enum AcquireError {
    /// Another transaction holds one of them, and the request does not wait.
    Unavailable {
        /// A statement timed out at once: MariaDB's answer to NOWAIT. It may have ended the transaction.
        timed_out: bool,
    },
    /// A kept row is missing: restart the transaction and take the named lock first.
    NoRow,
    Failed(Error),
}

impl From<Error> for AcquireError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<MysqlError> for AcquireError {
    fn from(failure: MysqlError) -> Self {
        Self::Failed(failure.into())
    }
}
