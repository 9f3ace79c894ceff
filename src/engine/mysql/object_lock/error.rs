//! Why locks were not acquired.

use crate::Error;

/// Why the locks were not acquired.
pub(in crate::engine::mysql) enum AcquireError {
    /// Another transaction holds one of them, and the request does not wait.
    Unavailable {
        /// A statement timed out at once: MariaDB's answer to NOWAIT. It may have ended the transaction.
        timed_out: bool,
    },
    /// A kept row is missing: restart the transaction and take the named lock first.
    NoRow,
    /// A limit of the server (`innodb_lock_wait_timeout`) ended a wait without limit in a transaction that holds something.
    LimitOfServer(Error),
    Failed(Error),
}

// Without `From`: in an error about the type of an application's error (E0283) the compiler would list this type.
impl AcquireError {
    pub(super) fn failed(error: impl Into<Error>) -> Self {
        Self::Failed(error.into())
    }
}
