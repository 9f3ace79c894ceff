//! Runs statements, within a time, and learns the numbers of their errors.
//!
//! Everything that this engine runs goes through [`Run`], whose methods have the names of Diesel's own
//! (`RunQueryDsl`): a module that has both in scope does not compile. So do not import `diesel::prelude::*`.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use diesel::connection::{CacheSize, Connection, SimpleConnection};
use diesel::mysql::{Mysql, MysqlConnection};
use diesel::query_builder::{QueryFragment, QueryId};
use diesel::query_dsl::LoadQuery;

use super::{session, sql};
use crate::Error;
use crate::error::classify::{self, ErrorClass, classify};

/// A statement's error and what it means.
pub(super) struct MysqlError {
    pub(super) class: ErrorClass,
    pub(super) number: Option<i64>,
    pub(super) error: diesel::result::Error,
}

impl From<MysqlError> for Error {
    fn from(failure: MysqlError) -> Self {
        match failure.class {
            // It may be one of this crate's, in Diesel's.
            ErrorClass::Other => failure.error.into(),
            class => Self::from_class(class, failure.error),
        }
    }
}

/// Of BEGIN, COMMIT and ROLLBACK: known by its text alone.
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
    pub(super) fn is_retryable(&self) -> bool {
        matches!(
            self.class,
            ErrorClass::Deadlock | ErrorClass::SerializationFailure
        )
    }

    /// `KILL QUERY` or a limit ended the statement, which may have done its work. The number is unknown when the
    /// question for it was ended too.
    pub(super) fn is_interrupted(&self) -> bool {
        match self.class {
            ErrorClass::StatementTimeout => true,
            ErrorClass::Other => matches!(self.number, None | Some(1317)),
            _ => false,
        }
    }

    /// It would have had to wait longer: for a row, or a table that is locked.
    pub(super) fn is_end_of_wait(&self) -> bool {
        matches!(
            self.class,
            ErrorClass::LockTimeout | ErrorClass::LockNotAvailable | ErrorClass::StatementTimeout
        )
    }

    /// The user lacks a right.
    pub(super) fn is_insufficient_privilege(&self) -> bool {
        matches!(self.class, ErrorClass::InsufficientPrivilege(_))
    }

    /// A statement that returns no rows was run for its rows.
    pub(super) fn is_without_rows(&self) -> bool {
        matches!(self.error, diesel::result::Error::DeserializationError(_))
    }

    /// Another row with this key is there.
    pub(super) fn is_duplicate(&self) -> bool {
        self.number == Some(1062)
    }
}

/// How this engine runs a statement. The error has its number asked for, and hangs no later statement.
pub(super) trait Run: Sized {
    /// All rows.
    fn load<'q, T>(self, conn: &mut MysqlConnection) -> Result<Vec<T>, MysqlError>
    where
        Self: LoadQuery<'q, MysqlConnection, T>,
    {
        let rows = diesel::RunQueryDsl::load(self, conn);
        rows.map_err(|error| with_reset_cache(conn, error))
    }

    /// The first row; without one [`NotFound`](diesel::result::Error::NotFound).
    fn get_result<'q, T>(self, conn: &mut MysqlConnection) -> Result<T, MysqlError>
    where
        Self: LoadQuery<'q, MysqlConnection, T>,
    {
        Run::get_optional(self, conn)?.ok_or_else(|| diesel::result::Error::NotFound.into())
    }

    /// The first row, if there is one.
    fn get_optional<'q, T>(self, conn: &mut MysqlConnection) -> Result<Option<T>, MysqlError>
    where
        Self: LoadQuery<'q, MysqlConnection, T>,
    {
        Ok(Run::load(self, conn)?.into_iter().next())
    }

    /// The number of rows that a statement has changed.
    fn execute(self, conn: &mut MysqlConnection) -> Result<usize, MysqlError>
    where
        Self: QueryFragment<Mysql> + QueryId,
    {
        let count = conn.execute_returning_count(&self);
        count.map_err(|error| with_reset_cache(conn, error))
    }

    /// The same for a statement that returns no rows on any server and whose failure is nothing unusual: all
    /// others stay prepared.
    fn execute_cached(self, conn: &mut MysqlConnection) -> Result<usize, MysqlError>
    where
        Self: QueryFragment<Mysql> + QueryId,
    {
        let count = conn.execute_returning_count(&self);
        count.map_err(|error| with_errno(conn, error))
    }
}

impl<T> Run for T {}

/// Runs `statement`; with a limit, no longer than so many milliseconds.
pub(super) fn within<T>(
    conn: &mut MysqlConnection,
    limit: Option<i32>,
    statement: impl FnOnce(&mut MysqlConnection) -> Result<T, MysqlError>,
) -> Result<T, MysqlError> {
    let Some(millis) = limit else {
        return statement(conn);
    };
    let result = catch_unwind(AssertUnwindSafe(|| {
        // What the server counts in.
        let seconds = millis.saturating_add(999) / 1000;
        sql::SetLimit { millis, seconds }.execute(conn)?;
        statement(conn)
    }));
    // Also when the limit could not be set: it may have been all the same.
    let restored = session::restore(conn, &sql::RestoreLimit {});
    let result = result.unwrap_or_else(|panic| resume_unwind(panic));
    restored?;
    result
}

/// Has the connection prepare its statements anew.
///
/// The server announces the columns of a statement that returns rows before it looks for rows, so that an
/// error can come in their place. MariaDB's client library, as Diesel uses it, goes on to expect rows
/// then: when the same prepared statement is executed again, it waits for them for ever.
///
/// A row that is found by its whole key is locked before anything is announced; but on Galera the abort of a
/// transaction comes in place of the row all the same.
///
/// Diesel can't forget one statement alone, nor tell how many it was to remember: it remembers all again.
pub(super) fn reset_statement_cache(conn: &mut MysqlConnection) {
    conn.set_prepared_statement_cache_size(CacheSize::Disabled);
    conn.set_prepared_statement_cache_size(CacheSize::Unbounded);
}

fn with_reset_cache(conn: &mut MysqlConnection, error: diesel::result::Error) -> MysqlError {
    // The number is to be asked for before the next statement.
    let failure = with_errno(conn, error);
    if let diesel::result::Error::DatabaseError(..) = failure.error {
        reset_statement_cache(conn);
    }
    failure
}

pub(super) fn with_errno(conn: &mut MysqlConnection, error: diesel::result::Error) -> MysqlError {
    let class = classify(&error);
    // The server is asked about texts that are not known: asking takes four round trips.
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

/// The number of the last statement's error; `None` when the connection does not answer any more.
fn number(conn: &mut MysqlConnection) -> Option<i64> {
    conn.batch_execute(sql::KEEP_ERROR_NUMBER).ok()?;
    // Not by `Run`, which would ask for the number of this statement's error.
    let number = diesel::RunQueryDsl::get_result(sql::ErrorNumber {}, conn);
    number.unwrap_or_else(|_| {
        reset_statement_cache(conn);
        None
    })
}
