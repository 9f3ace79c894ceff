//! The depth of nested transactions, as Diesel counts them.

use std::panic::resume_unwind;
use std::thread;

use diesel::connection::TransactionManagerStatus;

use crate::Error;
use crate::engine::HasEngine;
use crate::transaction::backend::TransactionBackend;

/// The number of open transactions on the connection, savepoints included.
///
/// Fails with [`Error::SeparateTransactionState`] for a wrapper that does not count them in its inner connection.
pub(crate) fn depth<C: HasEngine>(conn: &mut C) -> Result<u32, Error> {
    let own: *const _ = C::counted_transactions(conn);
    let status = C::LockEngine::status(conn);
    if !std::ptr::eq(own, status) {
        return Err(Error::SeparateTransactionState {
            wrapper: std::any::type_name::<C>(),
        });
    }
    Ok(status
        .transaction_depth()?
        .map_or(0, std::num::NonZero::get))
}

/// Marks the connection as broken: its session is in a state that Diesel does not know of. A pool discards it.
pub(crate) fn mark_broken<C: HasEngine>(conn: &mut C) {
    C::LockEngine::status(conn).set_in_error();
}

/// Returns the result of a use of the connection. Marks the connection as broken if that panicked.
pub(crate) fn break_if_panicked<C, T>(conn: &mut C, outcome: thread::Result<T>) -> T
where
    C: HasEngine,
{
    outcome.unwrap_or_else(|panic| {
        mark_broken(conn);
        resume_unwind(panic)
    })
}

/// Sets Diesel's count of open transactions to zero, after a statement of this crate has ended it.
#[allow(dead_code, reason = "not without an engine")]
pub(crate) fn mark_closed<C: HasEngine>(conn: &mut C) {
    *C::LockEngine::status(conn) = TransactionManagerStatus::default();
}

/// Returns whether Diesel knows that the database has aborted the transaction: on InnoDB after a deadlock.
///
/// Diesel exposes that only with a feature that would apply to the whole application, so this reads its `Debug` output.
#[allow(dead_code, reason = "not without an engine")]
pub(crate) fn is_aborted<C: HasEngine>(conn: &mut C) -> bool {
    let status = C::LockEngine::status(conn);
    format!("{status:?}").contains("requires_rollback_maybe_up_to_top_level: true")
}
