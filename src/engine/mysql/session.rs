//! Restores what this crate changes in the session: time limits, named locks, the transaction of a failed BEGIN.
//!
//! `KILL QUERY` or the application's time limits may end any statement, also one that restores. A session that is not
//! restored must not return to a pool.

use diesel::QueryResult;
use diesel::mysql::Mysql;
use diesel::query_builder::{QueryFragment, QueryId};

use super::sql;
use crate::Error;
use crate::error::classify::mysql::is_transaction_in_progress;
use crate::error::classify::{ErrorClass, classify};
use crate::link::Link;
use crate::poll::caught;
use crate::transaction::depth;

/// The number of attempts, without those that the statement's time limit ended.
const ATTEMPTS: usize = 20;

/// Runs a statement that returns no rows until it succeeds. After too many failures the connection is marked as broken:
/// a pool discards it, and the server ends the session.
pub(super) async fn restore<S>(
    conn: &mut impl Link<Backend = Mysql>,
    statement: &S,
) -> QueryResult<()>
where
    S: QueryFragment<Mysql> + QueryId + Sync,
{
    let mut failures = 0;
    loop {
        let executed = caught(conn.execute(statement)).await;
        let executed = depth::break_if_panicked(conn, executed);
        if let Some(restored) = after_attempt(conn, executed.map(drop), &mut failures) {
            return restored;
        }
    }
}

/// [`restore`] for several statements in one text.
pub(super) async fn restore_by_text(
    conn: &mut impl Link<Backend = Mysql>,
    statements: &str,
) -> QueryResult<()> {
    let mut failures = 0;
    loop {
        let executed = caught(conn.batch(statements)).await;
        let executed = depth::break_if_panicked(conn, executed);
        if let Some(restored) = after_attempt(conn, executed, &mut failures) {
            return restored;
        }
    }
}

/// Returns the result of the attempts, or `None` if there is another one.
fn after_attempt(
    conn: &mut impl Link<Backend = Mysql>,
    executed: QueryResult<()>,
    failures: &mut usize,
) -> Option<QueryResult<()>> {
    let Err(error) = executed else {
        return Some(Ok(()));
    };
    // On MariaDB the limit that is being restored may end this statement too.
    if classify(&error) != ErrorClass::StatementTimeout {
        *failures += 1;
    }
    if *failures < ATTEMPTS {
        return None;
    }
    depth::mark_broken(conn);
    tracing::warn!(%error, "the session's settings can't be restored: the connection is marked as broken");
    Some(Err(error))
}

/// Starts a transaction, which Diesel counts. After an error it sends ROLLBACK: BEGIN may have started the transaction,
/// or SET TRANSACTION have set the level of the next one, before the message failed. Not in a transaction of the
/// application, in which the message fails at its first statement.
pub(super) async fn begin(
    conn: &mut impl Link<Backend = Mysql>,
    message: &str,
) -> Result<(), Error> {
    let started = caught(conn.begin(message)).await;
    let Err(error) = depth::break_if_panicked(conn, started) else {
        return Ok(());
    };
    let error = untracked(error)?;
    // The first error takes precedence; a connection that is not restored is marked as broken.
    let _ = restore_by_text(conn, sql::ROLLBACK).await;
    Err(error.into())
}

/// Fails if the message that has failed so met a transaction that the application has begun by its own SQL, in which it has
/// changed nothing. Returns any other error.
pub(super) fn untracked(error: diesel::result::Error) -> Result<diesel::result::Error, Error> {
    if let diesel::result::Error::DatabaseError(_, information) = &error
        && is_transaction_in_progress(information.message())
    {
        let source = Some(error);
        return Err(Error::UntrackedTransaction { source });
    }
    Ok(error)
}

/// Fails outside a transaction that Diesel counts, if the server has one open.
pub(super) async fn assert_no_transaction(
    conn: &mut impl Link<Backend = Mysql>,
) -> Result<(), Error> {
    match conn.batch(sql::ASSERT_NO_TRANSACTION).await {
        Ok(()) => Ok(()),
        Err(error) => Err(untracked(error)?.into()),
    }
}
