//! What kind of error a database reports.

/// The class of a database error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "no engine has all of them")]
pub(crate) enum ErrorClass {
    Deadlock,
    SerializationFailure,
    LockTimeout,
    /// SQLite: another connection writes.
    Busy,
    LockNotAvailable,
    StatementTimeout,
    /// PostgreSQL: a cancel request, or a `lock_timeout` that is reported as one.
    CancelRequest,
    /// PostgreSQL: `transaction_timeout` has ended the session.
    TransactionTimeout,
    ReadOnly,
    /// SQLite: it does not know a clause of a statement.
    OldSqlite,
    MissingTables,
    InsufficientPrivilege(RequiredPrivilege),
    /// Row-level security, a trigger or a rule protects a row of this table.
    ProtectedRow(&'static str),
    PreparedStatementMismatch,
    TransactionAborted,
    OutcomeUnknown,
    TooManyIds {
        ids: usize,
        limit: usize,
    },
    LockTableFull,
    Other,
}

/// The privileges on a table or function of this crate's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequiredPrivilege {
    pub(crate) object: &'static str,
    pub(crate) privileges: &'static str,
}
