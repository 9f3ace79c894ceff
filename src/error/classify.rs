//! Classifies the errors of the databases: the only place that reads the text of errors.

#[cfg(feature = "mysql")]
pub(crate) mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod privileges;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;

pub(crate) use privileges::RequiredPrivilege;

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
    ReadOnly,
    MissingTables,
    InsufficientPrivilege(RequiredPrivilege),
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

/// The tables of this crate.
#[allow(dead_code, reason = "not without an engine")]
pub(crate) const TABLES: [&str; 5] = [
    "diesel_locks_fences",
    "diesel_locks_objects",
    "diesel_locks_semaphores",
    "diesel_locks_sequences",
    "diesel_locks_slots",
];

const MESSAGES: &[fn(&str) -> Option<ErrorClass>] = &[
    #[cfg(feature = "postgres")]
    postgres::classify,
    #[cfg(feature = "mysql")]
    mysql::classify,
    #[cfg(feature = "sqlite")]
    sqlite::classify,
];

/// Classifies an error of any engine: messages of different engines differ.
pub(crate) fn classify(error: &diesel::result::Error) -> ErrorClass {
    use diesel::result::DatabaseErrorKind;
    use diesel::result::Error::{DatabaseError, RollbackErrorOnCommit};

    let (kind, information) = match error {
        DatabaseError(kind, information) => (kind, information),
        // The ROLLBACK after it failed as well.
        RollbackErrorOnCommit { commit_error, .. }
            if classify(commit_error) == ErrorClass::OutcomeUnknown =>
        {
            return ErrorClass::OutcomeUnknown;
        }
        _ => return ErrorClass::Other,
    };
    let known = MESSAGES
        .iter()
        .find_map(|classify| classify(information.message()));
    // The message goes first: Diesel calls InnoDB's deadlock a serialization failure.
    known.unwrap_or(match kind {
        DatabaseErrorKind::SerializationFailure => ErrorClass::SerializationFailure,
        DatabaseErrorKind::ReadOnlyTransaction => ErrorClass::ReadOnly,
        _ => ErrorClass::Other,
    })
}
