//! Runs a closure in a transaction of this crate, and ends the transaction.

use std::panic::resume_unwind;
use std::thread;

use crate::cancel::CancelGuard;
use crate::engine::HasEngine;
use crate::engine::active_isolation;
use crate::poll::{RepeatedWork, Work, caught};
use crate::timer::{LATEST_ANSWER, Timer};
use crate::transaction::backend::TransactionBackend;
use crate::transaction::depth::{
    RunningClosure, break_if_panicked, counted, ended_in_closure, mark_broken, mark_closed,
};
use crate::transaction::retry::RetryReason;
use crate::{Error, IsolationLevel, TransactionOptions};

/// Runs the closure in the open transaction or savepoint, and commits it or rolls it back.
pub(crate) async fn commit_or_rollback<C, T, E, F>(conn: &mut C, work: F) -> Result<T, E>
where
    C: HasEngine,
    for<'r> F: Work<&'r mut C, Result<T, E>>,
    E: From<Error>,
{
    commit_or_rollback_then(conn, work, || ()).await
}

/// [`commit_or_rollback`] that calls `ended` after the end of the transaction, also when the closure panics.
pub(crate) async fn commit_or_rollback_then<C, T, E, F>(
    conn: &mut C,
    work: F,
    ended: impl FnOnce(),
) -> Result<T, E>
where
    C: HasEngine,
    for<'r> F: Work<&'r mut C, Result<T, E>>,
    E: From<Error>,
{
    let open = OpenTransaction::of(conn, READ_COMMITTED)?;
    let outcome = caught(async { work(&mut *conn).await }).await;
    open.conclude(conn, outcome, ended).await
}

/// The isolation level of transactions that hold locks and slots.
const READ_COMMITTED: Option<IsolationLevel> = Some(IsolationLevel::ReadCommitted);

/// Runs the closure once, in a transaction of its own.
pub(crate) async fn run_once<C, T, E, F>(
    conn: &mut C,
    transaction: &TransactionOptions,
    work: &mut F,
) -> Result<T, TransactionFailure<E>>
where
    C: HasEngine,
    for<'r> F: RepeatedWork<&'r mut C, Result<T, E>>,
{
    let change = C::LockEngine::begin(conn, transaction).await;
    let change = change.map_err(TransactionFailure::Transaction)?;
    let open = OpenTransaction::of(conn, transaction.isolation);
    let open = open.map_err(TransactionFailure::Transaction)?;
    let outcome = caught(async { work(&mut *conn).await }).await;
    let result = open.end(conn, outcome).await;
    if let Err(error) = C::LockEngine::restore_session(conn, change).await {
        mark_broken(conn);
        tracing::warn!(%error, "the connection is marked as broken");
    }
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Why a transaction failed.
pub(crate) enum TransactionFailure<E> {
    /// BEGIN or COMMIT failed.
    Transaction(Error),
    /// The closure failed, and its writes are rolled back.
    Closure(E),
    /// The closure failed after its transaction had ended: its writes may be committed.
    ClosureAfterEnd(E),
}

impl<E: From<Error>> TransactionFailure<E> {
    pub(crate) fn into_error(self) -> E {
        match self {
            Self::Transaction(error) => error.into(),
            Self::Closure(error) | Self::ClosureAfterEnd(error) => error,
        }
    }
}

/// The transaction or savepoint in which a closure runs.
struct OpenTransaction {
    /// The number of open transactions when the closure starts.
    inside: u32,
    mark: Option<active_isolation::Scope>,
    closure: RunningClosure,
}

impl OpenTransaction {
    /// The innermost transaction. `level` is the isolation level that this crate has set for it, if any; it is ignored in a
    /// savepoint.
    fn of<C: HasEngine>(conn: &mut C, level: Option<IsolationLevel>) -> Result<Self, Error> {
        let inside = counted(conn)?;
        if inside == 0 {
            // A wrapper that has begun the transaction on another connection than the one that it returns now.
            let reason = "the connection has no open transaction after BEGIN".to_owned();
            return Err(aborted(reason, None));
        }
        let mark = if inside == 1 {
            C::LockEngine::mark_isolation(conn, level)
        } else {
            None
        };
        let closure = RunningClosure::enter(conn, inside);
        Ok(Self {
            inside,
            mark,
            closure,
        })
    }

    /// Ends the transaction, then calls `ended`, and returns what the closure returned. Its panic continues.
    async fn conclude<C, T, E>(
        self,
        conn: &mut C,
        outcome: thread::Result<Result<T, E>>,
        ended: impl FnOnce(),
    ) -> Result<T, E>
    where
        C: HasEngine,
        E: From<Error>,
    {
        let result = self.end(conn, outcome).await;
        ended();
        let result = result.unwrap_or_else(|panic| resume_unwind(panic));
        result.map_err(TransactionFailure::into_error)
    }

    /// Commits if the closure returned `Ok`, and rolls back if it failed or panicked. Returns the panic.
    async fn end<C, T, E>(
        self,
        conn: &mut C,
        outcome: thread::Result<Result<T, E>>,
    ) -> thread::Result<Result<T, TransactionFailure<E>>>
    where
        C: HasEngine,
    {
        let Self {
            inside,
            mark,
            closure,
        } = self;
        drop((mark, closure));
        Ok(match outcome {
            Ok(Ok(value)) => match commit(conn, inside).await {
                Ok(()) => Ok(value),
                Err(error) => Err(TransactionFailure::Transaction(error)),
            },
            Ok(Err(error)) => Err(if roll_back_from(conn, inside).await {
                TransactionFailure::Closure(error)
            } else {
                TransactionFailure::ClosureAfterEnd(error)
            }),
            Err(panic) => {
                roll_back_from(conn, inside).await;
                return Err(panic);
            }
        })
    }
}

/// Commits the transaction, or releases the savepoint, in which the closure started. Rolls back on any error.
async fn commit<C: HasEngine>(conn: &mut C, inside: u32) -> Result<(), Error> {
    let now = match counted(conn) {
        Ok(now) => now,
        Err(error @ Error::SeparateTransactionState { .. }) => return Err(error),
        // A future of this crate was dropped in the closure, or a rollback has failed.
        Err(_) => {
            roll_back_from(conn, inside).await;
            let reason = "the connection is marked as broken".to_owned();
            return Err(aborted(reason, None));
        }
    };
    if now != inside {
        roll_back_from(conn, inside).await;
        let error = ended_in_closure(inside, now);
        return Err(with_prepared(conn, error).await);
    }
    let ended = if inside == 1 {
        C::LockEngine::commit(conn).await
    } else {
        C::LockEngine::release_savepoint(conn)
            .await
            .map_err(commit_error)
    };
    let Err(error) = ended else {
        return Ok(());
    };
    let nothing_committed = roll_back_from(conn, inside).await;
    if inside > 1 || nothing_committed {
        return Err(error);
    }
    let error = C::LockEngine::map_commit_error(conn, error);
    Err(with_prepared(conn, error).await)
}

/// Adds to the error of a closure that has ended its transaction that it may have prepared it.
async fn with_prepared<C: HasEngine>(conn: &mut C, error: Error) -> Error {
    let Error::TransactionAborted { mut reason, source } = error else {
        return error;
    };
    if let Some(prepared) = C::LockEngine::prepared_transactions(conn).await {
        reason.push_str("; the user has prepared transactions in this database, which hold their locks until COMMIT PREPARED or ROLLBACK PREPARED: ");
        reason.push_str(&prepared);
    }
    Error::TransactionAborted { reason, source }
}

/// The savepoint with which a transaction of this crate starts on MySQL and SQLite, where it distinguishes the
/// transaction from others.
pub(crate) const START_SAVEPOINT: &str = "diesel_locks_started";

/// Maps an error of COMMIT or RELEASE. An error that names a savepoint, in any language, means that the savepoint does
/// not exist, because the database has already ended its transaction. So does one on PostgreSQL that names the statement.
pub(crate) fn commit_error(error: diesel::result::Error) -> Error {
    if let diesel::result::Error::DatabaseError(_, information) = &error
        && [START_SAVEPOINT, "diesel_savepoint_", "RELEASE SAVEPOINT"]
            .iter()
            .any(|savepoint| information.message().contains(savepoint))
    {
        return aborted(ENDED.to_owned(), Some(error));
    }
    error.into()
}

const ENDED: &str = "the database has already ended it";

/// The error for a transaction that the database has already ended.
#[allow(dead_code, reason = "not without an engine")]
pub(crate) fn ended(source: Option<diesel::result::Error>) -> Error {
    aborted(ENDED.to_owned(), source)
}

/// The error for a transaction that had ended before its closure failed, and for another reason.
pub(crate) fn closed_before_failure(reason: RetryReason) -> Error {
    let reason = format!(
        "it had ended before its closure failed ({reason}), and the writes of the closure may be committed"
    );
    aborted(reason, None)
}

fn aborted(reason: String, source: Option<diesel::result::Error>) -> Error {
    Error::TransactionAborted { reason, source }
}

/// Starts a savepoint in the open transaction.
pub(crate) async fn begin_savepoint<C: HasEngine>(conn: &mut C) -> Result<(), Error> {
    C::LockEngine::assert_open(conn).await?;
    Ok(C::LockEngine::begin_savepoint(conn).await?)
}

/// Rolls back the closure's work, including nested transactions that it has left open: a panic leaves those open that
/// Diesel's `transaction` has started. Returns `false` when part of the work may be committed, because the transaction
/// that this crate has started had already ended.
///
/// Does not return the error of a rollback, because the closure's error or panic takes precedence. If a rollback fails,
/// the connection is lost: the server ends its transaction, and the connection is marked as broken.
pub(crate) async fn roll_back_from<C: HasEngine>(conn: &mut C, inside: u32) -> bool {
    let mut rolled_back = false;
    while let Ok(now) = counted(conn)
        && now >= inside.max(2)
    {
        // diesel-async panics in a debug build, if the future of a nested transaction of its own was dropped at its end.
        let Ok(result) = caught(C::LockEngine::roll_back_to_savepoint(conn)).await else {
            tracing::warn!("a rollback panicked: the connection is not used any more");
            mark_broken(conn);
            rolled_back = false;
            break;
        };
        rolled_back = result.is_ok();
        if let Err(error) = result {
            tracing::warn!(%error, "rollback failed");
            if counted(conn).is_ok_and(|after| after >= now) {
                break;
            }
        }
    }
    if inside > 1 {
        return rolled_back;
    }
    let was_broken = counted(conn).is_err();
    let mut outcome = None;
    let rolled_back = async { outcome = Some(caught(C::LockEngine::roll_back(conn)).await) };
    if was_broken && C::LockEngine::IS_REMOTE {
        // What has broken it may be that the server does not answer.
        C::LockTimer::answer_within(LATEST_ANSWER, rolled_back).await;
    } else {
        rolled_back.await;
    }
    let Some(outcome) = outcome else {
        tracing::warn!("no answer to a rollback: the connection is not used any more");
        return false;
    };
    let result = break_if_panicked(conn, outcome);
    match &result {
        // On SQLite, Diesel takes the connection for sound again.
        Ok(_) if was_broken => mark_broken(conn),
        // Also when Diesel does not know of the transaction, because the application has started it by its own SQL.
        Ok(_) if counted(conn).is_ok() => mark_closed(conn),
        Ok(_) => {}
        Err(error) => {
            tracing::warn!(%error, "rollback failed");
            mark_broken(conn);
        }
    }
    result.unwrap_or(false)
}

/// [`roll_back`] after an attempt of a wait that is stopped has begun the transaction, without an await in between. It is
/// rolled back also if the future is dropped. Nothing is to be rolled back on a connection that is marked as broken, and the
/// stop takes precedence over its error.
pub(crate) async fn roll_back_stopped<C: HasEngine>(conn: &mut C) {
    match CancelGuard::after_begin(conn) {
        Ok(mut guard) => {
            let rolled_back = caught(roll_back(&mut *guard)).await;
            guard.finish_with(rolled_back);
        }
        Err(error) => tracing::warn!(%error, "no rollback after a stop"),
    }
}

/// Rolls back the innermost transaction.
pub(crate) async fn roll_back<C: HasEngine>(conn: &mut C) {
    if let Ok(now) = counted(conn) {
        roll_back_from(conn, now).await;
    }
}
