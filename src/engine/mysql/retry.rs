//! Retries statements that are safe to repeat.

use diesel::connection::{AnsiTransactionManager, TransactionManager};
use diesel::mysql::MysqlConnection;

use super::execute::MysqlError;
use super::{session, sql};
use crate::Error;
use crate::engine::retry::{StatementError, autocommit_retry};
use crate::error::classify::ErrorClass;

/// [`autocommit_retry`] for a statement that fails instead of waiting. Then it has changed no row, and this returns 0.
pub(super) fn execute_nowait(
    conn: &mut MysqlConnection,
    statement: impl Fn(&mut MysqlConnection) -> Result<usize, MysqlError>,
) -> Result<usize, Error> {
    autocommit_retry(conn, |conn| match statement(conn) {
        Err(failure) if failure.class == ErrorClass::LockTimeout => Ok(0),
        result => result,
    })
}

/// Runs `work` in a transaction at READ COMMITTED, which locks no gaps and sees what was committed before each of its
/// statements. Restarts it when InnoDB aborts it to break a deadlock, or when another node inserts the same row first.
pub(super) fn at_read_committed<T>(
    conn: &mut MysqlConnection,
    work: impl Fn(&mut MysqlConnection) -> Result<T, MysqlError>,
) -> Result<T, Error> {
    loop {
        session::begin(conn, sql::BEGIN)?;
        // COMMIT reports a conflict with a transaction on another node.
        let done = match work(conn) {
            Ok(value) => AnsiTransactionManager::commit_transaction(conn)
                .map(|()| value)
                .map_err(MysqlError::from),
            Err(failure) => {
                AnsiTransactionManager::rollback_transaction(conn)?;
                Err(failure)
            }
        };
        match done {
            Ok(value) => return Ok(value),
            Err(failure) if failure.is_retryable() || failure.is_duplicate() => {}
            Err(failure) => return Err(failure.into()),
        }
    }
}
