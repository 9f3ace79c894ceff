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
use row::lock_row;

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

/// Acquires all locks, in the request's order.
pub(super) async fn acquire(
    conn: &mut impl Link<Backend = Mysql>,
    request: &Request,
    transaction: TxContext,
) -> Result<(), AcquireError> {
    let unknown = match transaction {
        TxContext::Started { .. } => None,
        TxContext::Open => Unknown::of(active_isolation::entered(conn), || request.resource())?,
    };
    if request.is_kept() || request.ids.len() <= LOCK_BATCH {
        return acquire_each(conn, request, &request.ids, transaction, unknown).await;
    }
    if let Some(unknown) = unknown {
        unknown.ask(conn, || request.resource()).await?;
    }
    for ids in request.ids.chunks(LOCK_BATCH) {
        if !try_acquire_fast(conn, ids, request.wait).await? {
            acquire_each(conn, request, ids, TxContext::Open, None).await?;
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
        release_named_lock(conn, id).await?;
    }
    Err(failure.into())
}

/// Acquires the locks one by one.
async fn acquire_each(
    conn: &mut impl Link<Backend = Mysql>,
    request: &Request,
    ids: &[ObjectId],
    transaction: TxContext,
    mut unknown: Option<Unknown>,
) -> Result<(), AcquireError> {
    for (position, id) in ids.iter().enumerate() {
        let named_lock_first = match transaction {
            TxContext::Started { named_lock } => named_lock,
            TxContext::Open => !request.is_kept(),
        };
        if !named_lock_first {
            match lock_row(conn, request, id).await? {
                Some(session) => {
                    if let Some(unknown) = unknown.take() {
                        unknown.check(conn, || request.resource(), session).await?;
                    }
                    continue;
                }
                None if matches!(transaction, TxContext::Started { .. }) => {
                    return Err(AcquireError::NoRow);
                }
                None => {}
            }
        }
        if let Some(unknown) = unknown.take() {
            unknown.ask(conn, || request.resource()).await?;
        }
        let holds_no_locks = matches!(transaction, TxContext::Started { .. }) && position == 0;
        let acquired = acquire_with_named_lock(conn, request, id, holds_no_locks);
        let acquired = caught(acquired).await;
        depth::break_if_panicked(conn, acquired)?;
    }
    Ok(())
}
