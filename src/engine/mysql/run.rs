//! Runs one statement, within a time, and learns the number of its error.

use diesel::connection::{CacheSize, SimpleConnection};
use diesel::mysql::MysqlConnection;
use diesel::prelude::*;

use super::statements;
use crate::Error;
use crate::messages::{self, Class, classify};

/// A statement's error and what it means.
pub(super) struct Failure {
    pub(super) class: Class,
    pub(super) number: Option<i64>,
    pub(super) error: diesel::result::Error,
}

impl Failure {
    pub(super) fn into_error(self) -> Error {
        Error::classed(self.class, self.error)
    }

    /// The user lacks a right.
    pub(super) fn is_denied(&self) -> bool {
        matches!(self.class, Class::Denied(_))
    }

    /// Another row with this key is there.
    pub(super) fn is_duplicate(&self) -> bool {
        self.number == Some(1062)
    }
}

/// Runs `statement`; with a limit, no longer than so many milliseconds.
pub(super) fn run<T>(
    conn: &mut MysqlConnection,
    limit: Option<i32>,
    statement: impl FnOnce(&mut MysqlConnection) -> QueryResult<T>,
) -> Result<T, Failure> {
    let plain = |error: diesel::result::Error| Failure {
        class: classify(&error),
        number: None,
        error,
    };
    if let Some(millis) = limit {
        statements::SetLimit { millis }
            .execute(conn)
            .map_err(plain)?;
    }
    // The number is to be asked for before the next statement.
    let result = statement(conn).map_err(|error| numbered(conn, error));
    if limit.is_some() {
        // MariaDB's limit is this statement's too.
        while let Err(error) = (statements::RestoreLimit {}).execute(conn) {
            if classify(&error) != Class::StatementTimeout {
                return Err(plain(error));
            }
        }
    }
    result
}

/// [`run_rows`] without a limit: what its error means is in the error.
pub(super) fn told<T>(
    conn: &mut MysqlConnection,
    statement: impl FnOnce(&mut MysqlConnection) -> QueryResult<T>,
) -> Result<T, Error> {
    run_rows(conn, None, statement).map_err(Failure::into_error)
}

/// [`run`] for a statement that returns rows and can fail while it looks for them: waiting for a lock, as a
/// deadlock's victim, at the end of its time. Not needed where a row is found by its whole key: that is done
/// before anything is announced.
pub(super) fn run_rows<T>(
    conn: &mut MysqlConnection,
    limit: Option<i32>,
    statement: impl FnOnce(&mut MysqlConnection) -> QueryResult<T>,
) -> Result<T, Failure> {
    let result = run(conn, limit, statement);
    if matches!(&result, Err(failure) if is_the_databases(&failure.error)) {
        forget_statements(conn);
    }
    result
}

fn is_the_databases(error: &diesel::result::Error) -> bool {
    matches!(error, diesel::result::Error::DatabaseError(..))
}

/// Has the connection prepare its statements anew.
///
/// The server announces the columns of a statement that returns rows before it looks for rows, so that an
/// error can come in their place. MariaDB's client library, as Diesel uses it, goes on to expect rows
/// then: when the same prepared statement is executed again, it waits for them for ever.
///
/// Diesel can't forget one statement alone, nor tell how many it was to remember: it remembers all again.
pub(super) fn forget_statements(conn: &mut MysqlConnection) {
    conn.set_prepared_statement_cache_size(CacheSize::Disabled);
    conn.set_prepared_statement_cache_size(CacheSize::Unbounded);
}

fn numbered(conn: &mut MysqlConnection, error: diesel::result::Error) -> Failure {
    let class = classify(&error);
    // The server is asked about texts that are not known: asking takes four round trips.
    let (number, class) = match &error {
        diesel::result::Error::DatabaseError(_, information) if class == Class::Other => {
            let number = number(conn);
            let of = |number| messages::mysql::class_of(number, information.message());
            (number, number.map_or(class, of))
        }
        _ => (None, class),
    };
    Failure {
        class,
        number,
        error,
    }
}

/// The number of the last statement's error; `None` when the connection does not answer any more.
fn number(conn: &mut MysqlConnection) -> Option<i64> {
    conn.batch_execute(statements::KEEP_ERROR_NUMBER).ok()?;
    statements::ErrorNumber {}.get_result(conn).ok().flatten()
}
