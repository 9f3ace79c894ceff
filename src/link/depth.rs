//! The depth of nested transactions, as Diesel counts them in the status of a connection; and what this crate remembers of a
//! connection while a closure runs.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::thread;

use diesel::connection::TransactionManagerStatus;

use crate::rt::lock;
use crate::{Error, IsolationLevel, ObjectId};

/// The number of open transactions on the connection, savepoints included, for a method of this crate.
///
/// Fails with [`Error::TransactionAborted`] in a closure of this crate whose transaction, or savepoint, has ended: what the
/// method did would be committed, and the closure fails. Fails on a connection that is marked as broken.
pub(crate) fn depth(status: &TransactionManagerStatus) -> Result<u32, Error> {
    let now = counted(status)?;
    match RUNNING.with(status, |inside| *inside) {
        Some(inside) if now < inside => Err(ended_in_closure(inside, now)),
        _ => Ok(now),
    }
}

/// The number of open transactions on the connection, as Diesel counts them. Fails on a connection that is marked as broken.
pub(crate) fn counted(status: &TransactionManagerStatus) -> Result<u32, Error> {
    Ok(status.transaction_depth()?.map_or(0, NonZero::get))
}

/// The number of transactions in which the innermost closure of this crate runs.
static RUNNING: Entries<u32> = Entries::new();

pub(crate) type RunningClosure = Entered<u32>;

pub(crate) fn mark_running(status: &TransactionManagerStatus, inside: u32) -> RunningClosure {
    RUNNING.enter(status, inside)
}

static STARTED: Entries<Started> = Entries::new();

/// A transaction that this crate has started. A closure that acquires another lock needs what is remembered of it.
pub(crate) struct Started {
    level: StartedTransaction,
    /// The objects that it has locked, and whether shared at first.
    locked: BTreeMap<ObjectId, bool>,
}

/// The isolation level if this crate has set one: MySQL shows that of the session, but not that of a transaction. SQLite does not
/// even show how a transaction was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StartedTransaction(pub(crate) Option<IsolationLevel>);

/// Until it is dropped the transaction is remembered. A closure may have ended the one in which it runs, and started another.
pub(crate) type StartedMark = Entered<Started>;

pub(crate) fn mark_started(
    status: &TransactionManagerStatus,
    level: Option<IsolationLevel>,
) -> StartedMark {
    let (level, locked) = (StartedTransaction(level), BTreeMap::new());
    STARTED.enter(status, Started { level, locked })
}

/// `None` if this crate has not started the transaction: the session's level is used.
pub(crate) fn started(status: &TransactionManagerStatus) -> Option<StartedTransaction> {
    STARTED.with(status, |started| started.level)
}

/// Remembers these locks, with their first modes, if a transaction of this crate is open.
pub(crate) fn add_locked<'a>(
    status: &TransactionManagerStatus,
    ids: impl Iterator<Item = (&'a ObjectId, bool)>,
) {
    STARTED.with(status, |started| {
        for (id, is_shared) in ids {
            started.locked.entry(id.clone()).or_insert(is_shared);
        }
    });
}

/// Whether the transaction has locked the object, `Some(true)` if shared. A savepoint that was rolled back may have released it.
pub(crate) fn locked_mode(status: &TransactionManagerStatus, id: &ObjectId) -> Option<bool> {
    STARTED
        .with(status, |started| started.locked.get(id).copied())
        .flatten()
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

/// Entries by the address of a connection's status. The connection is borrowed meanwhile and can't move, so that the address
/// identifies it in this process. The thread does not: a task may continue on another one after each `.await`.
struct Entries<T>(Mutex<BTreeMap<usize, T>>);

impl<T> Entries<T> {
    const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    fn enter(&'static self, status: &TransactionManagerStatus, entry: T) -> Entered<T> {
        let address = std::ptr::from_ref(status).addr();
        let outer = lock(&self.0).insert(address, entry);
        Entered {
            entries: self,
            address,
            outer,
        }
    }

    fn with<R>(
        &self,
        status: &TransactionManagerStatus,
        read: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        let address = std::ptr::from_ref(status).addr();
        lock(&self.0).get_mut(&address).map(read)
    }
}

/// When it is dropped, the entry that it replaced is found again.
pub(crate) struct Entered<T: 'static> {
    entries: &'static Entries<T>,
    address: usize,
    outer: Option<T>,
}

impl<T> Drop for Entered<T> {
    fn drop(&mut self) {
        let mut entries = lock(&self.entries.0);
        match self.outer.take() {
            Some(outer) => entries.insert(self.address, outer),
            None => entries.remove(&self.address),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const COMMITTED: Option<IsolationLevel> = Some(IsolationLevel::ReadCommitted);
    const SERIALIZABLE: Option<IsolationLevel> = Some(IsolationLevel::Serializable);

    #[test]
    fn transaction_is_found_from_another_thread_and_ended_there() {
        let conn = &TransactionManagerStatus::default();
        assert_eq!(started(conn), None);
        let scope = mark_started(conn, COMMITTED);
        thread::scope(|threads| {
            let other = threads.spawn(move || {
                let found = started(conn);
                drop(scope);
                found
            });
            let found = other.join().expect("no panic");
            assert_eq!(found, Some(StartedTransaction(COMMITTED)));
        });
        assert_eq!(started(conn), None);
    }

    #[test]
    fn transaction_is_found_by_its_connection_and_again_after_one_within() {
        let [a, b] = [(); 2].map(|()| TransactionManagerStatus::default());
        let outer = mark_started(&a, SERIALIZABLE);
        assert_eq!(started(&b), None);
        let other = mark_started(&b, None);
        let inner = mark_started(&a, COMMITTED);
        assert_eq!(started(&a), Some(StartedTransaction(COMMITTED)));
        drop(inner);
        assert_eq!(started(&a), Some(StartedTransaction(SERIALIZABLE)));
        drop(outer);
        assert_eq!(started(&a), None);
        assert_eq!(started(&b), Some(StartedTransaction(None)));
        drop(other);
        assert_eq!(started(&b), None);
    }
}
