//! The depth of nested transactions, as Diesel counts them.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use diesel::QueryResult;
use diesel::connection::{
    AnsiTransactionManager, Connection, TransactionManager, TransactionManagerStatus,
};

use crate::Error;
use crate::transaction::backend::TransactionBackend;

/// The number of open transactions on the connection, savepoints included.
///
/// Fails with [`Error::SeparateTransactionState`] for a wrapper that does not count them in its inner connection.
pub(crate) fn depth<C: TransactionBackend>(conn: &mut C) -> Result<u32, Error> {
    let own: *const _ = C::TransactionManager::transaction_manager_status_mut(conn);
    let status = C::status(conn);
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
pub(crate) fn mark_broken<C: TransactionBackend>(conn: &mut C) {
    C::status(conn).set_in_error();
}

/// Marks the connection as broken if `work` panics (in the application's instrumentation).
#[allow(dead_code, reason = "not without an engine")]
pub(crate) fn break_on_panic<C, T>(conn: &mut C, work: impl FnOnce(&mut C) -> T) -> T
where
    C: TransactionBackend,
{
    catch_unwind(AssertUnwindSafe(|| work(conn))).unwrap_or_else(|panic| {
        mark_broken(conn);
        resume_unwind(panic)
    })
}

/// Sends BEGIN and what goes with it.
#[allow(dead_code, reason = "not without an engine")]
pub(crate) fn begin<C>(conn: &mut C, message: &str) -> QueryResult<()>
where
    C: TransactionBackend + Connection<TransactionManager = AnsiTransactionManager>,
{
    break_on_panic(conn, |conn| {
        AnsiTransactionManager::begin_transaction_sql(conn, message)
    })
}

/// Sets Diesel's count of open transactions to zero, after a statement of this crate has ended it.
#[allow(dead_code, reason = "not without an engine")]
pub(crate) fn mark_closed<C: TransactionBackend>(conn: &mut C) {
    *C::status(conn) = TransactionManagerStatus::default();
}

/// Returns whether Diesel knows that the database has aborted the transaction: on InnoDB after a deadlock.
///
/// Diesel exposes that only with a feature that would apply to the whole application, so this reads its `Debug` output.
#[allow(dead_code, reason = "not without an engine")]
pub(crate) fn is_aborted<C: TransactionBackend>(conn: &mut C) -> bool {
    let status = C::status(conn);
    format!("{status:?}").contains("requires_rollback_maybe_up_to_top_level: true")
}
