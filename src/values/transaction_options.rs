//! Options of a transaction, and isolation levels.

use std::fmt;

use crate::{LockRequest, RetryPolicy};

/// Options of a transaction: isolation level, access mode, and retries.
///
/// An option that is not set is as in the session; without [`retry`](Self::retry) there is one attempt. On SQLite the transaction
/// is `BEGIN IMMEDIATE` unless it is [`read_only`](Self::read_only). [`TransactionExt`](crate::TransactionExt) has an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias("TransactionBuilder", "build_transaction"))]
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
    /// Creates options that are not set.
    pub const fn new() -> Self {
        Self {
            isolation: None,
            access: None,
            deferrable: false,
            retry: None,
        }
    }

    /// Sets the isolation level of this transaction, whatever the session's level is.
    #[must_use]
    pub const fn isolation(mut self, level: IsolationLevel) -> Self {
        self.isolation = Some(level);
        self
    }

    /// Makes the transaction read-only: a statement that writes is [`Error::ReadOnly`](crate::Error::ReadOnly). On SQLite by
    /// `BEGIN`, which does not wait for writers, and `PRAGMA query_only`, which is restored at the end.
    #[must_use]
    pub const fn read_only(mut self) -> Self {
        self.access = Some(Access::ReadOnly);
        self
    }

    /// Lets the transaction write, even if the session's default is `READ ONLY`.
    #[must_use]
    pub const fn read_write(mut self) -> Self {
        self.access = Some(Access::ReadWrite);
        self
    }

    /// Sets PostgreSQL's `DEFERRABLE`: a SERIALIZABLE, [`read_only`](Self::read_only) transaction waits, without limit, for a snapshot
    /// with which it can't fail; others are not changed. On other engines this is [`Error::Unsupported`](crate::Error::Unsupported).
    #[must_use]
    pub const fn deferrable(mut self) -> Self {
        self.deferrable = true;
        self
    }

    /// Retries the transaction from its start when the database aborts it.
    #[must_use]
    pub const fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = Some(retry);
        self
    }
}

/// What `run_transaction` runs: a transaction with [`TransactionOptions`], or one that holds the locks of [`LockRequest::retry`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a request runs nothing until it is given to `run_transaction`"]
pub struct TransactionRequest {
    pub(crate) options: TransactionOptions,
    pub(crate) lock: Option<LockRequest>,
}

impl From<TransactionOptions> for TransactionRequest {
    fn from(options: TransactionOptions) -> Self {
        Self {
            options,
            lock: None,
        }
    }
}

impl From<&TransactionRequest> for TransactionRequest {
    fn from(request: &TransactionRequest) -> Self {
        request.clone()
    }
}

impl LockRequest {
    /// Returns a transaction that holds these locks, for `run_transaction` of a connection or a `LockPool`, and is retried: each
    /// attempt waits for the locks, as the request says, and runs the closure.
    ///
    /// It runs as that of `with_object_lock` outside a transaction, but the closure may run several times; in an open transaction it
    /// is refused. A lock that is not acquired in time is an error, which is retried with
    /// [`retry_lock_timeouts`](RetryPolicy::retry_lock_timeouts) only; with [`Wait::No`](crate::Wait::No) it is not retried.
    ///
    /// The waits count for [`max_elapsed`](RetryPolicy::max_elapsed), which starts no attempt later but ends no wait: set a limit of
    /// the wait that is a fraction of it.
    ///
    /// ```
    /// use diesel::prelude::*;
    /// use diesel_locks::RetryPolicy;
    /// use diesel_locks::prelude::*;
    /// use std::time::Duration;
    ///
    /// # let mut conn = SqliteConnection::establish(":memory:")?;
    /// # diesel_locks::migrate(&mut conn)?;
    /// let account = ObjectId::new("Account", 7).at_most(Duration::from_secs(2));
    /// conn.run_transaction(account.retry(RetryPolicy::max_attempts(5)), |_conn| -> QueryResult<()> {
    ///     Ok(()) // runs again after a deadlock with a transaction that does not use this lock
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("deadlock", "backoff"))]
    pub fn retry(self, policy: RetryPolicy) -> TransactionRequest {
        TransactionRequest {
            options: TransactionOptions::new().retry(policy),
            lock: Some(self),
        }
    }
}

/// The isolation level of a transaction: which changes of concurrent transactions it sees.
///
/// | | PostgreSQL | MySQL, MariaDB | SQLite |
/// |---|---|---|---|
/// | `ReadCommitted` | yes, the default | yes | [`Error::Unsupported`](crate::Error::Unsupported) |
/// | `RepeatableRead` | a snapshot; an update of a row that has changed since fails | the default; a snapshot for plain reads, while updates and locking reads see what is committed | [`Error::Unsupported`](crate::Error::Unsupported) |
/// | `Serializable` | a snapshot; a transaction that conflicts with a concurrent one fails | plain reads lock the rows shared; deadlocks instead of failures | its only level: one writer at a time |
///
/// READ UNCOMMITTED, which PostgreSQL does not have, is not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IsolationLevel {
    /// Each statement sees the data committed before it started.
    ReadCommitted,
    /// The transaction reads from one snapshot.
    RepeatableRead,
    /// The result is as if transactions ran one after the other.
    Serializable,
}

impl IsolationLevel {
    /// The level in SQL.
    pub(crate) fn sql(self) -> &'static str {
        match self {
            Self::ReadCommitted => "READ COMMITTED",
            Self::RepeatableRead => "REPEATABLE READ",
            Self::Serializable => "SERIALIZABLE",
        }
    }
}

impl fmt::Display for IsolationLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.sql())
    }
}
