//! The predicates of an error, and the error for a class of database errors.

use super::Error;
use super::classify::{ErrorClass, RequiredPrivilege};
use super::texts::NEWER_SQLITE;
#[cfg(feature = "_async_pool")]
use super::{AsyncPoolError, PoolStep};

impl Error {
    /// Returns whether a wait timed out: [`Error::LockTimeout`] for a lock or slot, [`Error::StatementTimeout`] for
    /// another statement of the transaction. False for `Error::Pool` and `Error::AsyncPool`, which may also mean that the
    /// database is out of reach.
    pub fn is_timeout(&self) -> bool {
        match self {
            Self::LockTimeout { .. } | Self::StatementTimeout { .. } => true,
            Self::PartlyLocked { source, .. } => source.is_timeout(),
            _ => false,
        }
    }

    /// Returns whether the request may succeed later, because another session, or all connections of the pool, are busy
    /// now: [`Error::LockTimeout`], [`Error::Unavailable`], [`Error::StatementTimeout`], `Error::Pool`,
    /// `Error::AsyncPool`, unless that pool is closed or set up wrongly; or whether the application has stopped it
    /// (`Error::Stopped`). A web service answers 503.
    pub fn is_busy(&self) -> bool {
        #[cfg(feature = "_pool")]
        if self.has_no_connection_yet() || matches!(self, Self::Stopped { .. }) {
            return true;
        }
        self.is_timeout() || self.is_unavailable()
    }

    /// Returns whether a pool gave no connection.
    #[cfg(feature = "_pool")]
    pub(crate) fn is_pool(&self) -> bool {
        match self {
            #[cfg(feature = "r2d2")]
            Self::Pool(_) => true,
            #[cfg(feature = "_async_pool")]
            Self::AsyncPool(_) => true,
            _ => false,
        }
    }

    /// Returns whether a pool gave no connection, and may give one later.
    #[cfg(feature = "_pool")]
    pub(crate) fn has_no_connection_yet(&self) -> bool {
        #[cfg(feature = "_async_pool")]
        if let Self::AsyncPool(AsyncPoolError::Closed | AsyncPoolError::Other(_)) = self {
            return false;
        }
        self.is_pool()
    }

    /// Returns whether a pool could not open a connection, or the database did not answer to it. False if its connections
    /// may all have been in use: r2d2 and bb8 do not tell. These retry by themselves until their time-out.
    #[cfg(feature = "_pool")]
    #[cfg_attr(
        not(feature = "_async_pool"),
        expect(clippy::unused_self, reason = "r2d2 does not tell")
    )]
    pub(crate) fn is_out_of_reach(&self) -> bool {
        #[cfg(feature = "_async_pool")]
        if let Self::AsyncPool(error) = self {
            return match error {
                AsyncPoolError::Connection(_) | AsyncPoolError::Hook(_) => true,
                AsyncPoolError::TimedOut { step, .. } => *step == Some(PoolStep::Connect),
                AsyncPoolError::Closed | AsyncPoolError::Other(_) => false,
            };
        }
        false
    }

    /// Returns whether the lock or all slots are held ([`Error::Unavailable`]).
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::Unavailable { .. } => true,
            Self::PartlyLocked { source, .. } => source.is_unavailable(),
            _ => false,
        }
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

    /// Returns whether the database user lacks a privilege ([`Error::InsufficientPrivilege`]) or a policy
    /// ([`Error::ProtectedRow`]).
    pub fn is_insufficient_privilege(&self) -> bool {
        matches!(
            self,
            Self::InsufficientPrivilege { .. } | Self::ProtectedRow { .. }
        )
    }

    pub(crate) fn from_class(class: ErrorClass, source: diesel::result::Error) -> Self {
        match class {
            ErrorClass::Deadlock => Self::Deadlock { source },
            ErrorClass::SerializationFailure => Self::SerializationFailure { source },
            ErrorClass::LockTimeout
            | ErrorClass::Busy
            | ErrorClass::LockNotAvailable
            | ErrorClass::StatementTimeout
            | ErrorClass::TransactionTimeout => Self::StatementTimeout { source },
            ErrorClass::ReadOnly => Self::ReadOnly { source },
            ErrorClass::OldSqlite => Self::UnsuitableDatabase {
                found: "this version of SQLite".to_owned(),
                needed: NEWER_SQLITE,
            },
            ErrorClass::MissingTables => Self::MissingTables { source },
            ErrorClass::InsufficientPrivilege(RequiredPrivilege { object, privileges }) => {
                Self::InsufficientPrivilege {
                    object,
                    privileges,
                    source,
                }
            }
            ErrorClass::ProtectedRow(table) => Self::ProtectedRow {
                table,
                source: Some(source),
            },
            ErrorClass::PreparedStatementMismatch => Self::PreparedStatementMismatch { source },
            ErrorClass::OutcomeUnknown => Self::OutcomeUnknown { source },
            ErrorClass::TooManyIds { ids, limit } => Self::TooManyIds { ids, limit },
            ErrorClass::LockTableFull => Self::LockTableFull { source },
            ErrorClass::TransactionAborted => Self::TransactionAborted {
                reason: "an earlier statement has failed".to_owned(),
                source: Some(source),
            },
            ErrorClass::CancelRequest | ErrorClass::Other => Self::Database(source),
        }
    }
}
