//! Runs a closure in a transaction that holds the locks.

use std::time::Instant;

#[cfg(feature = "_async")]
use diesel::{
    deserialize::FromSqlRow,
    expression::QueryMetadata,
    query_builder::{Query, QueryFragment, QueryId},
};

use crate::Error;
use crate::engine::HasEngine;
#[cfg(feature = "_async")]
use crate::link::Link;
use crate::object_lock::acquire::Request;
use crate::object_lock::backend::{LockOutcome, ObjectLockBackend};
use crate::object_lock::events;
#[cfg(feature = "_async")]
use crate::poll::RowsWork;
use crate::poll::Work;
use crate::transaction::backend::TransactionBackend;
use crate::transaction::depth::depth;
#[cfg(feature = "_async")]
use crate::transaction::run::commit_or_rollback_rows;
use crate::transaction::run::{begin_savepoint, commit_or_rollback_then, roll_back};

/// Acquires the locks in the open transaction.
pub(super) async fn lock<C: HasEngine>(
    conn: &mut C,
    method: &'static str,
    request: &Request,
) -> Result<LockOutcome, Error> {
    if depth(conn)? == 0 {
        return Err(Error::NotInTransaction { method });
    }
    let outcome = match C::LockEngine::assert_open(conn).await {
        Ok(()) => C::LockEngine::lock_in_transaction(conn, request).await,
        Err(error) => Err(error),
    };
    events::record_outcome(request, outcome)
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
    let outcome = begin(conn, request).await;
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
    result.ok_or_else(|| unavailable(request).into())
}

pub(super) fn unavailable(request: &Request) -> Error {
    Error::Unavailable {
        resource: request.resource(),
    }
}

pub(super) fn purge_in_transaction() -> Error {
    Error::AlreadyInTransaction {
        method: "purge_object_locks",
        reason: "it would lock the deleted rows until it ends",
    }
}

/// Runs a query and the closure in a transaction that holds the locks.
#[cfg(feature = "_async")]
pub(super) async fn run_with_rows<C, Q, U, T, E, F>(
    conn: &mut C,
    request: &Request,
    query: Q,
    work: F,
) -> Result<T, E>
where
    C: Link,
    Q: Query + QueryFragment<C::Backend> + QueryId + Send + Sync,
    C::Backend: QueryMetadata<Q::SqlType>,
    U: FromSqlRow<Q::SqlType, C::Backend> + Send,
    for<'r> F: RowsWork<&'r mut C, Vec<U>, Result<T, E>>,
    E: From<Error>,
{
    let rows = begin_and_load(conn, request, &query).await;
    let outcome = match &rows {
        Ok(Some(_)) => Ok(LockOutcome::Acquired),
        Ok(None) => Ok(LockOutcome::Unavailable),
        Err(error) => Err(error),
    };
    events::record(request, outcome);
    let Some(rows) = rows? else {
        return Err(unavailable(request).into());
    };
    let acquired = Instant::now();
    commit_or_rollback_rows(conn, rows, work, || {
        events::record_released(request, acquired.elapsed());
    })
    .await
}

/// Returns the rows, or `None` if the locks are not acquired. On any error the transaction or savepoint is rolled back.
#[cfg(feature = "_async")]
async fn begin_and_load<C, Q, U>(
    conn: &mut C,
    request: &Request,
    query: &Q,
) -> Result<Option<Vec<U>>, Error>
where
    C: Link,
    Q: Query + QueryFragment<C::Backend> + QueryId + Send + Sync,
    C::Backend: QueryMetadata<Q::SqlType>,
    U: FromSqlRow<Q::SqlType, C::Backend> + Send,
{
    if depth(conn)? == 0 {
        return C::LockEngine::begin_with_locks_and_load(conn, request, query).await;
    }
    if lock_in_savepoint(conn, request).await? == LockOutcome::Unavailable {
        return Ok(None);
    }
    let rows = conn.load(query).await;
    if rows.is_err() {
        roll_back(conn).await;
    }
    Ok(Some(rows?))
}
