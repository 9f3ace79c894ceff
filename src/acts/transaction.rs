//! Runs a closure in a transaction of this crate, and ends the transaction. Refuses what must not, or must, be in a transaction.

use std::panic::resume_unwind;
use std::thread;

use crate::acts::cancel_guard::CancelGuard;
use crate::acts::closures::{RepeatedWork, Work};
use crate::engine::ending::{aborted, commit_error, roll_back, roll_back_from};
use crate::engine::{Engine, HasEngine};
use crate::link::Savepoint;
use crate::link::depth::{
    RunningClosure, StartedMark, add_locked, counted, depth, ended_in_closure, mark_broken,
    mark_running, mark_started,
};
use crate::rt::caught;
use crate::values::lock_request::Request;
use crate::{Error, IsolationLevel, TransactionOptions};

/// Runs the closure in the open transaction or savepoint, which has acquired these locks, and commits it or rolls it back.
/// Calls `ended` after its end, also when the closure panics.
pub(crate) async fn commit_or_rollback<C, T, E, F>(
    conn: &mut C,
    locks: Option<&Request>,
    work: F,
    ended: impl FnOnce(),
) -> Result<T, E>
where
    C: HasEngine,
    for<'r> F: Work<&'r mut C, Result<T, E>>,
    E: From<Error>,
{
    let mut guard = CancelGuard::after_begin(conn)?;
    let outcome = caught(run_begun(&mut *guard, locks, work, ended)).await;
    let result = guard.finish_with(outcome);
    result.map_err(TransactionFailure::into_error)
}

/// [`commit_or_rollback`] on a connection that the caller guards. Returns what failed.
pub(crate) async fn run_begun<C, T, E, F>(
    conn: &mut C,
    locks: Option<&Request>,
    work: F,
    ended: impl FnOnce(),
) -> Result<T, TransactionFailure<E>>
where
    C: HasEngine,
    for<'r> F: Work<&'r mut C, Result<T, E>>,
{
    // That of transactions that hold locks and slots.
    let level = Some(IsolationLevel::ReadCommitted);
    let open = OpenTransaction::of(&mut *C::engine(conn)?, level, locks)?;
    let outcome = caught(async { work(&mut *conn).await }).await;
    let result = open.end(conn, outcome).await;
    ended();
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Fails in an open transaction, where `run_transaction` can't retry.
pub(crate) fn outermost(engine: &mut dyn Engine) -> Result<(), Error> {
    let reason = "its isolation level is set, and its earlier statements can't be retried; \
                  Diesel's transaction opens a savepoint";
    outside(engine, "run_transaction", reason)
}

pub(crate) async fn run_once<C, T, E, F>(
    conn: &mut C,
    transaction: &TransactionOptions,
    work: &mut F,
    is_begun: impl FnOnce(),
) -> Result<T, TransactionFailure<E>>
where
    C: HasEngine,
    for<'r> F: RepeatedWork<&'r mut C, Result<T, E>>,
{
    let begun = async {
        let mut engine = C::engine(conn)?;
        let has_changed_session = engine.begin(transaction).await?;
        let open = OpenTransaction::of(&mut *engine, transaction.isolation, None)?;
        Ok::<_, Error>((has_changed_session, open))
    };
    let (has_changed_session, open) = begun.await?;
    is_begun();
    let outcome = caught(async { work(&mut *conn).await }).await;
    let result = open.end(conn, outcome).await;
    if has_changed_session
        && let Ok(mut engine) = C::engine(conn)
        && let Err(error) = engine.restore_session().await
    {
        mark_broken(engine.status());
        tracing::warn!(%error, "the connection is marked as broken");
    }
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// What failed.
pub(crate) enum TransactionFailure<E> {
    Transaction(Error),
    Closure(E),
    /// The closure failed after its transaction had ended: its writes may be committed.
    ClosureAfterEnd(E),
}

impl<E> From<Error> for TransactionFailure<E> {
    fn from(error: Error) -> Self {
        Self::Transaction(error)
    }
}

impl<E: From<Error>> TransactionFailure<E> {
    pub(crate) fn into_error(self) -> E {
        match self {
            Self::Transaction(error) => error.into(),
            Self::Closure(error) | Self::ClosureAfterEnd(error) => error,
        }
    }
}

struct OpenTransaction {
    inside: u32,
    _mark: Option<StartedMark>,
    _closure: RunningClosure,
}

impl OpenTransaction {
    /// The innermost transaction. `level` is the isolation level that this crate has set for it, if any, `locks` those with
    /// which it begins; both are ignored in a savepoint.
    fn of(
        engine: &mut dyn Engine,
        level: Option<IsolationLevel>,
        locks: Option<&Request>,
    ) -> Result<Self, Error> {
        let inside = counted(engine.status())?;
        if inside == 0 {
            // A wrapper that has begun the transaction on another connection than the one that it returns now.
            let reason = "the connection has no open transaction after BEGIN".to_owned();
            return Err(aborted(reason, None));
        }
        let is_outermost = inside == 1;
        let mark = is_outermost.then(|| mark_started(engine.status(), level));
        if is_outermost && let Some(locks) = locks {
            add_locked(engine.status(), locks.modes());
        }
        Ok(Self {
            inside,
            _mark: mark,
            _closure: mark_running(engine.status(), inside),
        })
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
        let inside = self.inside;
        drop(self);
        let mut engine = match C::engine(conn) {
            Ok(engine) => engine,
            // A wrapper that has changed its inner connection, with which the transaction ends.
            Err(error) => {
                return outcome.map(|result| {
                    Err(match result {
                        Ok(_) => TransactionFailure::Transaction(error),
                        Err(error) => TransactionFailure::ClosureAfterEnd(error),
                    })
                });
            }
        };
        let engine = &mut *engine;
        Ok(match outcome {
            Ok(Ok(value)) => match commit(engine, inside).await {
                Ok(()) => Ok(value),
                Err(error) => Err(TransactionFailure::Transaction(error)),
            },
            Ok(Err(error)) => Err(if roll_back_from(engine, inside).await {
                TransactionFailure::Closure(error)
            } else {
                TransactionFailure::ClosureAfterEnd(error)
            }),
            Err(panic) => {
                roll_back_from(engine, inside).await;
                return Err(panic);
            }
        })
    }
}

/// Commits the transaction, or releases the savepoint, in which the closure started. Rolls back on any error.
async fn commit(engine: &mut dyn Engine, inside: u32) -> Result<(), Error> {
    let Ok(now) = counted(engine.status()) else {
        // A future of this crate was dropped in the closure, or a rollback has failed.
        roll_back_from(engine, inside).await;
        let reason = "the connection is marked as broken".to_owned();
        return Err(aborted(reason, None));
    };
    if now != inside {
        roll_back_from(engine, inside).await;
        let error = ended_in_closure(inside, now);
        return Err(with_prepared(engine, error).await);
    }
    let ended = if inside == 1 {
        engine.commit().await
    } else {
        let released = engine.savepoint(Savepoint::Release).await;
        released.map_err(commit_error)
    };
    let Err(error) = ended else {
        return Ok(());
    };
    let nothing_committed = roll_back_from(engine, inside).await;
    if inside > 1 || nothing_committed {
        return Err(error);
    }
    let error = engine.map_commit_error(error);
    Err(with_prepared(engine, error).await)
}

/// Adds to the error of a closure that has ended its transaction that it may have prepared it.
async fn with_prepared(engine: &mut dyn Engine, error: Error) -> Error {
    let Error::TransactionAborted { mut reason, source } = error else {
        return error;
    };
    if let Ok(Some(prepared)) = engine.prepared_transactions().await {
        reason.push_str("; the user has prepared transactions in this database, which hold their locks until COMMIT PREPARED or ROLLBACK PREPARED: ");
        reason.push_str(&prepared);
    }
    Error::TransactionAborted { reason, source }
}

pub(crate) async fn begin_savepoint(engine: &mut dyn Engine) -> Result<(), Error> {
    engine.assert_open().await?;
    Ok(engine.savepoint(Savepoint::Begin).await?)
}

/// [`roll_back`] after an attempt of a wait that is stopped has begun the transaction, without an await in between. It is
/// rolled back also if the future is dropped. Nothing is to be rolled back on a connection that is marked as broken, and the
/// stop takes precedence over its error.
pub(crate) async fn roll_back_stopped(engine: &mut dyn Engine) {
    match CancelGuard::after_begin(engine) {
        Ok(mut guard) => {
            let rolled_back = caught(roll_back(&mut *guard)).await;
            guard.finish_with(rolled_back);
        }
        Err(error) => tracing::warn!(%error, "no rollback after a stop"),
    }
}

pub(crate) fn outside(
    engine: &mut dyn Engine,
    method: &'static str,
    reason: &'static str,
) -> Result<(), Error> {
    if depth(engine.status())? > 0 {
        return Err(Error::AlreadyInTransaction { method, reason });
    }
    Ok(())
}

/// Fails outside a transaction, and in one that the server has already ended.
pub(crate) async fn assert_in_transaction(
    engine: &mut dyn Engine,
    method: &'static str,
) -> Result<(), Error> {
    if depth(engine.status())? == 0 {
        return Err(Error::NotInTransaction { method });
    }
    engine.assert_open().await
}

pub(crate) async fn assert_open_if_in_transaction(engine: &mut dyn Engine) -> Result<(), Error> {
    if depth(engine.status())? > 0 {
        engine.assert_open().await?;
    }
    Ok(())
}
