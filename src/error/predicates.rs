//! The predicates of an error.

use crate::error::Error;
use crate::error::classify::{ErrorClass, classify};
#[cfg(feature = "_async_pool")]
use crate::error::{AsyncPoolError, PoolStep};

impl Error {
    /// Returns whether a wait timed out: [`Error::LockTimeout`], [`Error::StatementTimeout`]. False for `Error::Pool` and
    /// `Error::AsyncPool`, which may also mean that the database is out of reach.
    pub fn is_timeout(&self) -> bool {
        match self {
            Self::LockTimeout { .. } | Self::StatementTimeout { .. } => true,
            Self::PartlyLocked { source, .. } => source.is_timeout(),
            _ => false,
        }
    }

    /// Returns whether the request may succeed later, because another session, or all connections of the pool, are busy now:
    /// [`Error::LockTimeout`], [`Error::Unavailable`], [`Error::StatementTimeout`], `Error::Pool`, `Error::AsyncPool` (unless that
    /// pool is closed or set up wrongly); or whether the application has stopped it (`Error::Stopped`). A web service answers 503.
    pub fn is_busy(&self) -> bool {
        #[cfg(feature = "_pool")]
        if self.has_no_connection_yet() || matches!(self, Self::Stopped { .. }) {
            return true;
        }
        self.is_timeout() || self.is_unavailable()
    }

    /// Returns whether a pool gave no connection.
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
    pub(crate) fn has_no_connection_yet(&self) -> bool {
        #[cfg(feature = "_async_pool")]
        if let Self::AsyncPool(AsyncPoolError::Closed | AsyncPoolError::Other(_)) = self {
            return false;
        }
        self.is_pool()
    }

    /// Returns whether a pool could not open a connection, or the database did not answer to it. False for r2d2 and bb8, which do not
    /// tell whether all connections were in use, and retry by themselves until their time-out.
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

    /// Returns whether the connection was lost, or the server has ended its session: [`Error::Database`],
    /// [`Error::OutcomeUnknown`]; after `transaction_timeout` of PostgreSQL also [`Error::StatementTimeout`] and
    /// [`Error::LockTimeout`]. The connection can't be used any more.
    ///
    /// The transaction of a closure may be run again on another connection, unless the error is `OutcomeUnknown`: then it may be
    /// committed. A method without a closure may have taken effect. A closure that returns `QueryResult` hides `OutcomeUnknown`.
    pub fn is_connection_lost(&self) -> bool {
        match self {
            Self::Database(source) | Self::OutcomeUnknown { source } => {
                classify(source) == ErrorClass::ConnectionLost
            }
            Self::StatementTimeout { source }
            | Self::LockTimeout {
                source: Some(source),
                ..
            } => classify(source) == ErrorClass::TransactionTimeout,
            Self::PartlyLocked { source, .. } => source.is_connection_lost(),
            _ => false,
        }
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
}
