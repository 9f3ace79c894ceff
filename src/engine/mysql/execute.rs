//! Runs statements, optionally with a time limit, and reads the numbers of their errors.
//!
//! Every statement of this engine runs through [`Run`]. Its methods have the names of Diesel's `RunQueryDsl`, so a
//! module that has both traits in scope does not compile: do not import `diesel::prelude::*`. The methods of [`Link`] with
//! these names do not empty the cache after an error: this module and `session` alone call them, and
//! `crate::migrations::runner`, whose caller empties it.

use std::panic::resume_unwind;
use std::thread;

use diesel::deserialize::FromSqlRow;
use diesel::expression::QueryMetadata;
use diesel::mysql::Mysql;
use diesel::query_builder::{AsQuery, QueryFragment, QueryId};

use super::sql::limits::{RestoreLimit, SetLimit};
use super::{session, sql};
use crate::Error;
use crate::engine::retry::StatementError;
use crate::error::classify::{self, ErrorClass, classify};
use crate::link::Link;

/// A statement's error and its class.
pub(super) struct MysqlError {
    pub(super) class: ErrorClass,
    pub(super) number: Option<i64>,
    pub(super) error: diesel::result::Error,
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

impl StatementError for MysqlError {
    /// Its number is unknown.
    fn of(error: diesel::result::Error) -> Self {
        Self {
            class: classify(&error),
            number: None,
            error,
        }
    }

    fn is_retryable(&self) -> bool {
        matches!(
            self.class,
            ErrorClass::Deadlock | ErrorClass::SerializationFailure
        )
    }
}

/// For errors of BEGIN, COMMIT and ROLLBACK, which are classified by their text alone.
impl MysqlError {
    /// Whether `KILL QUERY` or a time limit ended the statement, which may have taken effect. The error's number is
    /// unknown when the statement that reads it was ended too.
    pub(super) fn is_interrupted(&self) -> bool {
        match self.class {
            ErrorClass::StatementTimeout => true,
            ErrorClass::Other => matches!(self.number, None | Some(1317)),
            _ => false,
        }
    }

    /// Whether the statement stopped waiting for a locked row or table.
    pub(super) fn is_end_of_wait(&self) -> bool {
        matches!(
            self.class,
            ErrorClass::LockTimeout | ErrorClass::LockNotAvailable | ErrorClass::StatementTimeout
        )
    }

    /// Whether the user lacks a privilege.
    pub(super) fn is_insufficient_privilege(&self) -> bool {
        matches!(self.class, ErrorClass::InsufficientPrivilege(_))
    }

    /// Whether rows were requested from a statement that returns none.
    pub(super) fn is_without_rows(&self) -> bool {
        matches!(
            self.error,
            diesel::result::Error::DeserializationError(_) | diesel::result::Error::NotFound
        )
    }

    /// Whether a row with this key already exists.
    pub(super) fn is_duplicate(&self) -> bool {
        self.number == Some(1062)
    }
}

/// Runs a statement on this engine. After an error it reads the error's number and resets the statement cache, so that
/// no later statement hangs.
pub(super) trait Run: Sized + Send {
    /// Returns all rows.
    fn load<C, T>(self, conn: &mut C) -> impl Future<Output = Result<Vec<T>, MysqlError>> + Send
    where
        C: Link<Backend = Mysql>,
        Self: AsQuery<Query: QueryFragment<Mysql> + QueryId + Send>,
        Mysql: QueryMetadata<Self::SqlType>,
        T: FromSqlRow<Self::SqlType, Mysql> + Send,
    {
        load(conn, self)
    }

    /// Returns the first row; fails with [`NotFound`](diesel::result::Error::NotFound) without one.
    fn get_result<C, T>(self, conn: &mut C) -> impl Future<Output = Result<T, MysqlError>> + Send
    where
        C: Link<Backend = Mysql>,
        Self: AsQuery<Query: QueryFragment<Mysql> + QueryId + Send>,
        Mysql: QueryMetadata<Self::SqlType>,
        T: FromSqlRow<Self::SqlType, Mysql> + Send,
    {
        get_result(conn, self)
    }

    /// Returns the first row, if there is one.
    fn get_optional<C, T>(
        self,
        conn: &mut C,
    ) -> impl Future<Output = Result<Option<T>, MysqlError>> + Send
    where
        C: Link<Backend = Mysql>,
        Self: AsQuery<Query: QueryFragment<Mysql> + QueryId + Send>,
        Mysql: QueryMetadata<Self::SqlType>,
        T: FromSqlRow<Self::SqlType, Mysql> + Send,
    {
        async { Ok(load(conn, self).await?.into_iter().next()) }
    }

    /// Returns the number of rows that the statement has changed.
    fn execute(
        self,
        conn: &mut impl Link<Backend = Mysql>,
    ) -> impl Future<Output = Result<usize, MysqlError>> + Send
    where
        Self: QueryFragment<Mysql> + QueryId,
    {
        execute(conn, self)
    }

    /// [`execute`](Self::execute) that keeps the statement cache after an error: for a statement that often fails, and
    /// returns no rows on any server.
    fn execute_cached(
        self,
        conn: &mut impl Link<Backend = Mysql>,
    ) -> impl Future<Output = Result<usize, MysqlError>> + Send
    where
        Self: QueryFragment<Mysql> + QueryId,
    {
        async {
            match Link::execute(conn, self).await {
                Ok(count) => Ok(count),
                Err(error) => Err(with_errno(conn, error).await),
            }
        }
    }
}

impl<T: Send> Run for T {}

/// [`Run::load`], also for macros that several engines share.
pub(super) async fn load<C, Q, T>(conn: &mut C, query: Q) -> Result<Vec<T>, MysqlError>
where
    C: Link<Backend = Mysql>,
    Q: AsQuery<Query: QueryFragment<Mysql> + QueryId + Send> + Send,
    Mysql: QueryMetadata<Q::SqlType>,
    T: FromSqlRow<Q::SqlType, Mysql> + Send,
{
    match Link::load(conn, query).await {
        Ok(rows) => Ok(rows),
        Err(error) => Err(with_reset_cache(conn, error).await),
    }
}

/// [`Run::get_result`].
pub(super) async fn get_result<C, Q, T>(conn: &mut C, query: Q) -> Result<T, MysqlError>
where
    C: Link<Backend = Mysql>,
    Q: AsQuery<Query: QueryFragment<Mysql> + QueryId + Send> + Send,
    Mysql: QueryMetadata<Q::SqlType>,
    T: FromSqlRow<Q::SqlType, Mysql> + Send,
{
    let first = load(conn, query).await?.into_iter().next();
    first.ok_or_else(|| MysqlError::of(diesel::result::Error::NotFound))
}

/// [`Run::execute`].
pub(super) async fn execute<C, Q>(conn: &mut C, statement: Q) -> Result<usize, MysqlError>
where
    C: Link<Backend = Mysql>,
    Q: QueryFragment<Mysql> + QueryId + Send,
{
    match Link::execute(conn, statement).await {
        Ok(count) => Ok(count),
        Err(error) => Err(with_reset_cache(conn, error).await),
    }
}

/// Awaits `$statement`, for at most `$limit` milliseconds if there is a limit. Restores the limit, also after a panic.
macro_rules! within {
    ($conn:expr, $limit:expr, $statement:expr) => {
        match $limit {
            None => $statement.await,
            Some(millis) => {
                let result = crate::poll::caught(async {
                    crate::engine::mysql::execute::set_limit($conn, millis).await?;
                    $statement.await
                });
                let result = result.await;
                crate::engine::mysql::execute::restore_limit($conn, result).await
            }
        }
    };
}
pub(super) use within;

pub(super) async fn set_limit(
    conn: &mut impl Link<Backend = Mysql>,
    millis: i32,
) -> Result<(), MysqlError> {
    // `lock_wait_timeout` is in seconds.
    let seconds = millis.saturating_add(999) / 1000;
    SetLimit { millis, seconds }.execute(conn).await?;
    Ok(())
}

/// Also after an error of [`set_limit`], which may have taken effect.
pub(super) async fn restore_limit<T>(
    conn: &mut impl Link<Backend = Mysql>,
    result: thread::Result<Result<T, MysqlError>>,
) -> Result<T, MysqlError> {
    restore_by(conn, &RestoreLimit {}, result).await
}

/// Restores a setting of the session by this statement after what was done with another one.
pub(super) async fn restore_by<T, E, Q>(
    conn: &mut impl Link<Backend = Mysql>,
    statement: &Q,
    result: thread::Result<Result<T, E>>,
) -> Result<T, E>
where
    E: From<MysqlError>,
    Q: QueryFragment<Mysql> + QueryId + Sync,
{
    let restored = session::restore(conn, statement).await;
    // The first error takes precedence.
    let value = result.unwrap_or_else(|panic| resume_unwind(panic))?;
    restored.map_err(MysqlError::of)?;
    Ok(value)
}

/// Empties the connection's cache of prepared statements.
///
/// The server sends the columns of a result before it searches for rows, so an error can come in place of rows.
/// MariaDB's client library, as Diesel uses it, then still expects rows: when the same prepared statement is executed
/// again, it waits for them forever.
///
/// A row found by its whole key is locked before the columns are sent, but on Galera the abort of a transaction can
/// still come in place of the row.
pub(super) fn reset_statement_cache(conn: &mut impl Link<Backend = Mysql>) {
    conn.reset_statement_cache();
}

async fn with_reset_cache(
    conn: &mut impl Link<Backend = Mysql>,
    error: diesel::result::Error,
) -> MysqlError {
    // The number must be read before the next statement.
    let failure = with_errno(conn, error).await;
    if let diesel::result::Error::DatabaseError(..) = failure.error {
        reset_statement_cache(conn);
    }
    failure
}

pub(super) async fn with_errno(
    conn: &mut impl Link<Backend = Mysql>,
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
pub(super) async fn number(conn: &mut impl Link<Backend = Mysql>) -> Option<i64> {
    conn.batch(sql::KEEP_ERROR_NUMBER).await.ok()?;
    // Not by `Run`, which would read the number of this statement's own error.
    // All rows are read, so that none is left for the next statement.
    let rows: diesel::QueryResult<Vec<_>> = Link::load(conn, sql::ErrorNumber {}).await;
    let Ok(rows) = rows else {
        reset_statement_cache(conn);
        return None;
    };
    rows.into_iter().next().flatten()
}
