//! Restores what this crate changes in the session: time limits, named locks, the transaction of a failed BEGIN.
//!
//! `KILL QUERY` or the application's time limits may end any statement, also one that restores. A session that is not
//! restored must not return to a pool.

use diesel::connection::{Connection, SimpleConnection};
use diesel::mysql::{Mysql, MysqlConnection};
use diesel::prelude::*;
use diesel::query_builder::{QueryFragment, QueryId};

use super::sql;
use crate::error::classify::{ErrorClass, classify};
use crate::transaction::depth;

/// The number of attempts, without those that the statement's time limit ended.
const ATTEMPTS: usize = 20;

/// Runs a statement that returns no rows until it succeeds. After too many failures the connection is marked as broken:
/// a pool discards it, and the server ends the session.
pub(super) fn restore<S>(conn: &mut MysqlConnection, statement: &S) -> QueryResult<()>
where
    S: QueryFragment<Mysql> + QueryId,
{
    repeat(conn, |conn| {
        conn.execute_returning_count(statement).map(drop)
    })
}

/// [`restore`] for several statements in one text.
pub(super) fn restore_by_text(conn: &mut MysqlConnection, statements: &str) -> QueryResult<()> {
    repeat(conn, |conn| conn.batch_execute(statements))
}

fn repeat(
    conn: &mut MysqlConnection,
    act: impl Fn(&mut MysqlConnection) -> QueryResult<()>,
) -> QueryResult<()> {
    let mut failures = 0;
    loop {
        let Err(error) = depth::break_on_panic(conn, &act) else {
            return Ok(());
        };
        // On MariaDB the limit that is being restored may end this statement too.
        if classify(&error) != ErrorClass::StatementTimeout {
            failures += 1;
        }
        if failures == ATTEMPTS {
            depth::mark_broken(conn);
            tracing::warn!(%error, "the session's settings can't be restored: the connection is marked as broken");
            return Err(error);
        }
    }
}

/// Starts a transaction, which Diesel counts. After an error it sends ROLLBACK: BEGIN may have started the transaction,
/// or SET TRANSACTION have set the level of the next one, before the message failed.
pub(super) fn begin(conn: &mut MysqlConnection, message: &str) -> QueryResult<()> {
    let started = depth::begin(conn, message);
    if started.is_err() {
        restore_by_text(conn, sql::ROLLBACK)?;
    }
    started
}
