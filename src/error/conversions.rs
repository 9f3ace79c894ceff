//! Conversions from and to other errors, the predicates, and the alias of `Result` for closures.

use crate::error::Error;
use crate::error::classify::{ErrorClass, RequiredPrivilege, classify};
use crate::error::texts::NEWER_SQLITE;
#[cfg(feature = "_async_pool")]
use crate::error::{AsyncPoolError, PoolStep};

/// A [`Result`](std::result::Result) whose error is this crate's [`Error`], unless another one is named.
///
/// Names the error type of a closure: `|conn| -> diesel_locks::Result<_> { .. }`. If `?` follows the call, `?` may make the
/// function's error from several types, and the compiler does not choose one (E0283, "type annotations needed"): [other
/// spellings](https://github.com/diesel-locks/diesel-locks/blob/main/docs/guide.md#your-own-error-type). Not in the
/// [`prelude`](crate::prelude), where it would hide the standard library's.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Finds an error of this crate in any error: the error itself, one of its sources, or an error of Diesel that wraps it, which
    /// `?` makes in a function that returns `QueryResult`.
    ///
    /// Does not find:
    ///
    /// - Variants that become Diesel's own error: [`Deadlock`](Error::Deadlock),
    ///   [`SerializationFailure`](Error::SerializationFailure), [`OutcomeUnknown`](Error::OutcomeUnknown),
    ///   [`StatementTimeout`](Error::StatementTimeout) and [`Database`](Error::Database). `Error::from` recognises these, but makes
    ///   [`Database`](Error::Database) of `OutcomeUnknown`.
    /// - An error in one that does not return it as its source, such as a variant with `#[error(transparent)]` of `thiserror`: write
    ///   `#[error("{0}")]`, which has the same text.
    ///
    /// ```
    /// use diesel_locks::Error;
    ///
    /// let unavailable = Error::Unavailable { resource: "the object lock \"Order:4711\"".to_owned() };
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
            ErrorClass::RefusedByGroup => Self::RefusedByGroup { source },
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
            ErrorClass::ConnectionLost | ErrorClass::CancelRequest | ErrorClass::Other => {
                Self::Database(source)
            }
        }
    }

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

    /// [`has_no_connection_yet`](Self::has_no_connection_yet), or a time-out of a wait for that reason.
    #[cfg(feature = "_pool")]
    pub(crate) fn waited_for_connection(&self) -> bool {
        match self {
            Self::LockTimeout {
                source: Some(diesel::result::Error::QueryBuilderError(cause)),
                ..
            } => Self::find(&**cause).is_some_and(Self::has_no_connection_yet),
            error => error.has_no_connection_yet(),
        }
    }

    /// Returns whether a pool could not open a connection, or the database did not answer to it. False for r2d2 and bb8, which do not
    /// tell whether all connections were in use, and retry by themselves until their time-out.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        match self {
            #[cfg(feature = "_async_pool")]
            Self::AsyncPool(
                AsyncPoolError::Connection(_)
                | AsyncPoolError::Hook(_)
                | AsyncPoolError::TimedOut {
                    step: Some(PoolStep::Connect),
                    ..
                },
            ) => true,
            _ => false,
        }
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

    /// Returns whether the connection was lost, the server has ended its session, or the node of Galera has lost the others:
    /// [`Error::Database`], [`Error::OutcomeUnknown`]; after `transaction_timeout` of PostgreSQL also [`Error::StatementTimeout`] and
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

impl From<diesel::result::Error> for Error {
    /// Classifies the database's error by its message. Restores an error of this crate that was converted into Diesel's.
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
            error => Self::from_class(classify(&error), error),
        }
    }
}

/// What [`QueryBuilderError`](diesel::result::Error::QueryBuilderError) boxes.
///
/// Diesel's errors, and an application's that is transparent around one, hand out the source of what they box, and not the box.
/// So the error of this crate has to be a source.
#[derive(Debug, thiserror::Error)]
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
    /// Returns the database's own error for the variants that [`Error::find`] does not find. [`Error::from`] classifies it again by
    /// its message, which may not show that the outcome of a COMMIT is unknown: to see [`OutcomeUnknown`](Error::OutcomeUnknown),
    /// return [`Error`] or an application's own type from the closure.
    ///
    /// Wraps any other error in [`QueryBuilderError`](diesel::result::Error::QueryBuilderError): [`Error::from`] and
    /// [`Error::find`] restore it.
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
    use std::time::Duration;

    use super::*;

    fn timeout() -> Error {
        Error::LockTimeout {
            resource: "the object lock \"a\"".to_owned(),
            waited: Duration::from_micros(516_308),
            limit: Some(Duration::from_millis(500)),
            source: None,
        }
    }

    #[derive(Debug, thiserror::Error)]
    enum Application {
        #[error("query")]
        Query(#[from] diesel::result::Error),
        #[error(transparent)]
        Transparent(diesel::result::Error),
        #[error("lock")]
        Lock(#[source] Error),
        #[error("{0}")]
        Shown(#[source] Error),
        #[error(transparent)]
        Hidden(Error),
        #[error("nested")]
        Nested(#[source] Box<dyn std::error::Error + Send + Sync>),
    }

    #[test]
    fn time_out_is_found_in_any_error() {
        let query = || diesel::result::Error::from(timeout());
        let errors: [Box<dyn std::error::Error + Send + Sync>; 8] = [
            timeout().into(),
            query().into(),
            Application::from(query()).into(),
            Application::Transparent(query()).into(),
            Application::Lock(timeout()).into(),
            Application::Shown(timeout()).into(),
            Application::Nested(Application::from(query()).into()).into(),
            anyhow::Error::from(query()).context("order").into(),
        ];
        for error in errors {
            let found = Error::find(&*error).expect("a time-out");
            assert!(found.is_timeout(), "{error:?}");
        }
    }

    /// As the documentation says: a transparent error hands out the source of what it contains.
    #[test]
    fn text_of_a_transparent_variant_is_that_of_one_whose_error_is_found() {
        let [shown, hidden] = [
            Application::Shown(timeout()),
            Application::Hidden(timeout()),
        ];
        assert_eq!(shown.to_string(), hidden.to_string());
        assert!(Error::find(&shown).is_some());
        assert!(Error::find(&hidden).is_none());
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
}
