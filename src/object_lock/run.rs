//! Runs a closure in a transaction that holds the locks.

use std::pin::pin;
use std::time::Instant;

use crate::Error;
use crate::cancel::CancelGuard;
use crate::engine::HasEngine;
use crate::object_lock::acquire::Request;
use crate::object_lock::backend::{LockOutcome, ObjectLockBackend};
use crate::object_lock::events;
use crate::poll::Work;
use crate::transaction::backend::TransactionBackend;
use crate::transaction::depth::depth;
use crate::transaction::run::{begin_savepoint, commit_or_rollback_then, roll_back};
use crate::waiting::answer_in_time;

/// Awaits `$work`, which uses the connection. Fails, and ends what it has started, if the server does not answer in time. A macro,
/// because a closure that returns a future hides whether that is `Send`.
macro_rules! in_time {
    ($conn:ident, $request:ident, $work:expr) => {{
        let depth = depth($conn)?;
        let answer = {
            let work = pin!($work);
            answer_in_time::<C, _>($request.wait, $request.started, work).await
        };
        answer.unwrap_or_else(|| {
            CancelGuard::abandon($conn, depth);
            Err($request.timed_out(None))
        })
    }};
}

/// Acquires the locks in the open transaction.
pub(super) async fn lock<C: HasEngine>(
    conn: &mut C,
    method: &'static str,
    request: &Request,
) -> Result<LockOutcome, Error> {
    if depth(conn)? == 0 {
        return Err(Error::NotInTransaction { method });
    }
    let outcome = in_time!(conn, request, lock_open(conn, request));
    events::record_outcome(request, outcome)
}

async fn lock_open<C: HasEngine>(conn: &mut C, request: &Request) -> Result<LockOutcome, Error> {
    C::LockEngine::assert_open(conn).await?;
    C::LockEngine::lock_in_transaction(conn, request).await
}

/// Begins a transaction, or a savepoint in the open one, acquires the locks in it, and runs the closure. `None` when
/// the request does not wait and another transaction holds one of the locks.
pub(super) async fn run<C, T, E, F>(
    conn: &mut C,
    request: &Request,
    work: F,
) -> Result<Option<T>, E>
where
    C: HasEngine,
    for<'r> F: Work<&'r mut C, Result<T, E>>,
    E: From<Error>,
{
    let outcome = in_time!(conn, request, begin(conn, request));
    if events::record_outcome(request, outcome)? == LockOutcome::Unavailable {
        return Ok(None);
    }
    let acquired = Instant::now();
    let result = commit_or_rollback_then(conn, work, || {
        events::record_released(request, acquired.elapsed());
    });
    result.await.map(Some)
}

/// Begins a transaction, or a savepoint in the open one, and acquires the locks in it. Leaves neither open unless the locks
/// are acquired.
pub(crate) async fn begin<C: HasEngine>(
    conn: &mut C,
    request: &Request,
) -> Result<LockOutcome, Error> {
    if depth(conn)? > 0 {
        lock_in_savepoint(conn, request).await
    } else {
        C::LockEngine::begin_with_locks(conn, request).await
    }
}

/// Acquires the locks in a savepoint, so that its rollback releases them where the engine allows it.
async fn lock_in_savepoint<C: HasEngine>(
    conn: &mut C,
    request: &Request,
) -> Result<LockOutcome, Error> {
    begin_savepoint(conn).await?;
    let outcome = C::LockEngine::lock_in_transaction(conn, request).await;
    if !matches!(outcome, Ok(LockOutcome::Acquired)) {
        roll_back(conn).await;
    }
    outcome
}

/// [`run`] for a request that does not wait: fails with [`Error::Unavailable`] when an object is locked.
pub(super) async fn run_or_unavailable<C, T, E, F>(
    conn: &mut C,
    request: &Request,
    f: F,
) -> Result<T, E>
where
    C: HasEngine,
    for<'r> F: Work<&'r mut C, Result<T, E>>,
    E: From<Error>,
{
    let result = run(conn, request, f).await?;
    result.ok_or_else(|| request.unavailable().into())
}

pub(super) fn purge_in_transaction() -> Error {
    Error::AlreadyInTransaction {
        method: "purge_object_locks",
        reason: "it would lock the deleted rows until it ends",
    }
}
