//! Classifies the errors of the databases by their kinds and texts. Errors that name a savepoint or a setting of this crate are
//! recognised where the statement is sent. `values::retry_policy` says which classes are retried.

#![cfg_attr(
    not(all(feature = "_postgres", feature = "_mysql", feature = "_sqlite")),
    allow(dead_code, reason = "no engine needs all")
)]

#[cfg(feature = "_mysql")]
pub(crate) mod mysql;
#[cfg(feature = "_postgres")]
mod postgres;
#[cfg(all(test, feature = "_postgres", feature = "_mysql"))]
mod server_messages_tests;

/// The class of a database error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
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
    /// Group Replication refuses the statement: for its table, or for its transaction.
    RefusedByGroup,
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
pub struct RequiredPrivilege {
    pub(crate) object: &'static str,
    pub(crate) privileges: &'static str,
}

/// The tables of this crate.
const TABLES: [&str; 6] = [
    "diesel_locks_fences",
    "diesel_locks_objects",
    "diesel_locks_semaphores",
    "diesel_locks_sequences",
    "diesel_locks_slots",
    "diesel_locks_wanted",
];

const MESSAGES: &[fn(&str) -> Option<ErrorClass>] = &[
    #[cfg(feature = "_postgres")]
    postgres::classify,
    #[cfg(feature = "_mysql")]
    mysql::classify,
    #[cfg(feature = "_sqlite")]
    sqlite_class,
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

/// Whether a client of PostgreSQL has no connection to send on, by its texts, which have one language. It refuses others itself.
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

const fn required(object: &'static str, privileges: &'static str) -> RequiredPrivilege {
    RequiredPrivilege { object, privileges }
}

/// The messages of a server in all languages: patterns, each with its section of the file, which says what they mean.
struct Messages(Vec<(&'static str, String)>);

impl Messages {
    /// Reads a file: the name of a section in brackets, then a pattern per line. A line that begins with `#` is a comment.
    fn read(file: &'static str) -> Self {
        let mut section = "";
        let mut patterns = Vec::new();
        let is_read = |line: &&str| !line.is_empty() && !line.starts_with('#');
        for line in file.lines().filter(is_read) {
            let name = line.strip_prefix('[');
            match name.and_then(|name| name.strip_suffix(']')) {
                Some(name) => section = name,
                None => patterns.push((section, line.replace("\\n", "\n"))),
            }
        }
        Self(patterns)
    }

    /// The sections of all patterns that match the message, each with the text that stands for `%s`.
    fn matching<'a>(&self, message: &'a str) -> impl Iterator<Item = (&'static str, &'a str)> {
        let matching = move |(section, pattern): &(&'static str, String)| {
            matched(pattern, message).map(|text| (*section, text))
        };
        self.0.iter().filter_map(matching)
    }
}

/// The text that stands for `%s`: empty for a pattern without it, from the first to the last of two, `None` if the message is
/// another one.
fn matched<'a>(pattern: &str, message: &'a str) -> Option<&'a str> {
    let Some((before, after)) = pattern.split_once("%s") else {
        return (pattern == message).then_some("");
    };
    let rest = message.strip_prefix(before)?;
    match after.rsplit_once("%s") {
        None => rest.strip_suffix(after),
        Some((between, end)) => rest
            .strip_suffix(end)
            .filter(|texts| texts.contains(between)),
    }
}

/// The class of a message of SQLite, which has one language; `None` for one that is not known.
fn sqlite_class(message: &str) -> Option<ErrorClass> {
    match message {
        // SQLITE_BUSY
        "database is locked" => Some(ErrorClass::Busy),
        "attempt to write a readonly database" => Some(ErrorClass::ReadOnly),
        // SQLite before 3.35, and before 3.38.
        "near \"RETURNING\": syntax error" | "near \">>\": syntax error" => {
            Some(ErrorClass::OldSqlite)
        }
        _ if message
            .strip_prefix("no such table: ")
            .is_some_and(|table| TABLES.contains(&table.trim_start_matches("main."))) =>
        {
            Some(ErrorClass::MissingTables)
        }
        _ => locked_in_cache(message).then_some(ErrorClass::Busy),
    }
}

/// SQLITE_LOCKED: another connection that shares the cache of this one writes, or reads what is to be written.
pub(crate) fn locked_in_cache(message: &str) -> bool {
    ["database table is locked", "database schema is locked"]
        .iter()
        .filter_map(|locked| message.strip_prefix(locked))
        .any(|rest| rest.is_empty() || rest.starts_with(": "))
}

/// Whether SQLite refused BEGIN because a transaction is open, which the application has started by its own SQL.
pub(crate) fn is_nested_begin(message: &str) -> bool {
    message == "cannot start a transaction within a transaction"
}

#[cfg(all(test, feature = "_sqlite"))]
mod tests {
    use super::*;

    #[test]
    fn statements_that_an_old_sqlite_does_not_know_are_told() {
        let message = Box::new("near \"RETURNING\": syntax error".to_owned());
        let kind = diesel::result::DatabaseErrorKind::Unknown;
        let error = crate::Error::from(diesel::result::Error::DatabaseError(kind, message));
        assert!(error.to_string().contains("3.38"), "{error}");
        assert_eq!(sqlite_class("near \"RETURN\": syntax error"), None);
    }

    #[test]
    fn locks_in_a_shared_cache_are_busy() {
        for message in [
            "database table is locked",
            "database table is locked: counters",
            "database schema is locked: main",
        ] {
            assert_eq!(sqlite_class(message), Some(ErrorClass::Busy), "{message}");
            assert!(locked_in_cache(message));
        }
        assert_eq!(sqlite_class("database is locked"), Some(ErrorClass::Busy));
        assert!(!locked_in_cache("database is locked"));
        assert_eq!(sqlite_class("database table is lockedup"), None);
    }
}
