//! Acquires object locks.
//!
//! InnoDB detects deadlocks among waits for rows, but not those that involve a named lock. So a transaction that may
//! hold other locks stops waiting for the named lock after a second and waits for the row itself.

use diesel::mysql::Mysql;

use super::execute::with_errno;
use super::isolation::Unknown;
use super::sql::free_objects::{LOCK_BATCH, acquire_in_savepoint, undo_savepoint};
use crate::engine::active_isolation;
use crate::link::Link;
use crate::object_lock::acquire::Request;
use crate::poll::caught;
use crate::{ObjectId, Wait, transaction::depth};

pub(super) mod error;
mod named_lock;
pub(super) mod row;

use error::AcquireError;
use named_lock::{acquire_with_named_lock, release_named_lock};
use row::{Target, lock_row, probe};

/// The transaction in which to acquire the locks.
#[derive(Clone, Copy)]
pub(super) enum TxContext {
    /// Started for this request, at READ COMMITTED; it may be rolled back and restarted.
    Started {
        /// Whether to take the named lock first, because the row is likely to be missing.
        named_lock: bool,
    },
    /// It was open before the request.
    Open,
}

/// Acquires all locks, in the request's order. In an open transaction InnoDB may hold the locks that were acquired before an
/// error until the transaction ends, also after a rollback to a savepoint: `acquired` counts them. A request that does not
/// wait looks for held objects first.
pub(super) async fn acquire(
    conn: &mut impl Link<Backend = Mysql>,
    request: &Request,
    transaction: TxContext,
    acquired: &mut usize,
) -> Result<(), AcquireError> {
    let mut unknown = match transaction {
        TxContext::Started { .. } => None,
        TxContext::Open => Unknown::of(active_isolation::entered(conn), || request.resource())
            .map_err(AcquireError::failed)?,
    };
    let in_batches = !request.is_kept() && request.ids.len() > LOCK_BATCH;
    let probes =
        matches!(transaction, TxContext::Open) && request.wait == Wait::No && request.ids.len() > 1;
    if (in_batches || probes)
        && let Some(unknown) = unknown.take()
    {
        unknown
            .ask(conn, || request.resource())
            .await
            .map_err(AcquireError::failed)?;
    }
    if probes {
        probe(conn, request).await?;
    }
    if !in_batches {
        return acquire_each(conn, request, &request.ids, transaction, unknown, acquired).await;
    }
    for ids in request.ids.chunks(LOCK_BATCH) {
        let before = *acquired;
        // Until the message succeeds, any of them may be locked.
        *acquired += ids.len();
        if !try_acquire_fast(conn, ids, request.wait).await? {
            *acquired = before;
            acquire_each(conn, request, ids, TxContext::Open, None, acquired).await?;
        }
    }
    Ok(())
}

/// Acquires transient locks in one message. Returns `false`, with none of them acquired, when the message failed and
/// the transaction is still open.
async fn try_acquire_fast(
    conn: &mut impl Link<Backend = Mysql>,
    ids: &[ObjectId],
    wait: Wait,
) -> Result<bool, AcquireError> {
    let message = acquire_in_savepoint(ids, wait);
    // A failed message may leave named locks held.
    let acquired = caught(conn.batch(&message)).await;
    let Err(error) = depth::break_if_panicked(conn, acquired) else {
        return Ok(true);
    };
    let failure = with_errno(conn, error).await;
    // This fails when InnoDB has rolled back the transaction.
    if conn.batch(&undo_savepoint(ids)).await.is_ok() {
        return Ok(false);
    }
    for id in ids {
        // The first error takes precedence.
        if release_named_lock(conn, id).await.is_err() {
            break;
        }
    }
    Err(AcquireError::failed(failure))
}

/// Acquires the locks one by one.
async fn acquire_each(
    conn: &mut impl Link<Backend = Mysql>,
    request: &Request,
    ids: &[ObjectId],
    transaction: TxContext,
    mut unknown: Option<Unknown>,
    acquired: &mut usize,
) -> Result<(), AcquireError> {
    for id in ids {
        let target = Target {
            request,
            id,
            holds_nothing: matches!(transaction, TxContext::Started { .. }) && *acquired == 0,
        };
        let named_lock_first = match transaction {
            TxContext::Started { named_lock } => named_lock,
            TxContext::Open => !request.is_kept(),
        };
        if !named_lock_first {
            match lock_row(conn, target).await? {
                Some(session) => {
                    if let Some(unknown) = unknown.take() {
                        unknown
                            .check(conn, || request.resource(), session)
                            .await
                            .map_err(AcquireError::failed)?;
                    }
                    *acquired += 1;
                    continue;
                }
                None if matches!(transaction, TxContext::Started { .. }) => {
                    return Err(AcquireError::NoRow);
                }
                None => {}
            }
        }
        if let Some(unknown) = unknown.take() {
            unknown
                .ask(conn, || request.resource())
                .await
                .map_err(AcquireError::failed)?;
        }
        let locked = caught(acquire_with_named_lock(conn, target)).await;
        depth::break_if_panicked(conn, locked)?;
        *acquired += 1;
    }
    Ok(())
}
