//! What has changed nothing when it failed is begun again.

use diesel::connection::{AnsiTransactionManager, TransactionManager};
use diesel::mysql::MysqlConnection;
use diesel::prelude::*;

use super::run::{run, run_rows};
use super::statements;
use crate::messages::Class;
use crate::{Error, nesting};

/// A statement that is begun again when InnoDB broke a deadlock with it and it was its own transaction.
pub(super) fn counted(
    conn: &mut MysqlConnection,
    statement: impl Fn(&mut MysqlConnection) -> QueryResult<usize>,
) -> Result<usize, Error> {
    let alone = nesting::depth(conn)? == 0;
    loop {
        match run(conn, None, &statement) {
            Ok(rows) => return Ok(rows),
            Err(failure) => match failure.into_error() {
                Error::Deadlock { .. } if alone => {}
                error => return Err(error),
            },
        }
    }
}

/// Like [`counted`], for a statement that is its own transaction and fails instead of waiting: then it
/// has changed nothing.
pub(super) fn unless_locked(
    conn: &mut MysqlConnection,
    statement: impl Fn(&mut MysqlConnection) -> QueryResult<usize>,
) -> Result<usize, Error> {
    loop {
        match run(conn, None, &statement) {
            Ok(rows) => return Ok(rows),
            Err(failure) if failure.class == Class::LockTimeout => return Ok(0),
            Err(failure) => match failure.into_error() {
                Error::Deadlock { .. } => {}
                error => return Err(error),
            },
        }
    }
}

/// A transaction at READ COMMITTED, begun again when InnoDB broke a deadlock with it: it locks no gaps, and
/// sees what was committed before each of its statements.
pub(super) fn at_read_committed<T>(
    conn: &mut MysqlConnection,
    work: impl Fn(&mut MysqlConnection) -> QueryResult<T>,
) -> Result<T, Error> {
    loop {
        AnsiTransactionManager::begin_transaction_sql(conn, statements::BEGIN)?;
        match run_rows(conn, None, &work) {
            Ok(value) => {
                AnsiTransactionManager::commit_transaction(conn)?;
                return Ok(value);
            }
            Err(failure) => {
                AnsiTransactionManager::rollback_transaction(conn)?;
                match failure.into_error() {
                    Error::Deadlock { .. } => {}
                    error => return Err(error),
                }
            }
        }
    }
}
