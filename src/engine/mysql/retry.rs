//! Retries statements that are safe to repeat.

use diesel::connection::{AnsiTransactionManager, TransactionManager};
use diesel::mysql::MysqlConnection;

use super::execute::MysqlError;
use super::{session, sql};
use crate::error::classify::ErrorClass;
use crate::{Error, transaction::depth};

/// Retries a statement that InnoDB aborted to break a deadlock, if it was its own transaction.
pub(super) fn execute_retrying(
    conn: &mut MysqlConnection,
    statement: impl Fn(&mut MysqlConnection) -> Result<usize, MysqlError>,
) -> Result<usize, Error> {
    let holds_no_locks = depth::depth(conn)? == 0;
    loop {
        match statement(conn) {
            Ok(rows) => return Ok(rows),
            Err(failure) if failure.is_retryable() && holds_no_locks => {}
            Err(failure) => return Err(failure.into()),
        }
    }
}

/// [`execute_retrying`] for a statement that fails instead of waiting. Then it has changed no row, and this returns 0.
pub(super) fn execute_nowait(
    conn: &mut MysqlConnection,
    statement: impl Fn(&mut MysqlConnection) -> Result<usize, MysqlError>,
) -> Result<usize, Error> {
    let holds_no_locks = depth::depth(conn)? == 0;
    loop {
        match statement(conn) {
            Ok(rows) => return Ok(rows),
            Err(failure) if failure.class == ErrorClass::LockTimeout => return Ok(0),
            Err(failure) if failure.is_retryable() && holds_no_locks => {}
            Err(failure) => return Err(failure.into()),
        }
    }
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
