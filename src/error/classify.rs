//! Classifies the errors of the databases: the only place that reads the text of errors.

#[cfg(any(feature = "_postgres", feature = "_mysql"))]
mod messages;
#[cfg(feature = "_mysql")]
pub(crate) mod mysql;
#[cfg(feature = "_postgres")]
mod postgres;
#[cfg(all(test, any(feature = "_postgres", feature = "_mysql")))]
mod server_messages_tests;
#[cfg(feature = "_sqlite")]
pub(crate) mod sqlite;

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
    /// The session has ended, or the server can't be reached.
    ConnectionLost,
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

/// The tables of this crate.
#[cfg(any(feature = "_mysql", feature = "_sqlite"))]
const TABLES: [&str; 5] = [
    "diesel_locks_fences",
    "diesel_locks_objects",
    "diesel_locks_semaphores",
    "diesel_locks_sequences",
    "diesel_locks_slots",
];

const MESSAGES: &[fn(&str) -> Option<ErrorClass>] = &[
    #[cfg(feature = "_postgres")]
    postgres::classify,
    #[cfg(feature = "_mysql")]
    mysql::classify,
    #[cfg(feature = "_sqlite")]
    sqlite::classify,
];

/// Classifies an error of any engine: messages of different engines differ.
pub(crate) fn classify(error: &diesel::result::Error) -> ErrorClass {
    use diesel::result::DatabaseErrorKind;
    use diesel::result::Error::{DatabaseError, RollbackErrorOnCommit};

    let (kind, information) = match error {
        DatabaseError(kind, information) => (kind, information),
        // The ROLLBACK after it failed as well.
        RollbackErrorOnCommit { commit_error, .. } => {
            return match classify(commit_error) {
                class @ (ErrorClass::OutcomeUnknown | ErrorClass::ConnectionLost) => class,
                _ => ErrorClass::Other,
            };
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
        DatabaseErrorKind::ClosedConnection => ErrorClass::ConnectionLost,
        DatabaseErrorKind::UnableToSendCommand if finds_no_server(information.message()) => {
            ErrorClass::ConnectionLost
        }
        _ => ErrorClass::Other,
    })
}

/// Whether a client of PostgreSQL could not send a statement for want of a connection, by its texts, which have one language.
/// Other statements it refuses by itself.
fn finds_no_server(message: &str) -> bool {
    [
        "no connection to the server",
        "connection not open",
        "server closed the connection",
        "could not send data to server",
        "connection closed",
        "error communicating with the server",
        "channel closed",
    ]
    .iter()
    .any(|text| message.contains(text))
}

/// The object that a message names as a whole, and not as a schema, before a dot.
#[cfg(any(feature = "_postgres", feature = "_mysql"))]
fn named_object(message: &str, objects: &[RequiredPrivilege]) -> Option<RequiredPrivilege> {
    let of_a_name =
        |character: char| character == '_' || character == '$' || character.is_alphanumeric();
    let is_named = |object: &str| {
        message.match_indices(object).any(|(at, _)| {
            let (before, after) = (&message[..at], &message[at + object.len()..]);
            let unquoted = after.trim_start_matches(['\'', '`', '"']);
            !before.ends_with(of_a_name)
                && !after.starts_with(of_a_name)
                && !unquoted.starts_with('.')
        })
    };
    objects
        .iter()
        .copied()
        .find(|required| is_named(required.object))
}

#[cfg(any(feature = "_postgres", feature = "_mysql"))]
const fn required(object: &'static str, privileges: &'static str) -> RequiredPrivilege {
    RequiredPrivilege { object, privileges }
}
