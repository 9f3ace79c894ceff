//! PostgreSQL: a transient lock is the insert of a row, and a kept lock is the advisory lock of a row. Functions that
//! the migrations install acquire both.

use std::time::{Duration, Instant};

use diesel::QueryResult;
use diesel::pg::Pg;
use diesel::result::DatabaseErrorKind;

use super::transactions_of_link;
use crate::error::classify::{ErrorClass, classify};
use crate::inspect::object_lock::HeldObjectLock;
use crate::link::{self, Link};
use crate::object_lock::acquire::Request;
use crate::object_lock::backend::{LockOutcome, ObjectLockBackend};
use crate::poll::caught;
use crate::transaction::backend::{SessionChange, TransactionBackend};
use crate::{Error, TransactionOptions, Wait, transaction::depth, transaction::run};

mod begin;
mod held_locks;
mod lists;
mod migrations;
mod protected;
mod sequences;
mod slot_sql;
mod slots;
mod sql;
pub(crate) mod untracked;

use begin::{begin, begin_and_acquire, begin_and_try};
use sql::ids;

/// The number of rows that one transaction of a purge deletes. Each takes an entry in the server's lock table, which
/// has 6400 entries by default.
const PURGE_BATCH: i64 = 100;

#[cfg(feature = "postgres")]
super::has_engine!(diesel::PgConnection, Pg);
#[cfg(feature = "async-postgres")]
super::has_async_engine!(diesel_async::AsyncPgConnection, Pg);

impl<C: Link<Backend = Pg>> TransactionBackend<C> for Pg {
    transactions_of_link!(C);

    async fn begin(conn: &mut C, transaction: &TransactionOptions) -> Result<SessionChange, Error> {
        begin(conn, &sql::begin(transaction)).await?;
        Ok(SessionChange::None)
    }

    /// libpq tells Diesel whether the server has a transaction open. Other clients do not: the server is asked.
    async fn assert_open(conn: &mut C) -> Result<(), Error> {
        if C::KNOWS_SERVER_STATE {
            return Ok(());
        }
        let outcome = conn.batch(sql::ASSERT_OPEN).await;
        outcome.map_err(|error| match &error {
            diesel::result::Error::DatabaseError(DatabaseErrorKind::Unknown, _)
                if classify(&error) == ErrorClass::Other =>
            {
                run::ended(Some(error))
            }
            _ => error.into(),
        })
    }

    async fn commit(conn: &mut C) -> Result<(), Error> {
        let committed = caught(conn.batch(sql::COMMIT)).await;
        let Err(error) = depth::break_if_panicked(conn, committed) else {
            depth::mark_closed(conn);
            return Ok(());
        };
        // COMMIT ends the transaction even when it fails. So if the transaction is still open, the error is that of the
        // statement before it. If the closure has ended the transaction without beginning another, only a client that knows
        // the server's state has noticed that before: otherwise the text decides.
        let not_ours = match classify(&error) {
            ErrorClass::TransactionAborted => is_open_after_error(conn).await,
            ErrorClass::Other if sql::names_mark(&error.to_string()) => {
                !C::KNOWS_SERVER_STATE || is_open_after_error(conn).await
            }
            _ => false,
        };
        if not_ours {
            return Err(run::ended(Some(error)));
        }
        Err(error.into())
    }

    async fn roll_back(conn: &mut C) -> QueryResult<bool> {
        if depth::counted(conn).is_ok_and(|depth| depth == 0) {
            conn.batch("ROLLBACK").await?;
            return Ok(false);
        }
        // An aborted transaction runs no statement that could check it. Only libpq tells Diesel whether the server has a
        // transaction: other clients take the closure's for open after its COMMIT, and for aborted after the next error.
        let mut started = C::KNOWS_SERVER_STATE && depth::is_aborted(conn);
        if !started {
            match conn.batch(sql::ROLLBACK).await {
                Ok(()) => return Ok(true),
                Err(error) => started = classify(&error) == ErrorClass::TransactionAborted,
            }
        }
        conn.batch("ROLLBACK").await?;
        Ok(started)
    }

    async fn prepared_transactions(conn: &mut C) -> Option<String> {
        let prepared: QueryResult<Option<String>> = conn.get_result(sql::Prepared {}).await;
        prepared.ok().flatten()
    }

    /// Rolls back outer transactions too: they can't be committed without what the future has not done.
    fn abandon(conn: &mut C, _: u32, undo: Option<&str>) {
        match undo {
            Some(undo) => conn.abandon(&["ROLLBACK", undo]),
            None => conn.abandon(&["ROLLBACK"]),
        }
    }
}

impl<C: Link<Backend = Pg>> ObjectLockBackend<C> for Pg {
    /// Sends BEGIN and the locks in one message, which takes one round trip. Its result can't be read, so a request
    /// that does not wait, whose answer may be "held", takes a second message, for whose answer a connection that blocks
    /// waits by itself.
    async fn begin_with_locks(conn: &mut C, request: &Request) -> Result<LockOutcome, Error> {
        if request.wait == Wait::No {
            return begin_and_try(conn, request).await;
        }
        begin_and_acquire(conn, request).await?;
        Ok(LockOutcome::Acquired)
    }

    async fn lock_in_transaction(conn: &mut C, request: &Request) -> Result<LockOutcome, Error> {
        let refusal = match request.wait {
            Wait::Forever => acquire(conn, request).await,
            Wait::AtMost(_) => acquire_with_timeout(conn, request).await,
            Wait::No => {
                let outcome = try_acquire(conn, request).await;
                return outcome.map_err(|error| map_error(request, error));
            }
        };
        match refusal.map_err(|error| map_error(request, error))? {
            None => Ok(LockOutcome::Acquired),
            Some(level) => Err(unsuitable_isolation(request.resource(), &level)),
        }
    }

    async fn purge_unlocked(conn: &mut C) -> Result<usize, Error> {
        let mut purged = 0;
        loop {
            begin(conn, sql::BEGIN).await?;
            let purge = purge_batch(conn).await;
            let (found, removed) = link::end(conn, purge).await?;
            purged += removed;
            // Not `removed == 0`: another purge may have deleted all that were found.
            if found == 0 {
                protected::ensure_visible(conn, protected::OBJECTS, purged > 0).await?;
                return Ok(purged);
            }
        }
    }

    async fn held_locks(conn: &mut C) -> Result<Vec<HeldObjectLock>, Error> {
        held_locks::held_locks(conn).await
    }
}

/// Whether the server has a transaction open, after an error of a statement in it.
async fn is_open_after_error<C: Link<Backend = Pg>>(conn: &mut C) -> bool {
    if C::KNOWS_SERVER_STATE {
        return depth::counted(conn).is_ok_and(|depth| depth > 0);
    }
    let probe = conn.batch("SELECT 1").await;
    probe.is_err_and(|error| classify(&error) == ErrorClass::TransactionAborted)
}

/// Returns how many rows were found, and how many of them were deleted.
async fn purge_batch(conn: &mut impl Link<Backend = Pg>) -> QueryResult<(usize, usize)> {
    let free: Vec<(String, i32)> = conn.load(sql::free_kept(PURGE_BATCH)).await?;
    let (ids, keys): (Vec<_>, Vec<_>) = free.into_iter().unzip();
    let removed = conn.execute(sql::delete(&ids, &keys)).await?;
    if removed == 0 && !ids.is_empty() {
        // Another purge has deleted them, or row-level security or a trigger protects them.
        let left: i64 = conn.get_result(sql::count(&ids, &keys)).await?;
        if left > 0 {
            return Err(protected::protected(protected::OBJECTS).into());
        }
    }
    Ok((ids.len(), removed))
}

async fn try_acquire(
    conn: &mut impl Link<Backend = Pg>,
    request: &Request,
) -> QueryResult<LockOutcome> {
    let try_acquire = sql::try_acquire(ids(request), request.is_kept());
    try_outcome(request, conn.load(try_acquire).await)
}

/// What the answer of `diesel_locks_try_acquire` says.
fn try_outcome(request: &Request, answers: QueryResult<Vec<String>>) -> QueryResult<LockOutcome> {
    match answers?.first().map(String::as_str) {
        Some("locked") => Ok(LockOutcome::Acquired),
        Some("held") => Ok(LockOutcome::Unavailable),
        Some(level) => Err(unsuitable_isolation(request.resource(), level).into()),
        None => Err(diesel::result::Error::NotFound),
    }
}

async fn acquire(
    conn: &mut impl Link<Backend = Pg>,
    request: &Request,
) -> QueryResult<Option<String>> {
    let kept = request.is_kept();
    match request.ids.as_slice() {
        [id] => conn.get_result(sql::acquire_one(id.as_str(), kept)).await,
        _ => conn.get_result(sql::acquire(ids(request), kept)).await,
    }
}

/// Sends a savepoint, the time-outs and the locks in one message. After an error it rolls back to the savepoint, so
/// that the transaction survives. Returns the transaction's isolation level if it is unsuitable: another statement asks
/// for it first, because the batch has no result to read.
async fn acquire_with_timeout(
    conn: &mut impl Link<Backend = Pg>,
    request: &Request,
) -> QueryResult<Option<String>> {
    let refusal: Option<String> = conn.get_result(sql::acquire(Vec::new(), false)).await?;
    if refusal.is_some() {
        return Ok(refusal);
    }
    loop {
        let time_is_up = request.is_expired();
        let Err(error) = conn.batch(&sql::acquire_in_savepoint(request)).await else {
            return Ok(None);
        };
        conn.batch(sql::ROLLBACK_TO_SAVEPOINT).await?;
        // If the time is not up now either, the transaction's time is: `transaction_timeout`.
        if time_is_up || !request.is_expired() || !is_wait_timeout(request, &error) {
            return Err(error);
        }
    }
}

/// Whether the time-out that the batch has set ended it. The lock may still be free, on a busy server or when the
/// function was not planned yet: the caller tries once more without waiting.
fn is_wait_timeout(request: &Request, error: &diesel::result::Error) -> bool {
    matches!(request.wait, Wait::AtMost(_)) && classify(error) == ErrorClass::StatementTimeout
}

/// Whether a `lock_timeout` that this crate has set has ended the statement, which was sent after `since`. PostgreSQL reports it
/// as a cancel request if the lock became free at the same moment and another wait began.
fn is_own_lock_timeout(error: &diesel::result::Error, since: Instant, timeout: Duration) -> bool {
    match classify(error) {
        ErrorClass::LockTimeout => true,
        ErrorClass::CancelRequest => since.elapsed() >= timeout,
        _ => false,
    }
}

/// Only the last attempt has a `lock_timeout`. It begins when the time is up.
fn last_lock_timeout_has_passed(request: &Request) -> bool {
    let timeout = sql::nowait_lock_timeout(request.ids.len());
    matches!(request.wait, Wait::AtMost(limit) if request.elapsed() >= limit.saturating_add(timeout))
}

fn map_error(request: &Request, error: diesel::result::Error) -> Error {
    match classify(&error) {
        ErrorClass::CancelRequest if last_lock_timeout_has_passed(request) => {
            request.timed_out(Some(error))
        }
        ErrorClass::LockTimeout | ErrorClass::StatementTimeout | ErrorClass::TransactionTimeout => {
            request.timed_out(Some(error))
        }
        _ => error.into(),
    }
}

fn unsuitable_isolation(resource: String, level: &str) -> Error {
    Error::UnsuitableIsolation {
        resource,
        reason: format!(
            "its isolation level is {}, whose snapshot is older than the lock: run the transaction with run_transaction \
             and IsolationLevel::ReadCommitted, or call the method outside of a transaction",
            level.to_uppercase()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancel_request_after_the_time_of_a_lock_timeout_may_be_one() {
        let error = |message: &str| {
            diesel::result::Error::DatabaseError(
                DatabaseErrorKind::Unknown,
                Box::new(message.to_owned()),
            )
        };
        let since = Instant::now();
        let (past, later) = (Duration::ZERO, Duration::from_secs(3600));
        for (message, timeout, expected) in [
            ("canceling statement due to lock timeout", later, true),
            ("canceling statement due to user request", later, false),
            ("canceling statement due to user request", past, true),
            ("canceling statement due to statement timeout", past, false),
        ] {
            let is_own = is_own_lock_timeout(&error(message), since, timeout);
            assert_eq!(is_own, expected, "{message}");
        }
    }
}
