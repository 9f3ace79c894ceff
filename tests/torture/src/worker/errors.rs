//! Errors, and how the history records them.

use std::fmt;

use anyhow::anyhow;
use diesel::connection::TransactionManager;
use diesel_async::TransactionManager as _;
use diesel_locks::Error;
use torture_history::{ErrorKind, Outcome};

use super::failed_statement::failed_statements;
use crate::async_store::AsyncStore;
use crate::store::Store;

/// What an operation's closures return.
pub(crate) type Failure = anyhow::Error;

/// The application's own reason to roll back.
#[derive(Debug)]
pub(crate) struct IntentionalRollback;

/// The resource has seen a larger fence.
#[derive(Debug)]
pub(crate) struct Fenced;

/// The pool of asynchronous connections had none to give.
#[derive(Debug)]
pub(crate) struct NoConnection(pub(crate) String);

/// The operation's future was dropped.
#[derive(Debug)]
pub(crate) struct FutureDropped(pub(crate) &'static str);

/// A database error on a connection that is gone.
#[derive(Debug)]
pub(crate) struct ConnectionLost(String);

impl fmt::Display for IntentionalRollback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("rolled back by intent")
    }
}

impl fmt::Display for Fenced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the resource has seen a larger fence")
    }
}

impl fmt::Display for NoConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no connection: {}", self.0)
    }
}

impl fmt::Display for FutureDropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its future was dropped by {}", self.0)
    }
}

impl fmt::Display for ConnectionLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the connection is gone: {}", self.0)
    }
}

impl std::error::Error for IntentionalRollback {}
impl std::error::Error for Fenced {}
impl std::error::Error for NoConnection {}
impl std::error::Error for FutureDropped {}
impl std::error::Error for ConnectionLost {}

/// What the client libraries say of a connection that is gone, in lower case. Diesel hands on neither SQLSTATE nor errno.
const CONNECTION_LOST: [&str; 22] = [
    "server closed the connection",
    "terminating connection",
    "no connection to the server",
    "connection not open",
    "could not receive data from server",
    "could not send data to server",
    "connection has been closed unexpectedly",
    "ssl syscall error",
    "lost connection to",
    "lost synchronization with server",
    "server has gone away",
    "connection was killed",
    "server shutdown in progress",
    "disconnected by the server",
    "malformed packet",
    "the database system is ",
    // A node of Galera that has lost the others.
    "wsrep has not yet prepared node",
    "not connected to primary component",
    // The clients of diesel-async.
    "connection closed",
    "error communicating with the server",
    "input/output error",
    "connection to the server is closed",
];

/// Reads a table: a node that has lost the others answers what reads none.
const READ: &str = "SELECT n FROM torture_counters WHERE id = 0";

/// Classifies an error of a connection, after which no transaction may be open.
pub(crate) fn classify_result<C: Store, T>(
    conn: &mut C,
    result: Result<T, Failure>,
) -> Result<T, Failure> {
    let result = result.map_err(|failure| classify_on(conn, failure));
    if result
        .as_ref()
        .is_err_and(anyhow::Error::is::<ConnectionLost>)
    {
        return result;
    }
    match C::TransactionManager::transaction_manager_status_mut(conn).transaction_depth() {
        Ok(None) => result,
        // It was lost when ROLLBACK was sent: the server rolls back by itself.
        Err(_) if conn.batch_execute(READ).is_err() => result,
        depth => Err(left_open(&depth, result.err())),
    }
}

/// As [`classify_result`].
pub(crate) async fn classify_async_result<A: AsyncStore, T>(
    conn: &mut A,
    result: Result<T, Failure>,
) -> Result<T, Failure> {
    let result = match result {
        // A statement before this one has found that it is lost.
        Err(failure) if is_broken(&failure) && !answers(conn).await => {
            Err(ConnectionLost(failure.to_string()).into())
        }
        result => result.map_err(classify),
    };
    if result
        .as_ref()
        .is_err_and(anyhow::Error::is::<ConnectionLost>)
    {
        return result;
    }
    let status = A::TransactionManager::transaction_manager_status_mut(conn);
    match status.transaction_depth() {
        Ok(None) => result,
        // A wait has ended because the server did not answer in time, and has ended the session with it.
        Err(_) if result.as_ref().is_err_and(has_timed_out) => result,
        // It was lost when ROLLBACK was sent: the server rolls back by itself.
        Err(_) if !answers(conn).await => result,
        depth => Err(left_open(&depth, result.err())),
    }
}

fn has_timed_out(failure: &Failure) -> bool {
    let error = failure.downcast_ref::<Error>();
    matches!(error, Some(Error::LockTimeout { .. }))
}

/// Whether a connection works.
async fn answers<A: AsyncStore>(conn: &mut A) -> bool {
    conn.batch_execute(READ).await.is_ok()
}

/// The error for a transaction that was left open.
fn left_open<D: fmt::Debug>(depth: &D, failure: Option<Failure>) -> Failure {
    let after = failure.map(|failure| format!("{failure:#}"));
    anyhow!("a transaction was left open ({depth:?}) after {after:?}")
}

/// Whether a statement was refused because of one before.
fn is_broken(failure: &Failure) -> bool {
    matches!(
        diesel_error(failure),
        Some(diesel::result::Error::BrokenTransactionManager)
    )
}

/// Classifies an error: of a lost connection, or another.
pub(crate) fn classify_on<C: Store>(conn: &mut C, failure: Failure) -> Failure {
    // A statement before this one has found that it is lost.
    if is_broken(&failure) && conn.batch_execute(READ).is_err() {
        return ConnectionLost(failure.to_string()).into();
    }
    classify(failure)
}

/// Diesel's error, in the library's or not.
fn diesel_error(failure: &Failure) -> Option<&diesel::result::Error> {
    match failure.downcast_ref::<Error>() {
        Some(Error::Database(error)) => Some(error),
        _ => failure.downcast_ref(),
    }
}

/// Classifies an error without its connection: a guard has connections of its own.
pub(crate) fn classify_without_connection(error: Error) -> Failure {
    classify(error.into())
}

/// Classifies an error of a lock pool, which has discarded the connection.
pub(crate) fn classify_in_lock_pool(failure: Failure) -> Failure {
    // The rollback of an attempt that was refused has found that it is lost. The next attempt finds it broken.
    if is_broken(&failure) {
        return ConnectionLost(failure.to_string()).into();
    }
    classify(failure)
}

/// Distinguishes an error of a lost connection from others by its text: in Diesel both have the same kind.
fn classify(failure: Failure) -> Failure {
    let text = format!("{failure:#}");
    let is_databases = matches!(kind(&failure), Some(ErrorKind::Other));
    let lower = text.to_lowercase();
    if is_databases && CONNECTION_LOST.iter().any(|gone| lower.contains(gone)) {
        return ConnectionLost(text).into();
    }
    failure
}

/// How the history records a failure.
pub(crate) trait FailureExt {
    /// Whether faults and other sessions explain it.
    fn is_expected(&self) -> bool;

    fn outcome(self) -> Outcome;

    /// Its kind.
    fn error_kind(&self) -> ErrorKind;
}

impl FailureExt for Failure {
    fn is_expected(&self) -> bool {
        self.is::<ConnectionLost>()
            || self.is::<NoConnection>()
            || !matches!(kind(self), None | Some(ErrorKind::Other))
    }

    fn outcome(self) -> Outcome {
        if self.is::<IntentionalRollback>() {
            return Outcome::RolledBack;
        }
        let mut text = format!("{self:#}");
        let kind = self.error_kind();
        if let ErrorKind::Connection
        | ErrorKind::OutcomeUnknown
        | ErrorKind::Deadlock
        | ErrorKind::Other = kind
        {
            for statement in failed_statements() {
                text = format!("{text}; failed: {statement}");
            }
        }
        match kind {
            ErrorKind::Held => Outcome::Refused,
            kind => Outcome::Failed { kind, text },
        }
    }

    fn error_kind(&self) -> ErrorKind {
        if self.is::<Fenced>() {
            ErrorKind::Fenced
        } else if self.is::<ConnectionLost>() {
            ErrorKind::Connection
        } else if self.is::<NoConnection>() {
            ErrorKind::Pool
        } else if self.is::<FutureDropped>() {
            ErrorKind::Dropped
        } else {
            kind(self).unwrap_or(ErrorKind::Other)
        }
    }
}

/// The kind of an error of the library's or of Diesel's; `None` for others.
fn kind(failure: &Failure) -> Option<ErrorKind> {
    if let Some(error) = failure.downcast_ref::<Error>() {
        return Some(kind_of(error));
    }
    let error = failure.downcast_ref::<diesel::result::Error>()?;
    // Diesel's errors can't be copied; the library distinguishes them by their message.
    Some(match error {
        diesel::result::Error::DatabaseError(kind, information) => {
            use diesel::result::DatabaseErrorKind as Kind;
            let copy = match kind {
                Kind::SerializationFailure => Kind::SerializationFailure,
                // The server is not the primary any more.
                Kind::ClosedConnection | Kind::ReadOnlyTransaction => {
                    return Some(ErrorKind::Connection);
                }
                _ => Kind::Unknown,
            };
            let message = information.message().to_owned();
            kind_of(&Error::from(diesel::result::Error::DatabaseError(
                copy,
                Box::new(message),
            )))
        }
        _ => ErrorKind::Other,
    })
}

fn kind_of(error: &Error) -> ErrorKind {
    match error {
        Error::Unavailable { .. } => ErrorKind::Held,
        Error::LockTimeout { .. } => ErrorKind::TimedOut,
        Error::PartlyLocked { source, .. } => kind_of(source),
        Error::StatementTimeout { .. } => ErrorKind::StatementTimedOut,
        Error::Deadlock { .. } => ErrorKind::Deadlock,
        Error::SerializationFailure { .. } => ErrorKind::Serialization,
        // Diesel too knows of some that they are gone.
        Error::TransactionAborted { .. } | Error::NotInTransaction { .. } => ErrorKind::Aborted,
        Error::SlotLost { .. } => ErrorKind::SlotLost,
        Error::Pool(_) | Error::AsyncPool(_) => ErrorKind::Pool,
        Error::OutcomeUnknown { .. } => ErrorKind::OutcomeUnknown,
        // The server is not the primary any more, or another becomes it.
        error if error.is_read_only() || is_of_a_promotion(error) => ErrorKind::Connection,
        _ => ErrorKind::Other,
    }
}

/// Whether Group Replication has refused SERIALIZABLE, as it does while another member becomes the primary (error 3098).
fn is_of_a_promotion(error: &Error) -> bool {
    matches!(error, Error::RefusedByGroup { .. })
}
