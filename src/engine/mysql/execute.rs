//! Runs statements, optionally with a time limit, and reads the numbers of their errors.
//!
//! Every statement of this engine runs through [`Run`]. Its methods have the names of Diesel's `RunQueryDsl`, so a
//! module that has both traits in scope does not compile: do not import `diesel::prelude::*`.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use diesel::connection::{CacheSize, Connection, SimpleConnection};
use diesel::mysql::{Mysql, MysqlConnection};
use diesel::query_builder::{QueryFragment, QueryId};
use diesel::query_dsl::LoadQuery;

use super::sql::limits::{RestoreLimit, SetLimit};
use super::{session, sql};
use crate::Error;
use crate::engine::retry::StatementError;
use crate::error::classify::{self, ErrorClass, classify};

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
    fn is_retryable(&self) -> bool {
        matches!(
            self.class,
            ErrorClass::Deadlock | ErrorClass::SerializationFailure
        )
    }
}

/// For errors of BEGIN, COMMIT and ROLLBACK, which are classified by their text alone.
impl From<diesel::result::Error> for MysqlError {
    fn from(error: diesel::result::Error) -> Self {
        Self {
            class: classify(&error),
            number: None,
            error,
        }
    }
}

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
        matches!(self.error, diesel::result::Error::DeserializationError(_))
    }

    /// Whether a row with this key already exists.
    pub(super) fn is_duplicate(&self) -> bool {
        self.number == Some(1062)
    }
}

/// Runs a statement on this engine. After an error it reads the error's number and resets the statement cache, so that
/// no later statement hangs.
pub(super) trait Run: Sized {
    /// Returns all rows.
    fn load<'q, T>(self, conn: &mut MysqlConnection) -> Result<Vec<T>, MysqlError>
    where
        Self: LoadQuery<'q, MysqlConnection, T>,
    {
        let rows = diesel::RunQueryDsl::load(self, conn);
        rows.map_err(|error| with_reset_cache(conn, error))
    }

    /// Returns the first row; fails with [`NotFound`](diesel::result::Error::NotFound) without one.
    fn get_result<'q, T>(self, conn: &mut MysqlConnection) -> Result<T, MysqlError>
    where
        Self: LoadQuery<'q, MysqlConnection, T>,
    {
        Run::get_optional(self, conn)?.ok_or_else(|| diesel::result::Error::NotFound.into())
    }

    /// Returns the first row, if there is one.
    fn get_optional<'q, T>(self, conn: &mut MysqlConnection) -> Result<Option<T>, MysqlError>
    where
        Self: LoadQuery<'q, MysqlConnection, T>,
    {
        Ok(Run::load(self, conn)?.into_iter().next())
    }

    /// Returns the number of rows that the statement has changed.
    fn execute(self, conn: &mut MysqlConnection) -> Result<usize, MysqlError>
    where
        Self: QueryFragment<Mysql> + QueryId,
    {
        let count = conn.execute_returning_count(&self);
        count.map_err(|error| with_reset_cache(conn, error))
    }

    /// [`execute`](Self::execute) that keeps the statement cache after an error: for a statement that often fails, and
    /// returns no rows on any server.
    fn execute_cached(self, conn: &mut MysqlConnection) -> Result<usize, MysqlError>
    where
        Self: QueryFragment<Mysql> + QueryId,
    {
        let count = conn.execute_returning_count(&self);
        count.map_err(|error| with_errno(conn, error))
    }
}

impl<T> Run for T {}

/// Runs `statement`, for at most `limit` milliseconds if there is a limit.
pub(super) fn within<T>(
    conn: &mut MysqlConnection,
    limit: Option<i32>,
    statement: impl FnOnce(&mut MysqlConnection) -> Result<T, MysqlError>,
) -> Result<T, MysqlError> {
    let Some(millis) = limit else {
        return statement(conn);
    };
    let result = catch_unwind(AssertUnwindSafe(|| {
        // `lock_wait_timeout` is in seconds.
        let seconds = millis.saturating_add(999) / 1000;
        SetLimit { millis, seconds }.execute(conn)?;
        statement(conn)
    }));
    // Also after an error of `SetLimit`, which may have taken effect.
    let restored = session::restore(conn, &RestoreLimit {});
    let result = result.unwrap_or_else(|panic| resume_unwind(panic));
    restored?;
    result
}

/// Empties the connection's cache of prepared statements.
///
/// The server sends the columns of a result before it searches for rows, so an error can come in place of rows.
/// MariaDB's client library, as Diesel uses it, then still expects rows: when the same prepared statement is executed
/// again, it waits for them forever.
///
/// A row found by its whole key is locked before the columns are sent, but on Galera the abort of a transaction can
/// still come in place of the row.
///
/// Diesel can't remove a single statement from the cache, and does not show the cache's size: this sets it to
/// unbounded, Diesel's default.
pub(super) fn reset_statement_cache(conn: &mut MysqlConnection) {
    conn.set_prepared_statement_cache_size(CacheSize::Disabled);
    conn.set_prepared_statement_cache_size(CacheSize::Unbounded);
}

fn with_reset_cache(conn: &mut MysqlConnection, error: diesel::result::Error) -> MysqlError {
    // The number must be read before the next statement.
    let failure = with_errno(conn, error);
    if let diesel::result::Error::DatabaseError(..) = failure.error {
        reset_statement_cache(conn);
    }
    failure
}

pub(super) fn with_errno(conn: &mut MysqlConnection, error: diesel::result::Error) -> MysqlError {
    let class = classify(&error);
    // Only for unknown texts, because reading the number takes four round trips.
    let (number, class) = match &error {
        diesel::result::Error::DatabaseError(_, information) if class == ErrorClass::Other => {
            let number = number(conn);
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
fn number(conn: &mut MysqlConnection) -> Option<i64> {
    conn.batch_execute(sql::KEEP_ERROR_NUMBER).ok()?;
    // Not by `Run`, which would read the number of this statement's own error.
    let number = diesel::RunQueryDsl::get_result(sql::ErrorNumber {}, conn);
    number.unwrap_or_else(|_| {
        reset_statement_cache(conn);
        None
    })
}
