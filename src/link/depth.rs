//! The depth of nested transactions, as Diesel counts them in the status of a connection.

use std::panic::resume_unwind;
use std::thread;

use diesel::connection::TransactionManagerStatus;

use crate::Error;
use crate::link::entered::{Entered, Entries};

/// The number of open transactions on the connection, savepoints included, for a method of this crate.
///
/// Fails with [`Error::TransactionAborted`] in a closure of this crate whose transaction, or savepoint, has ended: what the
/// method did would be committed, and the closure fails. Fails on a connection that is marked as broken.
pub(crate) fn depth(status: &TransactionManagerStatus) -> Result<u32, Error> {
    let now = counted(status)?;
    match RUNNING.of(status) {
        Some(inside) if now < inside => Err(ended_in_closure(inside, now)),
        _ => Ok(now),
    }
}

/// The number of open transactions on the connection, as Diesel counts them. Fails on a connection that is marked as broken.
pub(crate) fn counted(status: &TransactionManagerStatus) -> Result<u32, Error> {
    let depth = status.transaction_depth()?;
    Ok(depth.map_or(0, std::num::NonZero::get))
}

/// The number of transactions in which the innermost closure of this crate runs, by the address of the connection's status.
static RUNNING: Entries<u32> = Entries::new();

pub(crate) type RunningClosure = Entered<u32>;

impl RunningClosure {
    pub(crate) fn enter(status: &TransactionManagerStatus, inside: u32) -> Self {
        RUNNING.enter(status, inside)
    }
}

pub(crate) fn ended_in_closure(inside: u32, now: u32) -> Error {
    Error::TransactionAborted {
        reason: format!(
            "the closure started with {inside} nested transactions open, and has {now} open now"
        ),
        source: None,
    }
}

/// Marks the connection as broken: its session is in a state that Diesel does not know of. A pool discards it.
pub(crate) fn mark_broken(status: &mut TransactionManagerStatus) {
    status.set_in_error();
}

pub(crate) fn break_if_panicked<T>(
    status: &mut TransactionManagerStatus,
    outcome: thread::Result<T>,
) -> T {
    outcome.unwrap_or_else(|panic| {
        mark_broken(status);
        resume_unwind(panic)
    })
}

/// Sets Diesel's count of open transactions to zero, after a statement of this crate has ended it.
pub(crate) fn mark_closed(status: &mut TransactionManagerStatus) {
    *status = TransactionManagerStatus::default();
}

/// Returns whether Diesel knows that the database has aborted the transaction: on InnoDB after a deadlock.
///
/// Diesel exposes that only with a feature that would apply to the whole application, so this reads its `Debug` output.
pub(crate) fn is_aborted(status: &TransactionManagerStatus) -> bool {
    format!("{status:?}").contains("requires_rollback_maybe_up_to_top_level: true")
}
