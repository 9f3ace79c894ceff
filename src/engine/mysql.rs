//! MySQL and MariaDB: InnoDB's lock on the row, and a named lock under which one session at a time inserts the row.
//!
//! Two sessions that insert the same id at the same time deadlock on InnoDB: its check for duplicates takes a shared
//! lock, which both get and neither can upgrade. So a missing row is only inserted under a named lock (`GET_LOCK`),
//! which is held only while the object lock is acquired.

use diesel::QueryResult;
use diesel::mysql::Mysql;

use super::{active_isolation, transactions_of_link};
use crate::error::classify::{ErrorClass, classify};
use crate::inspect::object_lock::HeldObjectLock;
use crate::link::Link;
use crate::object_lock::acquire::Request;
use crate::object_lock::backend::{LockOutcome, ObjectLockBackend};
use crate::poll::caught;
use crate::transaction::backend::{SessionChange, TransactionBackend};
use crate::transaction::retry::RetryReason;
use crate::{
    Error, IsolationLevel, TransactionOptions, Wait, transaction::depth, transaction::run,
};

mod autocommit;
mod big_selects;
mod bytes;
mod execute;
mod held_locks;
mod isolation;
mod lists;
mod migrations;
mod object_lock;
mod retry;
mod sequences;
mod session;
mod slot_batches;
mod slot_claim;
mod slot_sql;
mod slots;
mod sql;
mod writers;

use execute::Run;
use object_lock::error::AcquireError;
use object_lock::row::rolled_back_by_timeout;
use retry::at_read_committed;
use sql::free_objects::{LOCK_BATCH, begin_and_acquire, undo};
use sql::object_lock::DeleteUnlocked;

/// The number of rows that one transaction of a purge deletes.
const PURGE_BATCH: i64 = 500;

#[cfg(feature = "mysql")]
super::has_engine!(diesel::MysqlConnection, Mysql);
#[cfg(feature = "async-mysql")]
super::has_async_engine!(diesel_async::AsyncMysqlConnection, Mysql);

impl<C: Link<Backend = Mysql>> TransactionBackend<C> for Mysql {
    transactions_of_link!(C);

    fn validate(_: &mut C, transaction: &TransactionOptions) -> Result<(), Error> {
        if transaction.deferrable {
            return Err(Error::Unsupported {
                engine: "MySQL",
                mode: "DEFERRABLE".to_owned(),
                hint: "leave it out",
            });
        }
        Ok(())
    }

    async fn begin(conn: &mut C, transaction: &TransactionOptions) -> Result<SessionChange, Error> {
        session::begin(conn, &sql::begin(transaction)).await?;
        Ok(SessionChange::None)
    }

    /// Resets the statement cache: the statement that failed may be one of the closure's.
    fn prepare_retry(conn: &mut C) {
        execute::reset_statement_cache(conn);
    }

    fn mark_isolation(
        conn: &mut C,
        level: Option<IsolationLevel>,
    ) -> Option<active_isolation::Scope> {
        Some(active_isolation::enter(conn, level))
    }

    async fn commit(conn: &mut C) -> Result<(), Error> {
        let committed = caught(conn.batch(sql::COMMIT)).await;
        depth::break_if_panicked(conn, committed).map_err(run::commit_error)?;
        depth::mark_closed(conn);
        Ok(())
    }

    /// The message of COMMIT ends with a statement that restores the session. Either may have failed, so it is unknown
    /// whether the transaction was committed. Unless the error is that of a wait for a lock: COMMIT alone waits, for a backup
    /// or for `FLUSH TABLES WITH READ LOCK`, and has then rolled back (`lock_wait_timeout`).
    fn map_commit_error(_: &mut C, error: Error) -> Error {
        match error {
            Error::StatementTimeout { source } if classify(&source) == ErrorClass::LockTimeout => {
                Error::StatementTimeout { source }
            }
            Error::Database(source) | Error::StatementTimeout { source } => {
                Error::OutcomeUnknown { source }
            }
            error => error,
        }
    }

    async fn roll_back(conn: &mut C) -> QueryResult<bool> {
        let started = conn.batch(sql::ROLLBACK_STARTED).await.is_ok();
        if !started {
            session::restore_by_text(conn, sql::ROLLBACK).await?;
        }
        Ok(started)
    }

    /// InnoDB ends the transaction after a deadlock or a changed record. A COMMIT that the closure sent before that
    /// error can't be detected.
    async fn may_end_transactions(conn: &mut C, reason: RetryReason) -> bool {
        reason != RetryReason::LockTimeout || rolled_back_by_timeout(conn).await.unwrap_or(false)
    }

    async fn assume_single_writer(conn: &mut C) -> Result<(), Error> {
        writers::remember(conn).await
    }

    /// Diesel knows that a deadlock has ended the transaction. diesel-async does not if the error came in place of rows. In a
    /// transaction of this crate nothing is committed by itself (`autocommit` is off), and its COMMIT finds out; in another
    /// one the server is asked.
    async fn assert_open(conn: &mut C) -> Result<(), Error> {
        if depth::is_aborted(conn) {
            return Err(run::ended(None));
        }
        if !C::KNOWS_SERVER_STATE && active_isolation::entered(conn).is_none() {
            isolation::assert_in_transaction(conn, None).await?;
        }
        Ok(())
    }

    /// Rolls back outer transactions too: they can't be committed without what the future has not done.
    fn abandon(conn: &mut C, depth: u32, undo: Option<&str>) {
        match undo {
            // First: a cancel request that meets one of them has the server skip those that follow.
            Some(undo) if depth == 0 => conn.abandon(&[undo, "ROLLBACK"]),
            // In an open transaction a lease is rolled back.
            _ => conn.abandon(&["ROLLBACK"]),
        }
    }
}

impl<C: Link<Backend = Mysql>> ObjectLockBackend<C> for Mysql {
    async fn begin_with_locks(conn: &mut C, request: &Request) -> Result<LockOutcome, Error> {
        let rides_with_begin = !request.is_kept() && request.ids.len() <= LOCK_BATCH;
        if rides_with_begin && let Some(outcome) = try_begin_fast(conn, request).await? {
            return Ok(outcome);
        }
        // A kept row usually exists, and locking it takes one round trip. If it was missing once, take the named lock
        // first.
        let mut named_lock = !request.is_kept();
        loop {
            session::begin(conn, sql::BEGIN_MARKED).await?;
            let transaction = object_lock::TxContext::Started { named_lock };
            let acquired = object_lock::acquire(conn, request, transaction, &mut 0).await;
            let Err(refusal) = acquired else {
                return Ok(LockOutcome::Acquired);
            };
            run::roll_back(conn).await;
            match refusal {
                AcquireError::Unavailable { .. } => return Ok(LockOutcome::Unavailable),
                AcquireError::NoRow => named_lock = true,
                // It no longer holds the objects that it had acquired.
                AcquireError::LimitOfServer(_) => object_lock::row::pause::<C>(request).await,
                // The transaction has not run the closure yet, so it can be restarted.
                AcquireError::Failed(Error::Deadlock { source }) => {
                    if request.is_expired() {
                        return Err(request.timed_out(Some(source)));
                    }
                }
                AcquireError::Failed(error) => return Err(error),
            }
        }
    }

    async fn lock_in_transaction(conn: &mut C, request: &Request) -> Result<LockOutcome, Error> {
        let (open, mut acquired) = (object_lock::TxContext::Open, 0);
        let Err(refusal) = object_lock::acquire(conn, request, open, &mut acquired).await else {
            return Ok(LockOutcome::Acquired);
        };
        let error = match refusal {
            AcquireError::Unavailable { timed_out: true }
                if rolled_back_by_timeout(conn).await? =>
            {
                run::ended(None)
            }
            AcquireError::Unavailable { .. } | AcquireError::NoRow if acquired == 0 => {
                return Ok(LockOutcome::Unavailable);
            }
            AcquireError::Unavailable { .. } | AcquireError::NoRow => request.unavailable(),
            AcquireError::LimitOfServer(error) | AcquireError::Failed(error) => error,
        };
        Err(request.partly_locked(acquired, error))
    }

    async fn purge_unlocked(conn: &mut C) -> Result<usize, Error> {
        let mut purged = 0;
        loop {
            // READ COMMITTED locks no gaps between rows.
            let delete = || DeleteUnlocked { limit: PURGE_BATCH };
            match at_read_committed!(conn, delete().execute(conn).await)? {
                0 => return Ok(purged),
                removed => purged += removed,
            }
        }
    }

    async fn held_locks(conn: &mut C) -> Result<Vec<HeldObjectLock>, Error> {
        held_locks::held_locks(conn).await
    }
}

/// Starts the transaction and acquires the locks in one message. Returns `None`, with no transaction open, when that
/// failed: then the caller acquires the locks one by one, which waits or returns the error. A request that does not wait
/// is answered at once when another transaction holds a row.
async fn try_begin_fast(
    conn: &mut impl Link<Backend = Mysql>,
    request: &Request,
) -> Result<Option<LockOutcome>, Error> {
    let batch = begin_and_acquire(request);
    let started = caught(conn.begin(&batch)).await;
    let Err(error) = depth::break_if_panicked(conn, started) else {
        return Ok(Some(LockOutcome::Acquired));
    };
    let error = session::untracked(error)?;
    // Its error takes precedence: the first one may be that of a condition of this crate.
    session::restore_by_text(conn, &undo(request)).await?;
    let held = matches!(
        classify(&error),
        ErrorClass::LockTimeout | ErrorClass::LockNotAvailable
    );
    Ok((held && request.wait == Wait::No).then_some(LockOutcome::Unavailable))
}
