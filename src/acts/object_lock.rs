//! Acquires object locks, also in a transaction for a closure; purges kept rows.

use std::pin::pin;
use std::time::Duration;

use crate::Error;
use crate::acts::cancel_guard::{CancelGuard, unless_dropped};
use crate::acts::closures::Work;
use crate::acts::events::{self, Period};
#[cfg(feature = "testing")]
use crate::acts::failures;
use crate::acts::transaction::{self, TransactionFailure, begin_savepoint, outside};
use crate::acts::waiting::answer_in_time;
use crate::engine::ending::roll_back;
use crate::engine::tables::{OBJECTS, protected};
use crate::engine::{Engine, HasEngine};
use crate::link::depth::{add_locked, depth, locked_mode};
use crate::rt::LATEST_ANSWER;
use crate::values::lock_request::{LockOutcome, Request};

pub(crate) async fn lock(
    engine: &mut dyn Engine,
    method: &'static str,
    request: &Request,
) -> Result<LockOutcome, Error> {
    if depth(engine.status())? == 0 {
        return Err(Error::NotInTransaction { method });
    }
    let outcome = unless_dropped!(engine, |engine| in_time(engine, request, false));
    events::record_locks(request, outcome.as_ref().copied());
    outcome
}

/// Acquires the locks in the open transaction, or [begins](begin) one. Fails, and ends what it has started, if the server does
/// not answer in time.
async fn in_time(
    engine: &mut dyn Engine,
    request: &Request,
    begins: bool,
) -> Result<LockOutcome, Error> {
    let _waiting = Period::wait_for_locks(request);
    let depth = depth(engine.status())?;
    let in_process = engine.is_in_process();
    // PostgreSQL locks all objects by one statement.
    let ids = u64::try_from(request.ids.len()).unwrap_or(u64::MAX);
    let silence = LATEST_ANSWER.saturating_add(Duration::from_millis(ids));
    let answer = {
        let work = pin!(async {
            if begins {
                return begin(engine, request).await;
            }
            engine.assert_open().await?;
            lock_in_transaction(engine, request).await
        });
        answer_in_time(in_process, request.wait, request.started, silence, work).await
    };
    answer.unwrap_or_else(|| {
        CancelGuard::abandon(engine, depth);
        Err(request.timed_out(None))
    })
}

/// Runs the closure in a transaction, or savepoint, that holds the locks. `None` when the request does not wait and another
/// transaction holds one of the locks.
pub(crate) async fn run<C, T, E, F>(
    conn: &mut C,
    request: &Request,
    work: F,
) -> Result<Option<T>, E>
where
    C: HasEngine,
    for<'r> F: Work<&'r mut C, Result<T, E>>,
    E: From<Error>,
{
    let ran = run_begun(conn, request, work).await;
    ran.map_err(TransactionFailure::into_error)
}

/// [`run`], with what failed.
pub(crate) async fn run_begun<C, T, E, F>(
    conn: &mut C,
    request: &Request,
    work: F,
) -> Result<Option<T>, TransactionFailure<E>>
where
    C: HasEngine,
    for<'r> F: Work<&'r mut C, Result<T, E>>,
{
    let outcome = in_time(&mut *C::engine(conn)?, request, true).await;
    events::record_locks(request, outcome.as_ref().copied());
    if outcome? == LockOutcome::Unavailable {
        return Ok(None);
    }
    let ended = events::locks_held(request);
    let result = transaction::run_begun(conn, Some(request), work, ended);
    result.await.map(Some)
}

/// Begins a transaction, or a savepoint in the open one, and acquires the locks in it. Leaves neither open unless the locks
/// are acquired. A rollback of the savepoint releases them where the engine allows it.
pub(crate) async fn begin(
    engine: &mut dyn Engine,
    request: &Request,
) -> Result<LockOutcome, Error> {
    if depth(engine.status())? == 0 {
        #[cfg(feature = "testing")]
        if let Some(chosen) = failures::of_locks(engine, request).await {
            return chosen;
        }
        return begin_outermost(engine, request).await;
    }
    begin_savepoint(engine).await?;
    let outcome = lock_in_transaction(engine, request).await;
    if !matches!(outcome, Ok(LockOutcome::Acquired)) {
        roll_back(engine).await;
    }
    outcome
}

/// How often a request creates the rows of its shared locks, which may be purged again before they are locked. More often
/// only if the database hides them.
const MAX_CREATIONS: u32 = 100;

/// Begins a transaction and acquires the locks in it or leaves none open.
pub(crate) async fn begin_outermost(
    engine: &mut dyn Engine,
    request: &Request,
) -> Result<LockOutcome, Error> {
    for _ in 0..MAX_CREATIONS {
        if let Some(outcome) = engine.begin_with_locks(request, false).await? {
            return Ok(outcome);
        }
        // Each in a transaction of its own: a row that is not committed excludes other readers.
        for id in request.shared.iter() {
            let row = request.for_shared(id);
            let created = engine.begin_with_locks(&row, true).await?;
            if created == Some(LockOutcome::Unavailable) {
                return Ok(LockOutcome::Unavailable);
            }
            if let Err(error) = engine.commit().await {
                roll_back(engine).await;
                // After a conflict with a transaction of another node the row is looked for again.
                let conflicts = error.is_retryable() || error.is_transaction_aborted();
                if !conflicts || depth(engine.status()).is_err() {
                    return Err(error);
                }
            }
        }
    }
    Err(protected(OBJECTS))
}

async fn lock_in_transaction(
    engine: &mut dyn Engine,
    request: &Request,
) -> Result<LockOutcome, Error> {
    for id in request.exclusive() {
        if locked_mode(engine.status(), id) == Some(true) {
            return Err(Error::LockUpgrade {
                resource: request.resource(),
                id: id.to_string(),
            });
        }
    }
    // PostgreSQL up to 16 refuses a shared lock to the holder of the exclusive one while another session waits.
    let status = &*engine.status();
    let request = &request.with_exclusive(|id| locked_mode(status, id) == Some(false));
    #[cfg(feature = "testing")]
    if let Some(chosen) = failures::of_locks(engine, request).await {
        return chosen;
    }
    let outcome = engine.lock_in_transaction(request).await?;
    if outcome.is_acquired() {
        add_locked(engine.status(), request.modes());
    }
    Ok(outcome)
}

pub(crate) async fn purge(engine: &mut dyn Engine) -> Result<usize, Error> {
    let reason = "it would lock the deleted rows until it ends";
    outside(engine, "purge_object_locks", reason)?;
    engine.purge_unlocked().await
}
