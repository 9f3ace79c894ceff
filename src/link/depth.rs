//! The depth of nested transactions, as Diesel counts them in the status of a connection; and what this crate remembers of a
//! connection while a closure runs.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::thread;

use diesel::connection::TransactionManagerStatus;

use crate::Error;
use crate::rt::lock;

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
    Ok(status.transaction_depth()?.map_or(0, NonZero::get))
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

/// Entries by the address of a connection or its status. The connection is borrowed meanwhile and can't move, so that the
/// address identifies it in this process. The thread does not: a task may continue on another one after each `.await`.
pub(crate) struct Entries<T>(Mutex<BTreeMap<usize, T>>);

impl<T: Copy> Entries<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    pub(crate) fn enter<P>(&'static self, place: &P, entry: T) -> Entered<T> {
        let address = std::ptr::from_ref(place).addr();
        let outer = lock(&self.0).insert(address, entry);
        Entered {
            entries: self,
            address,
            outer,
        }
    }

    pub(crate) fn of<P>(&self, place: &P) -> Option<T> {
        let address = std::ptr::from_ref(place).addr();
        lock(&self.0).get(&address).copied()
    }
}

/// When it is dropped, the entry that it replaced is found again.
pub struct Entered<T: Copy + 'static> {
    entries: &'static Entries<T>,
    address: usize,
    outer: Option<T>,
}

impl<T: Copy> Drop for Entered<T> {
    fn drop(&mut self) {
        let mut entries = lock(&self.entries.0);
        match self.outer {
            Some(outer) => entries.insert(self.address, outer),
            None => entries.remove(&self.address),
        };
    }
}
