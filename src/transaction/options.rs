//! What is asked of a transaction.

use crate::{IsolationLevel, RetryPolicy};

/// How a transaction runs: isolation level, access mode, and whether it is tried again.
///
/// What is not said is as the session has it; a transaction that says nothing is Diesel's `transaction`
/// (on SQLite: its `immediate_transaction`).
///
/// ```
/// use diesel_locks::{IsolationLevel, RetryPolicy, TransactionOptions};
///
/// const TRANSFER: TransactionOptions =
///     TransactionOptions::new().isolation(IsolationLevel::Serializable).retry(RetryPolicy::max_attempts(5));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TransactionOptions {
    pub(crate) isolation: Option<IsolationLevel>,
    pub(crate) access: Option<Access>,
    pub(crate) deferrable: bool,
    pub(crate) retry: Option<RetryPolicy>,
}

/// Whether a transaction may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    ReadOnly,
    ReadWrite,
}

impl TransactionOptions {
    /// A transaction as the session's settings have it, tried once.
    pub const fn new() -> Self {
        Self {
            isolation: None,
            access: None,
            deferrable: false,
            retry: None,
        }
    }

    /// At this level, whatever the session's is; for this transaction only.
    #[must_use]
    pub const fn isolation(mut self, level: IsolationLevel) -> Self {
        self.isolation = Some(level);
        self
    }

    /// The transaction may not write: a statement that does is
    /// [`Error::ReadOnly`](crate::Error::ReadOnly).
    ///
    /// On PostgreSQL and MySQL by `READ ONLY`; on SQLite by `PRAGMA query_only`, which is set back
    /// afterwards, and then the transaction does not wait for whoever writes.
    #[must_use]
    pub const fn read_only(mut self) -> Self {
        self.access = Some(Access::ReadOnly);
        self
    }

    /// The transaction may write although the session's default is `READ ONLY`.
    #[must_use]
    pub const fn read_write(mut self) -> Self {
        self.access = Some(Access::ReadWrite);
        self
    }

    /// PostgreSQL's `DEFERRABLE`: a transaction that is SERIALIZABLE and read-only waits for a snapshot
    /// with which it can't fail. Elsewhere [`Error::Unsupported`](crate::Error::Unsupported).
    #[must_use]
    pub const fn deferrable(mut self) -> Self {
        self.deferrable = true;
        self
    }

    /// Begins again from the start when the database gave it up.
    #[must_use]
    pub const fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = Some(retry);
        self
    }
}
