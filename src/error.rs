//! The error type of this crate, one for all engines.

pub(crate) mod classify;
pub(crate) mod human;

use std::time::Duration;

use thiserror::Error;

use crate::limits::{LONGEST_LEASE, MAX_PERMITS, SHORTEST_LEASE};
use crate::{InvalidName, InvalidObjectId, Wait};
use classify::{ErrorClass, RequiredPrivilege};
use human::{Exact, Rounded, counted};

/// A [`Result`](std::result::Result) whose error is this crate's [`Error`], unless another one is named.
///
/// Names the error type of a closure: `|conn| -> diesel_locks::Result<_> { .. }`. If the call is the last expression of
/// a function, Rust infers the type from the function. If `?` follows the call, `?` may make the function's error from
/// several types, and the compiler does not choose one (E0283, "type annotations needed").
///
/// Not in the [`prelude`](crate::prelude), where it would hide the standard library's.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use diesel::prelude::*;
/// use diesel_locks::prelude::*;
///
/// #[derive(Debug, thiserror::Error)]
/// enum AppError {
///     #[error("database")]
///     Diesel(#[from] diesel::result::Error),
///     #[error("lock")]
///     Locks(#[from] diesel_locks::Error),
/// }
///
/// fn close_books(conn: &mut SqliteConnection) -> Result<(), AppError> {
///     conn.with_object_lock("books", |conn| -> diesel_locks::Result<_> {
///         diesel::sql_query("SELECT 1").execute(conn)?;
///         Ok(())
///     })?;
///     Ok(())
/// }
/// # let mut conn = SqliteConnection::establish(":memory:")?;
/// # diesel_locks::migrate(&mut conn)?;
/// # close_books(&mut conn)?;
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sqlite"))]
/// # fn main() {}
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this crate: of acquiring a lock, a slot or a number, or of running a transaction.
///
/// The text says what is wrong and what to do. The database's own error, with its message, details and hint, is the
/// [`source`](std::error::Error::source).
///
/// An `Error` is made from a [`diesel::result::Error`] with `?`, and back: a closure may return either type, or any
/// error of the application that implements `From` for this one. [`Error::find`] finds it again inside any other error.
///
/// Diesel does not pass on the codes of errors (SQLSTATE, errno). On MySQL and MariaDB this crate asks the server for
/// the code. On PostgreSQL it compares the message with the server's messages in all languages of PostgreSQL 15 to 18.
/// SQLite has one language. An unknown message becomes [`Error::Database`].
///
/// # In a web service
///
/// A lock that is not available is not an internal error. In a function that returns `QueryResult`, an `Error` is
/// wrapped in a [`diesel::result::Error`], so look for it with [`Error::find`]:
///
/// ```
/// use diesel_locks::Error;
///
/// /// The HTTP status for an error of the application: 503 (try again later), or 500.
/// fn status(error: &(dyn std::error::Error + 'static)) -> u16 {
///     match Error::find(error) {
///         Some(error) if error.is_timeout() || error.is_unavailable() => 503,
///         _ => 500,
///     }
/// }
///
/// let timeout = Error::LockTimeout {
///     resource: "Order:4711".to_owned(),
///     waited: std::time::Duration::from_millis(516),
///     limit: Some(std::time::Duration::from_millis(500)),
///     source: None,
/// };
/// assert_eq!(timeout.to_string(), "Order:4711: not acquired within 516 ms (limit 500 ms)");
/// let from_a_query = diesel::result::Error::from(timeout);
/// assert_eq!(status(&from_a_query), 503);
/// assert_eq!(status(&diesel::result::Error::NotFound), 500);
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The object id is invalid. Nothing was sent to the database.
    #[error(transparent)]
    InvalidObjectId(#[from] InvalidObjectId),

    /// The [`StopToken`](crate::StopToken) of a [`LockPool`](crate::LockPool) was stopped before the closure ran.
    /// Nothing was done.
    #[cfg(feature = "r2d2")]
    #[cfg_attr(docsrs, doc(cfg(feature = "r2d2")))]
    #[error("stopped after waiting {} for {resource}", Rounded(*waited))]
    Stopped {
        /// What was waited for.
        resource: String,
        /// How long it was waited for.
        waited: Duration,
    },

    /// The request is for more kept objects than [`MAX_KEPT_IDS`](crate::MAX_KEPT_IDS).
    ///
    /// With [`Retention::Kept`](crate::Retention::Kept) nothing was sent to the database. With
    /// [`Retention::Transient`](crate::Retention::Transient), on PostgreSQL, too many of the objects have kept rows, and
    /// none was locked. Split the request, or lock the objects as transient and
    /// [purge](crate::ObjectLockExt::purge_object_locks) the rows.
    #[error(
        "{ids} kept objects requested; one request can lock at most {limit}: split it, or use \
         Retention::Transient"
    )]
    TooManyIds {
        /// The number of objects requested.
        ids: usize,
        /// The largest number allowed: [`MAX_KEPT_IDS`](crate::MAX_KEPT_IDS).
        limit: usize,
    },

    /// A name or a holder's text is invalid. Nothing was sent to the database.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),

    /// The semaphore has no permits, or more than [`MAX_PERMITS`]. Nothing was sent to the database.
    #[error("the semaphore {semaphore:?} has {}; 1 to {MAX_PERMITS} are allowed", counted(*permits, "permit"))]
    InvalidPermits {
        /// The semaphore's name.
        semaphore: String,
        /// The number of permits.
        permits: u32,
    },

    /// The lease is too short or too long. Nothing was sent to the database.
    #[error(
        "invalid lease of {}: {reason} ({} to {} are allowed)",
        Exact(*requested), Exact(SHORTEST_LEASE), Exact(LONGEST_LEASE)
    )]
    InvalidLease {
        /// The duration requested.
        requested: Duration,
        /// The limit that it breaks.
        reason: &'static str,
    },

    /// [`raise_fences`](crate::SemaphoreExt::raise_fences) by a time that would leave too few fences for later grants.
    #[error("fences can't be raised by {}: they would pass the year 2100, and the last fence is in 2112", Exact(*requested))]
    FencesTooLarge {
        /// The time requested.
        requested: Duration,
    },

    /// The token does not hold the slot: the slot was granted to another holder after the lease had expired, or it was
    /// released, or [`force_release_all`](crate::SemaphoreExt::force_release_all) released it.
    #[error("slot {number} of the semaphore {semaphore:?} is no longer held by this token")]
    SlotLost {
        /// The semaphore's name.
        semaphore: String,
        /// The slot's number.
        number: u32,
    },

    /// The semaphore has no rows in the database yet, or fewer than permits, and the transaction is open. The rows are
    /// not created in an open transaction: other sessions would have to wait for its end.
    #[error(
        "the semaphore {semaphore:?} has rows for fewer than {} in the database: call \
         register_semaphores outside of a transaction first", counted(*permits, "permit")
    )]
    NotRegistered {
        /// The semaphore's name.
        semaphore: String,
        /// The number of permits.
        permits: u32,
    },

    /// The first number of the sequence is below 1. Nothing was sent to the database.
    #[error("{sequence} can't start with {start}: 1 to {} are allowed", i64::MAX)]
    InvalidStart {
        /// The sequence.
        sequence: String,
        /// The first number requested.
        start: i64,
    },

    /// [`next_numbers`](crate::SequenceExt::next_numbers) was called with a count of 0. Nothing was sent to the
    /// database.
    #[error(
        "can't draw {} of {sequence}: 1 to {} are allowed",
        counted(*count, "number"), u32::MAX
    )]
    InvalidCount {
        /// The sequence.
        sequence: String,
        /// The count requested.
        count: u32,
    },

    /// The sequence has fewer numbers left than requested. None was drawn.
    #[error(
        "{sequence} has fewer than {} left: the last number drawn is {last}, the largest possible is {}",
        counted(*count, "number"), i64::MAX
    )]
    SequenceExhausted {
        /// The sequence.
        sequence: String,
        /// The count requested.
        count: u32,
        /// The last number drawn; one less than the first number if none was drawn yet.
        last: i64,
    },

    /// The [`RetryPolicy`](crate::RetryPolicy) allows no attempt. Nothing was sent to the database.
    #[error("a transaction can have 1 to {} attempts, not {attempts}", u32::MAX)]
    InvalidRetry {
        /// The number of attempts requested.
        attempts: u32,
    },

    /// The engine does not support the isolation level or mode. Nothing was sent to the database.
    #[error("{engine} does not support {mode} transactions: {hint}")]
    Unsupported {
        /// The engine.
        engine: &'static str,
        /// The isolation level or mode requested.
        mode: String,
        /// What to use instead.
        hint: &'static str,
    },

    /// [`Wait::AtMost`] is longer than [`Wait::LONGEST`]. Nothing was sent to the database.
    #[error(
        "can't wait for {}: the longest wait is {} (about 24.8 days)",
        Exact(*requested), Exact(Wait::LONGEST)
    )]
    InvalidWait {
        /// The duration requested.
        requested: Duration,
    },

    /// The method was called without an open transaction. It would have no effect: its lock or number would end with
    /// the statement.
    #[error(
        "{method} needs an open transaction: open one with with_object_lock, run_transaction or Diesel's transaction"
    )]
    NotInTransaction {
        /// The method's name.
        method: &'static str,
    },

    /// The method was called inside an open transaction, and can't run there.
    #[error("{method} can't run inside an open transaction: {reason}")]
    AlreadyInTransaction {
        /// The method's name.
        method: &'static str,
        /// What would go wrong.
        reason: &'static str,
    },

    /// The transaction can't be committed as a whole: the server has ended it, or will only roll it back.
    ///
    /// The causes: an earlier statement failed and the closure did not return its error (a deadlock; any error on
    /// PostgreSQL); COMMIT or ROLLBACK was sent as text; `INSERT OR ROLLBACK` ended the transaction on SQLite; the
    /// closure left more or fewer transactions open than it started with.
    ///
    /// A method returns this error instead of locking or drawing. At the end of a closure it replaces the closure's
    /// `Ok`, and the transaction is rolled back. It also replaces a retryable error if the closure had ended the
    /// transaction, and so may have committed it. It is never retried.
    #[error(
        "the transaction can't be committed: {reason}; return the error of each statement, and leave COMMIT and \
         ROLLBACK to the method that started the transaction"
    )]
    TransactionAborted {
        /// What is known about the cause.
        reason: String,
        /// The database's error, if there was one.
        source: Option<diesel::result::Error>,
    },

    /// The lock or all slots are held, and the request does not wait ([`Wait::No`]).
    #[error("{resource}: not acquired, already held")]
    Unavailable {
        /// The object ids, or the semaphore.
        resource: String,
    },

    /// The lock or a slot was not acquired within the limit of the request, or of the session.
    #[error("{resource}: not acquired within {}{}", Rounded(*waited), limit_shown(*limit))]
    LockTimeout {
        /// The object ids, or the semaphore.
        resource: String,
        /// How long the request waited.
        waited: Duration,
        /// The limit of the request ([`Wait::AtMost`]); `None` if a limit of the session or the server ended the wait.
        limit: Option<Duration>,
        /// The database's error; `None` if a statement ended the wait without an error.
        source: Option<diesel::result::Error>,
    },

    /// The transaction may read data older than the lock: its isolation level uses one snapshot, or, on SQLite, it has
    /// read before another connection wrote.
    #[error("can't acquire {resource} in this transaction: {reason}")]
    UnsuitableIsolation {
        /// The object ids, or the semaphore.
        resource: String,
        /// The isolation level, and what to do.
        reason: String,
    },

    /// Several nodes of the cluster take writes, so that a lock on one node does not exclude sessions on the others.
    ///
    /// Returned by object locks, slots of transactions, [`pin_slot`](crate::SemaphoreExt::pin_slot), sequences, and
    /// everything that relies on such a lock. Leases are safe on Galera and Group Replication. See
    /// [`assume_single_writer`](crate::assume_single_writer).
    #[error(
        "{cluster} takes writes on several nodes, and a lock on one node does not exclude sessions on the others: {hint}"
    )]
    SeveralWriters {
        /// The cluster.
        cluster: &'static str,
        /// What to do.
        hint: &'static str,
    },

    /// The transaction, the user or the server is read-only (`READ ONLY`, a hot standby). A lock needs a write, even
    /// one that leaves no row behind.
    #[error("a lock needs a write, and the transaction, the user or the server is read-only")]
    ReadOnly {
        /// The database's error.
        source: diesel::result::Error,
    },

    /// The tables of this crate do not exist, or, on PostgreSQL, the user does not see their schema.
    #[error(
        "the tables of diesel-locks are missing: call diesel_locks::migrate(&mut conn) first (if they exist: \
         add their schema to the search_path, and grant the user USAGE on it)"
    )]
    MissingTables {
        /// The database's error.
        source: diesel::result::Error,
    },

    /// The database user lacks a privilege on a table or function of this crate. See
    /// [Rights](crate::_documentation::rights).
    #[error(
        "the database user lacks a privilege on {object}; diesel-locks needs {privileges} on it: see \"Rights that \
         an application needs\" in its documentation"
    )]
    InsufficientPrivilege {
        /// The table or function.
        object: &'static str,
        /// All privileges on it that this crate needs.
        privileges: &'static str,
        /// The database's error.
        source: diesel::result::Error,
    },

    /// PostgreSQL does not know a prepared statement of this connection, or has another one under its name.
    ///
    /// The cause is a pooler in transaction mode, which runs each transaction in any session, or `DISCARD ALL` or
    /// `DEALLOCATE ALL`. The statement may be the application's own: Diesel prepares those too. A pooler may also run
    /// the wrong statement without an error: see [Through a transaction
    /// pooler](crate::_documentation::pgbouncer).
    #[error(
        "the session does not have the prepared statements of this connection (transaction pooler, or DISCARD ALL): call \
         conn.set_prepared_statement_cache_size(CacheSize::Disabled) on each connection, or set \
         max_prepared_statements in PgBouncer 1.21 or newer; see \"Through a transaction pooler\" in the \
         documentation of diesel-locks"
    )]
    PreparedStatementMismatch {
        /// The database's error.
        source: diesel::result::Error,
    },

    /// PostgreSQL's lock table, which all sessions share, is full. Each locked object with a kept row takes an entry,
    /// and so does each table that a transaction uses.
    #[error(
        "the server's lock table is full: lock fewer kept objects at the same time, or raise \
         max_locks_per_transaction"
    )]
    LockTableFull {
        /// The database's error.
        source: diesel::result::Error,
    },

    /// The database broke a deadlock and chose this transaction as the victim. Roll back the whole transaction; it may
    /// be retried.
    #[error("deadlock: the database chose this transaction as the victim")]
    Deadlock {
        /// The database's error.
        source: diesel::result::Error,
    },

    /// The transaction conflicts with a concurrent transaction. Roll it back; it may be retried.
    #[error("serialization failure: the transaction conflicts with a concurrent transaction")]
    SerializationFailure {
        /// The database's error.
        source: diesel::result::Error,
    },

    /// The outcome of COMMIT is unknown.
    ///
    /// COMMIT failed on a node of Galera or Group Replication that had lost the others, or whose replication failed; on
    /// MySQL and MariaDB also when the connection was lost or the statement killed during COMMIT. This crate never
    /// retries it: check first whether the writes are there.
    #[error(
        "the outcome of COMMIT is unknown: check whether its writes are there before you run the transaction again"
    )]
    OutcomeUnknown {
        /// The database's error.
        source: diesel::result::Error,
    },

    /// A time-out of the session cancelled a statement: `lock_timeout`, `statement_timeout`,
    /// `innodb_lock_wait_timeout`, `max_execution_time`, SQLite's `busy_timeout`.
    #[error(
        "a time-out of the session (lock_timeout, statement_timeout, innodb_lock_wait_timeout, max_execution_time, \
         busy_timeout) cancelled the statement"
    )]
    StatementTimeout {
        /// The database's error.
        source: diesel::result::Error,
    },

    /// The client library of MySQL or MariaDB returns empty strings instead of the server's.
    ///
    /// Object locks, leases and sequences need no strings and work. [`migrate`](crate::migrate),
    /// [`held_slots`](crate::SemaphoreExt::held_slots) and the methods that purge return this error. The application's
    /// own queries lose strings in the same way.
    #[error(
        "the client library of MySQL or MariaDB returns empty strings: libmariadb (MariaDB Connector/C) 3.3.19 \
         and 3.4.9 do so with Diesel up to 2.3.14, because of their defect CONC-821; install libmariadb 3.3.20, \
         3.4.10 or newer (Debian 12: with its security updates), or MySQL's libmysqlclient"
    )]
    BrokenClientLibrary,

    /// The pool gave no connection within its time-out.
    #[cfg(feature = "r2d2")]
    #[cfg_attr(docsrs, doc(cfg(feature = "r2d2")))]
    #[error("the pool gave no connection within its time-out")]
    Pool(#[from] diesel::r2d2::PoolError),

    /// A migration failed.
    #[error("a migration of diesel-locks failed")]
    Migration(#[source] Box<dyn std::error::Error + Send + Sync>),

    /// Any other error of the database.
    #[error(transparent)]
    Database(diesel::result::Error),
}

fn limit_shown(limit: Option<Duration>) -> String {
    limit.map_or_else(
        || " (a limit of the session or the server ended the wait)".to_owned(),
        |limit| format!(" (limit {})", Exact(limit)),
    )
}

impl Error {
    /// Finds an error of this crate in any error: the error itself, one of its sources, or an error of Diesel that
    /// wraps it ([`QueryBuilderError`](diesel::result::Error::QueryBuilderError), which `?` makes in a function that
    /// returns `QueryResult`).
    ///
    /// A time-out is a [`LockTimeout`](Error::LockTimeout) here also when the application sees it as Diesel's error.
    /// An error of Diesel's that this crate did not return is `None`, as it says nothing about a lock. So is an error that
    /// contains this one without having it as its source: with `thiserror`, give the variant a text of its own instead of
    /// `#[error(transparent)]`.
    ///
    /// ```
    /// use diesel_locks::Error;
    ///
    /// let unavailable = Error::Unavailable { resource: "Order:4711".to_owned() };
    /// let from_a_query = diesel::result::Error::from(unavailable);
    /// assert!(Error::find(&from_a_query).is_some_and(Error::is_unavailable));
    /// assert!(Error::find(&diesel::result::Error::NotFound).is_none());
    /// ```
    pub fn find<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Self> {
        std::iter::successors(Some(error), |error| inner(*error)).find_map(|error| Self::of(error))
    }

    /// The error itself, without its sources.
    pub(crate) fn of<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Self> {
        let boxed = error.downcast_ref::<Origin>().map(|origin| &origin.0);
        boxed.or_else(|| error.downcast_ref())
    }

    /// Returns whether a wait timed out: [`Error::LockTimeout`] for the lock itself, [`Error::StatementTimeout`] for
    /// another statement of the transaction.
    pub fn is_timeout(&self) -> bool {
        matches!(
            self,
            Self::LockTimeout { .. } | Self::StatementTimeout { .. }
        )
    }

    /// Returns whether the lock or all slots are held ([`Error::Unavailable`]).
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// Returns whether the token no longer holds the slot ([`Error::SlotLost`]).
    pub fn is_slot_lost(&self) -> bool {
        matches!(self, Self::SlotLost { .. })
    }

    /// Returns whether the database chose this transaction as the victim of a deadlock ([`Error::Deadlock`]).
    pub fn is_deadlock(&self) -> bool {
        matches!(self, Self::Deadlock { .. })
    }

    /// Returns whether the transaction conflicts with a concurrent one ([`Error::SerializationFailure`]).
    pub fn is_serialization_failure(&self) -> bool {
        matches!(self, Self::SerializationFailure { .. })
    }

    /// Returns whether the transaction may succeed if it is run again from its start: after a deadlock or a serialization
    /// failure.
    pub fn is_retryable(&self) -> bool {
        self.is_deadlock() || self.is_serialization_failure()
    }

    /// Returns whether the server has ended the transaction, or will only roll it back
    /// ([`Error::TransactionAborted`]).
    pub fn is_transaction_aborted(&self) -> bool {
        matches!(self, Self::TransactionAborted { .. })
    }

    /// Returns whether the transaction, the user or the server is read-only ([`Error::ReadOnly`]).
    pub fn is_read_only(&self) -> bool {
        matches!(self, Self::ReadOnly { .. })
    }

    /// Returns whether the tables of this crate are missing ([`Error::MissingTables`]): the migrations have not run.
    pub fn is_missing_tables(&self) -> bool {
        matches!(self, Self::MissingTables { .. })
    }

    /// Returns whether the database user lacks a privilege ([`Error::InsufficientPrivilege`]).
    pub fn is_insufficient_privilege(&self) -> bool {
        matches!(self, Self::InsufficientPrivilege { .. })
    }

    pub(crate) fn from_class(class: ErrorClass, source: diesel::result::Error) -> Self {
        match class {
            ErrorClass::Deadlock => Self::Deadlock { source },
            ErrorClass::SerializationFailure => Self::SerializationFailure { source },
            ErrorClass::LockTimeout
            | ErrorClass::Busy
            | ErrorClass::LockNotAvailable
            | ErrorClass::StatementTimeout => Self::StatementTimeout { source },
            ErrorClass::ReadOnly => Self::ReadOnly { source },
            ErrorClass::MissingTables => Self::MissingTables { source },
            ErrorClass::InsufficientPrivilege(RequiredPrivilege { object, privileges }) => {
                Self::InsufficientPrivilege {
                    object,
                    privileges,
                    source,
                }
            }
            ErrorClass::PreparedStatementMismatch => Self::PreparedStatementMismatch { source },
            ErrorClass::OutcomeUnknown => Self::OutcomeUnknown { source },
            ErrorClass::TooManyIds { ids, limit } => Self::TooManyIds { ids, limit },
            ErrorClass::LockTableFull => Self::LockTableFull { source },
            ErrorClass::TransactionAborted => Self::TransactionAborted {
                reason: "an earlier statement has failed".to_owned(),
                source: Some(source),
            },
            ErrorClass::Other => Self::Database(source),
        }
    }
}

impl From<diesel::result::Error> for Error {
    /// Classifies the database's error by its message. An error of this crate that was converted into a
    /// [`diesel::result::Error`] is restored.
    fn from(error: diesel::result::Error) -> Self {
        match error {
            diesel::result::Error::QueryBuilderError(inner) => match inner.downcast::<Boxed>() {
                Ok(boxed) => boxed.0.0,
                Err(inner) => match inner.downcast::<Self>() {
                    Ok(error) => *error,
                    Err(inner) => Self::Database(diesel::result::Error::QueryBuilderError(inner)),
                },
            },
            // Diesel adds the column's name.
            diesel::result::Error::DeserializationError(inner)
                if Self::find(&*inner)
                    .is_some_and(|own| matches!(own, Self::BrokenClientLibrary)) =>
            {
                Self::BrokenClientLibrary
            }
            error => Self::from_class(classify::classify(&error), error),
        }
    }
}

/// What [`QueryBuilderError`](diesel::result::Error::QueryBuilderError) boxes.
///
/// Diesel's errors hand out the source of what they box, and not the box. An application's error that is transparent
/// around Diesel's hands out that source too. So the error of this crate has to be a source.
#[derive(Debug, Error)]
#[error("{}", .0.0)]
struct Boxed(#[source] Origin);

#[derive(Debug)]
struct Origin(Error);

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("returned by diesel-locks")
    }
}

impl std::error::Error for Origin {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

/// The next error in the chain. Diesel's errors that box another one do not all have it as their source.
fn inner<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> Option<&'a (dyn std::error::Error + 'static)> {
    use diesel::result::Error as Diesel;

    match error.downcast_ref::<Diesel>() {
        Some(
            Diesel::QueryBuilderError(boxed)
            | Diesel::DeserializationError(boxed)
            | Diesel::SerializationError(boxed),
        ) => Some(&**boxed),
        Some(Diesel::RollbackErrorOnCommit { commit_error, .. }) => Some(&**commit_error),
        Some(_) => None,
        None => error.source(),
    }
}

impl From<Error> for diesel::result::Error {
    /// Returns the database's own error where this crate adds nothing to it. Boxes any other error in
    /// [`QueryBuilderError`](diesel::result::Error::QueryBuilderError); [`Error::from`] and [`Error::find`] restore it.
    fn from(error: Error) -> Self {
        match error {
            Error::Database(source)
            | Error::Deadlock { source }
            | Error::SerializationFailure { source }
            | Error::OutcomeUnknown { source }
            | Error::StatementTimeout { source } => source,
            error => Self::QueryBuilderError(Box::new(Boxed(Origin(error)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeout() -> Error {
        Error::LockTimeout {
            resource: "a".to_owned(),
            waited: Duration::from_micros(516_308),
            limit: Some(Duration::from_millis(500)),
            source: None,
        }
    }

    #[derive(Debug, Error)]
    enum Application {
        #[error("query")]
        Query(#[from] diesel::result::Error),
        #[error(transparent)]
        Transparent(diesel::result::Error),
        #[error("lock")]
        Lock(#[source] Error),
        #[error("nested")]
        Nested(#[source] Box<dyn std::error::Error + Send + Sync>),
    }

    #[test]
    fn time_out_is_found_in_any_error() {
        let query = || diesel::result::Error::from(timeout());
        let errors: [Box<dyn std::error::Error + Send + Sync>; 7] = [
            timeout().into(),
            query().into(),
            Application::from(query()).into(),
            Application::Transparent(query()).into(),
            Application::Lock(timeout()).into(),
            Application::Nested(Application::from(query()).into()).into(),
            anyhow::Error::from(query()).context("order").into(),
        ];
        for error in errors {
            let found = Error::find(&*error).expect("a time-out");
            assert!(found.is_timeout(), "{error:?}");
        }
    }

    #[test]
    fn errors_of_others_are_not_found() {
        for error in [
            diesel::result::Error::NotFound,
            diesel::result::Error::QueryBuilderError("bad query".into()),
        ] {
            assert!(Error::find(&Application::from(error)).is_none());
        }
    }

    #[test]
    fn time_out_shows_its_limit_as_requested() {
        assert_eq!(
            timeout().to_string(),
            "a: not acquired within 516 ms (limit 500 ms)"
        );
    }
}
