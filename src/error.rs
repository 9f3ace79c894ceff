//! What can go wrong, one type for all engines.

pub(crate) mod classify;

use std::time::Duration;

use thiserror::Error;

use crate::limits::{LONGEST_LEASE, MAX_PERMITS, SHORTEST_LEASE};
use crate::{InvalidName, InvalidObjectId, Wait};
use classify::{ErrorClass, RequiredPrivilege};

/// Why a lock was not had, or a transaction around it did not end well.
///
/// It is made from [`diesel::result::Error`], and `?` turns it back into one: a closure may return
/// either, or any error of the application's that is made from this one. The text says what is wrong and
/// what to do; the database's own error, with its message, details and hint, is the
/// [`source`](std::error::Error::source).
///
/// Diesel does not hand on the numbers of errors (SQLSTATE, errno). On MySQL and MariaDB this crate
/// asks the server for the number; on PostgreSQL it compares messages with the server's own in all
/// languages that PostgreSQL 15 to 18 ship; on SQLite there is one language. A message that it does
/// not know stays [`Error::Database`].
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// An id can't be used; nothing was sent to the database.
    #[error(transparent)]
    InvalidObjectId(#[from] InvalidObjectId),

    /// More kept objects than one request can lock: with [`Retention::Kept`](crate::Retention::Kept), and nothing was
    /// sent to the database; or with [`Retention::Transient`](crate::Retention::Transient) on PostgreSQL, where their
    /// rows are kept, and none was locked. Split the request, or lock them as transient and
    /// [purge](crate::ObjectLockExt::purge_object_locks) the rows.
    #[error(
        "{ids} of the objects to lock are kept; one request can lock {limit} of them: split it, or use \
         Retention::Transient"
    )]
    TooManyIds {
        /// How many were asked for.
        ids: usize,
        /// How many are possible: [`MAX_KEPT_IDS`](crate::MAX_KEPT_IDS).
        limit: usize,
    },

    /// A name or a holder's text can't be used; nothing was sent to the database.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),

    /// A semaphore with no permits, or with more than [`MAX_PERMITS`]; nothing was sent to the database.
    #[error("a semaphore has 1 to {MAX_PERMITS} permits; {semaphore:?} has {permits}")]
    InvalidPermits {
        /// The semaphore's name.
        semaphore: String,
        /// The number of permits.
        permits: u32,
    },

    /// A lease that is too short or too long; nothing was sent to the database.
    #[error(
        "can't lease a slot for {requested:?}: {reason} ({:?} to {:?} are possible)",
        SHORTEST_LEASE,
        LONGEST_LEASE
    )]
    InvalidLease {
        /// The duration asked for.
        requested: Duration,
        /// Which limit.
        reason: &'static str,
    },

    /// [`raise_fences`](crate::SemaphoreExt::raise_fences) by so much time that no years of grants would be left.
    #[error(
        "can't raise fences by {requested:?}: they would be beyond the year 2100, and end in 2112"
    )]
    FencesTooLarge {
        /// The time asked for.
        requested: Duration,
    },

    /// The slot is not ours any more: it was granted to another after the lease had ended, released
    /// before, taken away by [`force_release_all`](crate::SemaphoreExt::force_release_all), or never ours.
    #[error("slot {number} of the semaphore {semaphore:?} is not ours any more")]
    SlotLost {
        /// The semaphore's name.
        semaphore: String,
        /// The slot's number.
        number: u32,
    },

    /// The semaphore has no rows in the database yet, or too few, and inside an open transaction they
    /// can't be made without others having to wait for its end.
    #[error(
        "the semaphore {semaphore:?} is new, or has more permits ({permits}) than before: call \
         register_semaphores outside of a transaction first"
    )]
    NotRegistered {
        /// The semaphore's name.
        semaphore: String,
        /// The number of permits.
        permits: u32,
    },

    /// A sequence that is to start below 1; nothing was sent to the database.
    #[error(
        "a sequence starts at 1 to {}; {sequence} is to start at {start}",
        i64::MAX
    )]
    InvalidStart {
        /// The sequence.
        sequence: String,
        /// The number asked for.
        start: i64,
    },

    /// [`next_numbers`](crate::SequenceExt::next_numbers) was asked for no number; nothing was sent to the
    /// database.
    #[error(
        "can't draw {count} numbers of {sequence}: 1 to {} are possible",
        u32::MAX
    )]
    InvalidCount {
        /// The sequence.
        sequence: String,
        /// How many were asked for.
        count: u32,
    },

    /// The sequence does not have that many numbers left; none was drawn.
    #[error(
        "{sequence} has no {count} numbers left: the last drawn is {last}, the largest is {}",
        i64::MAX
    )]
    SequenceExhausted {
        /// The sequence.
        sequence: String,
        /// How many were asked for.
        count: u32,
        /// The number drawn last; one less than the first when none was drawn yet.
        last: i64,
    },

    /// A [`RetryPolicy`](crate::RetryPolicy) without an attempt; nothing was sent to the database.
    #[error("a transaction is tried 1 to {} times, not {attempts}", u32::MAX)]
    InvalidRetry {
        /// How many attempts were asked for.
        attempts: u32,
    },

    /// A transaction is to be what this engine does not have; nothing was sent to the database.
    #[error("{engine} has no {mode} transactions: {hint}")]
    Unsupported {
        /// The engine.
        engine: &'static str,
        /// The isolation level or mode asked for.
        mode: String,
        /// What it has.
        hint: &'static str,
    },

    /// [`Wait::AtMost`] with more than [`Wait::LONGEST`]; nothing was sent to the database.
    #[error(
        "can't wait for {requested:?}: the longest is {:?} (about 24.8 days)",
        Wait::LONGEST
    )]
    InvalidWait {
        /// The duration asked for.
        requested: Duration,
    },

    /// The method needs an open transaction: a lock that ends with the statement would lock nothing.
    #[error(
        "{method} needs an open transaction: with_object_lock opens one, and so does Diesel's transaction"
    )]
    NotInTransaction {
        /// The method's name.
        method: &'static str,
    },

    /// The method needs a connection without an open transaction.
    #[error("{method} can't run inside an open transaction: {reason}")]
    AlreadyInTransaction {
        /// The method's name.
        method: &'static str,
        /// What would go wrong.
        reason: &'static str,
    },

    /// The transaction can't be committed as the whole that it should be: the server has ended it, or will
    /// only roll it back. A statement before failed and its error was not handed on (a deadlock, any error on
    /// PostgreSQL), or COMMIT or ROLLBACK was sent as text, or `INSERT OR ROLLBACK` ended it on SQLite, or the
    /// closure left another number of transactions open than there were when it began.
    ///
    /// A method returns it instead of locking or drawing. At the end of a closure it is returned instead of
    /// `Ok`, and the transaction is rolled back; and instead of an error that would be tried again, when the closure
    /// had ended the transaction, and so may have committed it. It is not tried again.
    #[error(
        "the transaction can't be committed: {reason}; hand on the error of each statement, and let only the \
         method that began a transaction end it"
    )]
    TransactionAborted {
        /// What is known of how it came.
        reason: String,
        /// The database's error, if there was one.
        source: Option<diesel::result::Error>,
    },

    /// Another holds the lock, or others hold all slots, and the request was not to wait
    /// ([`Wait::No`]).
    #[error("{resource}: held by another")]
    Unavailable {
        /// The ids asked for, or the semaphore.
        resource: String,
    },

    /// The lock, or a slot, was not free within the time asked for, or the session's own limit ended the
    /// wait.
    #[error("{resource}: not free within {waited:?}")]
    LockTimeout {
        /// The ids asked for, or the semaphore.
        resource: String,
        /// How long the wait lasted.
        waited: Duration,
        /// The database's error; `None` where a statement ended the wait without one.
        source: Option<diesel::result::Error>,
    },

    /// The transaction's isolation level, or on SQLite its snapshot, is older than the lock: what it
    /// reads could be older than what the last holder committed.
    #[error("can't lock {resource} in this transaction: {reason}")]
    UnsuitableIsolation {
        /// The ids asked for, or the semaphore.
        resource: String,
        /// Which level, and what to do.
        reason: String,
    },

    /// Several nodes of the cluster take writes, so that a lock on one excludes nobody on the others: object
    /// locks, slots of transactions, [`pin_slot`](crate::SemaphoreExt::pin_slot), numbers of sequences, and what
    /// relies on such a lock. Leases hold on Galera and Group Replication. See
    /// [`assume_single_writer`](crate::assume_single_writer).
    #[error(
        "{cluster} takes writes on several nodes, and a lock on one excludes nobody on the others: {hint}"
    )]
    SeveralWriters {
        /// The cluster.
        cluster: &'static str,
        /// What to do.
        hint: &'static str,
    },

    /// The transaction, the user or the server may not write (a hot standby, `READ ONLY`). A lock is a
    /// write, even where it leaves nothing behind.
    #[error("a lock needs a transaction that may write, on a server that takes writes")]
    ReadOnly {
        /// The database's error.
        source: diesel::result::Error,
    },

    /// The tables of this crate are not in the database, or on PostgreSQL not where the user sees them.
    #[error(
        "the tables of diesel-locks are missing: call diesel_locks::migrate(&mut conn) first (if they are \
         there: is their schema in the search_path, and has the user USAGE on it?)"
    )]
    MissingTables {
        /// The database's error.
        source: diesel::result::Error,
    },

    /// The database's user lacks a right on a table or function of this crate's; see
    /// [Rights](crate::_documentation::rights).
    #[error(
        "the database's user lacks a right on {object}, on which diesel-locks needs {privileges}: see \"Rights that \
         an application needs\" in its documentation"
    )]
    InsufficientPrivilege {
        /// The table or function.
        object: &'static str,
        /// All rights on it that this crate needs.
        privileges: &'static str,
        /// The database's error.
        source: diesel::result::Error,
    },

    /// PostgreSQL does not know a statement that this connection has prepared, or knows it from another:
    /// between the two a pooler in transaction mode hands each transaction to any session, or somebody has
    /// sent `DISCARD ALL` or `DEALLOCATE ALL`. The statement may be the application's own, as Diesel prepares
    /// those too. A pooler may as well have run the other's statement without an error: see [Through a transaction
    /// pooler](crate::_documentation::pgbouncer).
    #[error(
        "prepared statements are mixed up, by a transaction pooler if not by DISCARD ALL: call \
         conn.set_prepared_statement_cache_size(CacheSize::Disabled) on each connection, or set \
         max_prepared_statements in PgBouncer 1.21 or newer; see \"Through a transaction pooler\" in the \
         documentation of diesel-locks"
    )]
    PreparedStatementMismatch {
        /// The database's error.
        source: diesel::result::Error,
    },

    /// PostgreSQL's table of locks is full, for all sessions: each object with a kept row takes a place in it while it is
    /// locked, and so does each table that a transaction uses.
    #[error(
        "the server's table of locks is full: lock fewer kept objects at the same time, or raise \
         max_locks_per_transaction"
    )]
    LockTableFull {
        /// The database's error.
        source: diesel::result::Error,
    },

    /// The database broke a cycle of transactions that waited for each other, with this one as the
    /// victim. The whole transaction must be rolled back and may be tried again.
    #[error("the database broke a deadlock and chose this transaction as its victim")]
    Deadlock {
        /// The database's error.
        source: diesel::result::Error,
    },

    /// The transaction can't be put in order with others that ran at the same time. It must be rolled
    /// back and may be tried again.
    #[error("the transaction can't be put in order with others that ran at the same time")]
    SerializationFailure {
        /// The database's error.
        source: diesel::result::Error,
    },

    /// Nobody knows whether the transaction is committed: COMMIT failed on a node of Galera or Group Replication
    /// that had lost the others, or whose replication failed; on MySQL and MariaDB also when the connection was lost, or
    /// the statement killed, once COMMIT was sent. It is never tried again by this crate: what it was to
    /// write is to be looked for first.
    #[error(
        "nobody knows whether the transaction is committed: look for what it wrote before it is run again"
    )]
    OutcomeUnknown {
        /// The database's error.
        source: diesel::result::Error,
    },

    /// A limit of the session's ended another statement: `lock_timeout`, `statement_timeout`,
    /// `innodb_lock_wait_timeout`, `max_execution_time`, SQLite's `busy_timeout`.
    #[error("a limit of the session's on waiting ended a statement")]
    StatementTimeout {
        /// The database's error.
        source: diesel::result::Error,
    },

    /// The client library of MySQL or MariaDB hands out empty texts in place of those that the server sent.
    /// Object locks, leases and sequences do without texts and go on;
    /// [`migrate`](crate::migrate), [`held_slots`](crate::SemaphoreExt::held_slots) and the methods that purge
    /// do not. The application's own texts are lost in the same way.
    #[error(
        "the client library of MySQL or MariaDB hands out empty texts: libmariadb (MariaDB Connector/C) 3.3.19 \
         and 3.4.9 do so to Diesel up to 2.3.14, because of their defect CONC-821; install libmariadb 3.3.20, \
         3.4.10 or newer (Debian 12: with its security updates), or MySQL's libmysqlclient"
    )]
    BrokenClientLibrary,

    /// The pool has no connection to give within its time-out.
    #[cfg(feature = "r2d2")]
    #[cfg_attr(docsrs, doc(cfg(feature = "r2d2")))]
    #[error("the pool has no connection to give")]
    Pool(#[from] diesel::r2d2::PoolError),

    /// Migrating failed.
    #[error("migrating the tables of diesel-locks failed")]
    Migration(#[source] Box<dyn std::error::Error + Send + Sync>),

    /// Any other error of the database.
    #[error(transparent)]
    Database(diesel::result::Error),
}

impl Error {
    /// A wait came to its end: [`Error::LockTimeout`] for the lock itself, [`Error::StatementTimeout`] for
    /// another statement of the transaction.
    pub fn is_timeout(&self) -> bool {
        matches!(
            self,
            Self::LockTimeout { .. } | Self::StatementTimeout { .. }
        )
    }

    /// Another holds the lock, or others all slots ([`Error::Unavailable`]).
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// The slot is not ours any more ([`Error::SlotLost`]).
    pub fn is_slot_lost(&self) -> bool {
        matches!(self, Self::SlotLost { .. })
    }

    /// The database broke a deadlock, with this transaction as the victim.
    pub fn is_deadlock(&self) -> bool {
        matches!(self, Self::Deadlock { .. })
    }

    /// The transaction can't be put in order with others.
    pub fn is_serialization_failure(&self) -> bool {
        matches!(self, Self::SerializationFailure { .. })
    }

    /// The same transaction, from its beginning, may succeed: a deadlock or a serialization failure.
    pub fn is_retryable(&self) -> bool {
        self.is_deadlock() || self.is_serialization_failure()
    }

    /// The server has ended the transaction, or will only roll it back ([`Error::TransactionAborted`]).
    pub fn is_transaction_aborted(&self) -> bool {
        matches!(self, Self::TransactionAborted { .. })
    }

    /// The transaction, the user or the server may not write.
    pub fn is_read_only(&self) -> bool {
        matches!(self, Self::ReadOnly { .. })
    }

    /// The migrations of this crate have not run.
    pub fn is_missing_tables(&self) -> bool {
        matches!(self, Self::MissingTables { .. })
    }

    /// The database's user lacks a right ([`Error::InsufficientPrivilege`]).
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
                reason: "a statement before has failed".to_owned(),
                source: Some(source),
            },
            ErrorClass::Other => Self::Database(source),
        }
    }
}

impl From<diesel::result::Error> for Error {
    /// Tells the kinds of errors apart, as far as the message allows. An error of this crate that went
    /// through [`diesel::result::Error`] comes out again as it was.
    fn from(error: diesel::result::Error) -> Self {
        match error {
            diesel::result::Error::QueryBuilderError(inner) => match inner.downcast::<Self>() {
                Ok(own) => *own,
                Err(inner) => Self::Database(diesel::result::Error::QueryBuilderError(inner)),
            },
            // Diesel adds the column's name.
            diesel::result::Error::DeserializationError(inner)
                if own_in(&*inner).is_some_and(|own| matches!(own, Self::BrokenClientLibrary)) =>
            {
                Self::BrokenClientLibrary
            }
            error => Self::from_class(classify::classify(&error), error),
        }
    }
}

/// The error of this crate that is the error, or its source.
fn own_in<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Error> {
    std::iter::successors(Some(error), |error| error.source())
        .find_map(|error| error.downcast_ref())
}

impl From<Error> for diesel::result::Error {
    /// The database's own error where there is nothing more to say, else the error of this crate boxed
    /// in [`QueryBuilderError`](diesel::result::Error::QueryBuilderError), from which
    /// [`Error::from`] takes it out again.
    fn from(error: Error) -> Self {
        match error {
            Error::Database(source)
            | Error::Deadlock { source }
            | Error::SerializationFailure { source }
            | Error::OutcomeUnknown { source }
            | Error::StatementTimeout { source } => source,
            error => Self::QueryBuilderError(Box::new(error)),
        }
    }
}
