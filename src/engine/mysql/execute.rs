//! Runs statements, optionally with a time limit, and reads the numbers of their errors.
//!
//! Every statement of this engine runs by these functions. The methods of [`Link`] with their names do not empty the cache
//! after an error: this module and `session` alone call them, and `migration_runner`, whose caller empties it.

use std::panic::resume_unwind;
use std::thread;

use diesel::deserialize::FromSqlRow;
use diesel::expression::QueryMetadata;
use diesel::mysql::Mysql;
use diesel::query_builder::{AsQuery, QueryFragment, QueryId};
use diesel::result::DatabaseErrorKind;

use crate::Error;
use crate::engine::ending;
use crate::engine::mysql::sql::{ErrorNumber, KEEP_ERROR_NUMBER, RestoreLimit, SetLimit};
use crate::engine::mysql::{MysqlEngine, session};
use crate::engine::operations::TransactionBackend;
use crate::error::classify::{self, ErrorClass, classify};
use crate::link::{Link, On, depth};

pub(crate) struct MysqlError {
    pub(crate) class: ErrorClass,
    pub(crate) number: Option<i64>,
    pub(crate) error: diesel::result::Error,
}

impl From<MysqlError> for Error {
    fn from(failure: MysqlError) -> Self {
        match failure.class {
            // Diesel's error may wrap an error of this crate.
            ErrorClass::Other => failure.error.into(),
            class => Self::from_class(class, failure.error),
        }
    }
}

impl MysqlError {
    /// For errors of BEGIN, COMMIT and ROLLBACK, which are classified by their text alone: their number is unknown.
    ///
    /// Not `From`: the compiler lists the types of which an application's error could be made, and would list this one.
    pub(crate) fn of(error: impl Into<diesel::result::Error>) -> Self {
        let error = error.into();
        Self {
            class: classify(&error),
            number: None,
            error,
        }
    }

    pub(crate) fn is_retryable(&self) -> bool {
        matches!(
            self.class,
            ErrorClass::Deadlock | ErrorClass::SerializationFailure
        )
    }

    /// Whether `KILL QUERY` or a time limit ended the statement, which may have taken effect. The error's number is
    /// unknown when the statement that reads it was ended too.
    pub(crate) fn is_interrupted(&self) -> bool {
        match self.class {
            ErrorClass::StatementTimeout => true,
            ErrorClass::Other => matches!(self.number, None | Some(1317)),
            _ => false,
        }
    }

    pub(crate) fn is_end_of_wait(&self) -> bool {
        matches!(
            self.class,
            ErrorClass::LockTimeout | ErrorClass::LockNotAvailable | ErrorClass::StatementTimeout
        )
    }

    pub(crate) fn is_insufficient_privilege(&self) -> bool {
        matches!(self.class, ErrorClass::InsufficientPrivilege(_))
    }

    pub(crate) fn is_without_rows(&self) -> bool {
        matches!(
            self.error,
            diesel::result::Error::DeserializationError(_) | diesel::result::Error::NotFound
        )
    }

    /// Whether a row with this key already exists.
    pub(crate) fn is_duplicate(&self) -> bool {
        self.number == Some(1062)
            || matches!(
                self.error,
                diesel::result::Error::DatabaseError(DatabaseErrorKind::UniqueViolation, _)
            )
    }
}

pub(crate) async fn load<Q, T>(conn: &mut impl On<Mysql>, query: Q) -> Result<Vec<T>, MysqlError>
where
    Q: AsQuery<Query: QueryFragment<Mysql> + QueryId + Send> + Send,
    Mysql: QueryMetadata<Q::SqlType>,
    T: FromSqlRow<Q::SqlType, Mysql> + Send,
{
    match Link::load(conn, query).await {
        Ok(rows) => Ok(rows),
        Err(error) => Err(with_reset_cache(conn, error).await),
    }
}

pub(crate) async fn get_result<Q, T>(conn: &mut impl On<Mysql>, query: Q) -> Result<T, MysqlError>
where
    Q: AsQuery<Query: QueryFragment<Mysql> + QueryId + Send> + Send,
    Mysql: QueryMetadata<Q::SqlType>,
    T: FromSqlRow<Q::SqlType, Mysql> + Send,
{
    let first = get_optional(conn, query).await?;
    first.ok_or_else(|| MysqlError::of(diesel::result::Error::NotFound))
}

pub(crate) async fn get_optional<Q, T>(
    conn: &mut impl On<Mysql>,
    query: Q,
) -> Result<Option<T>, MysqlError>
where
    Q: AsQuery<Query: QueryFragment<Mysql> + QueryId + Send> + Send,
    Mysql: QueryMetadata<Q::SqlType>,
    T: FromSqlRow<Q::SqlType, Mysql> + Send,
{
    Ok(load(conn, query).await?.into_iter().next())
}

pub(crate) async fn execute(
    conn: &mut impl On<Mysql>,
    statement: impl QueryFragment<Mysql> + QueryId + Send,
) -> Result<usize, MysqlError> {
    match Link::execute(conn, statement).await {
        Ok(count) => Ok(count),
        Err(error) => Err(with_reset_cache(conn, error).await),
    }
}

/// [`execute`] that keeps the statement cache after an error: for a statement that often fails, and returns no rows on any
/// server.
pub(crate) async fn execute_cached(
    conn: &mut impl On<Mysql>,
    statement: impl QueryFragment<Mysql> + QueryId + Send,
) -> Result<usize, MysqlError> {
    match Link::execute(conn, statement).await {
        Ok(count) => Ok(count),
        Err(error) => Err(with_errno(conn, error).await),
    }
}

pub(crate) async fn set_limit(
    conn: &mut impl On<Mysql>,
    millis: Option<i32>,
) -> Result<(), MysqlError> {
    if let Some(millis) = millis {
        // `lock_wait_timeout` is in seconds.
        let seconds = millis.saturating_add(999) / 1000;
        execute(conn, SetLimit { millis, seconds }).await?;
    }
    Ok(())
}

/// Restores the limit of [`set_limit`] after what was done with it, or after its error: it may have taken effect.
pub(crate) async fn restore_limit<T>(
    conn: &mut impl On<Mysql>,
    millis: Option<i32>,
    result: thread::Result<Result<T, MysqlError>>,
) -> Result<T, MysqlError> {
    match millis {
        Some(_) => restore_by(conn, &RestoreLimit {}, result).await,
        None => result.unwrap_or_else(|panic| resume_unwind(panic)),
    }
}

pub(crate) async fn restore_by<T, E: From<MysqlError>>(
    conn: &mut impl On<Mysql>,
    statement: &(impl QueryFragment<Mysql> + QueryId + Sync),
    result: thread::Result<Result<T, E>>,
) -> Result<T, E> {
    let restored = session::restore(conn, statement).await;
    let value = result.unwrap_or_else(|panic| resume_unwind(panic))?;
    restored.map_err(MysqlError::of)?;
    Ok(value)
}

/// Empties the connection's cache of prepared statements.
///
/// An error can come in place of rows, and the next execution of the statement would wait for rows forever: see "Errors" in
/// DESIGN.md.
///
/// A row found by its whole key is locked before the columns are sent, but on Galera the abort of a transaction can
/// still come in place of the row.
pub(crate) fn reset_statement_cache(conn: &mut impl On<Mysql>) {
    conn.reset_statement_cache();
}

async fn with_reset_cache(conn: &mut impl On<Mysql>, error: diesel::result::Error) -> MysqlError {
    // The number must be read before the next statement.
    let failure = with_errno(conn, error).await;
    if let diesel::result::Error::DatabaseError(..) = failure.error {
        reset_statement_cache(conn);
    }
    failure
}

pub(crate) async fn with_errno(
    conn: &mut impl On<Mysql>,
    error: diesel::result::Error,
) -> MysqlError {
    let class = classify(&error);
    // Only for unknown texts, because reading the number takes four round trips.
    let (number, class) = match &error {
        diesel::result::Error::DatabaseError(_, information) if class == ErrorClass::Other => {
            let number = number(conn).await;
            let of = |number| classify::mysql::class_of_errno(number, information.message());
            (number, number.map_or(class, of))
        }
        _ => (None, class),
    };
    MysqlError {
        class,
        number,
        error,
    }
}

/// Reads the number of the last statement's error; `None` when that fails.
pub(crate) async fn number(conn: &mut impl On<Mysql>) -> Option<i64> {
    conn.batch(KEEP_ERROR_NUMBER).await.ok()?;
    // Not by `load`, which would read the number of this statement's own error.
    // All rows are read, so that none is left for the next statement.
    let rows: diesel::QueryResult<Vec<_>> = Link::load(conn, ErrorNumber {}).await;
    let Ok(rows) = rows else {
        reset_statement_cache(conn);
        return None;
    };
    rows.into_iter().next().flatten()
}

pub(crate) fn unless_ended<T>(result: Result<T, MysqlError>) -> Result<Option<T>, MysqlError> {
    match result {
        Err(failure) if failure.is_end_of_wait() => Ok(None),
        result => result.map(Some),
    }
}

/// The number of changed rows of a statement that fails instead of waiting: 0 if it has failed so.
pub(crate) fn unless_locked(executed: Result<usize, MysqlError>) -> Result<usize, MysqlError> {
    match executed {
        Err(failure) if failure.class == ErrorClass::LockTimeout => Ok(0),
        result => result,
    }
}

/// Ends a transaction at READ COMMITTED. Returns `None` if it is to be restarted: the server has aborted it, to break a deadlock or
/// for a conflict with another node, or another node has inserted the same row first.
pub(crate) async fn end_or_restart<T>(
    conn: &mut impl On<Mysql>,
    work: Result<T, MysqlError>,
) -> Result<Option<T>, Error> {
    let engine = &mut MysqlEngine(conn);
    let (restart, error) = match work {
        Ok(value) => match engine.commit().await {
            Ok(()) => return Ok(Some(value)),
            Err(error) => (is_conflict(&error), error),
        },
        Err(failure) => {
            let restart = failure.is_retryable() || failure.is_duplicate();
            (restart, failure.into())
        }
    };
    ending::roll_back(engine).await;
    // Not on a connection that its rollback has found to be lost.
    if restart && depth::depth(engine.status()).is_ok() {
        return Ok(None);
    }
    Err(error)
}

/// Whether COMMIT has failed for a transaction on another node.
fn is_conflict(error: &Error) -> bool {
    let is_duplicate = matches!(
        error,
        Error::Database(diesel::result::Error::DatabaseError(
            DatabaseErrorKind::UniqueViolation,
            _
        ))
    );
    is_duplicate || error.is_retryable() || error.is_transaction_aborted()
}
