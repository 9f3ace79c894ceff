//! The depth of nested transactions, as Diesel counts them.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use diesel::connection::TransactionManagerStatus;

use crate::Error;
use crate::engine::HasEngine;
use crate::transaction::backend::TransactionBackend;

/// The number of open transactions on the connection, savepoints included, for a method of this crate.
///
/// Fails with [`Error::TransactionAborted`] in a closure of this crate whose transaction, or savepoint, has ended: what the
/// method did would be committed, and the closure fails. For the other errors see [`counted`].
pub(crate) fn depth<C: HasEngine>(conn: &mut C) -> Result<u32, Error> {
    let now = counted(conn)?;
    match running().get(&address(conn)) {
        Some(&inside) if now < inside => Err(ended_in_closure(inside, now)),
        _ => Ok(now),
    }
}

/// The number of open transactions on the connection, as Diesel counts them.
///
/// Fails with [`Error::SeparateTransactionState`] for a wrapper that does not count them in its inner connection.
pub(crate) fn counted<C: HasEngine>(conn: &mut C) -> Result<u32, Error> {
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

/// The number of transactions in which the innermost closure of this crate runs, on the connection with the status at each
/// address. While the closure runs, its connection is borrowed and can't move.
static RUNNING: Mutex<BTreeMap<usize, u32>> = Mutex::new(BTreeMap::new());

/// A closure of this crate. Dropped when it ends.
pub(crate) struct RunningClosure {
    address: usize,
    /// The number of the closure around it.
    outer: Option<u32>,
}

impl RunningClosure {
    pub(crate) fn enter<C: HasEngine>(conn: &mut C, inside: u32) -> Self {
        let address = address(conn);
        let outer = running().insert(address, inside);
        Self { address, outer }
    }
}

impl Drop for RunningClosure {
    fn drop(&mut self) {
        let mut running = running();
        match self.outer {
            Some(outer) => running.insert(self.address, outer),
            None => running.remove(&self.address),
        };
    }
}

fn running() -> MutexGuard<'static, BTreeMap<usize, u32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn address<C: HasEngine>(conn: &mut C) -> usize {
    std::ptr::from_ref(C::LockEngine::status(conn)).addr()
}

/// The error for a closure that has started in `inside` transactions, of which `now` are open.
pub(crate) fn ended_in_closure(inside: u32, now: u32) -> Error {
    Error::TransactionAborted {
        reason: format!(
            "the closure started with {inside} nested transactions open, and has {now} open now"
        ),
        source: None,
    }
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
