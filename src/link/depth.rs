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

static STARTED: Entries<StartedTransaction> = Entries::new();

/// A transaction that this crate has started, with its isolation level if the crate has set one. It is remembered by the address
/// of its connection, because a closure that acquires another lock needs it: MySQL shows the isolation level of the session, but
/// not that of a transaction, and SQLite does not show how a transaction was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartedTransaction(pub(crate) Option<IsolationLevel>);

/// Until it is dropped the transaction is remembered. A closure may have ended the one in which it runs, and started another.
pub(crate) type StartedMark = Entered<StartedTransaction>;

pub(crate) fn mark_started<C>(conn: &C, level: Option<IsolationLevel>) -> StartedMark {
    STARTED.enter(conn, StartedTransaction(level))
}

/// `None` if this crate has not started the transaction: the session's level is used.
pub(crate) fn started<C>(conn: &C) -> Option<StartedTransaction> {
    STARTED.of(conn)
}

/// The objects that a transaction of this crate has locked, and whether shared at first, by the address of the connection's status.
static LOCKED: Mutex<BTreeMap<usize, BTreeMap<ObjectId, bool>>> = Mutex::new(BTreeMap::new());

/// Until it is dropped, the locks of the transaction are remembered.
pub(crate) struct LockedObjects(usize);

impl LockedObjects {
    pub(crate) fn enter(status: &TransactionManagerStatus) -> Self {
        let address = std::ptr::from_ref(status).addr();
        lock(&LOCKED).insert(address, BTreeMap::new());
        Self(address)
    }

    /// Adds those that are not remembered yet, if a transaction of this crate is open.
    pub(crate) fn add<'a>(
        status: &TransactionManagerStatus,
        ids: impl Iterator<Item = (&'a ObjectId, bool)>,
    ) {
        if let Some(locked) = lock(&LOCKED).get_mut(&std::ptr::from_ref(status).addr()) {
            for (id, is_shared) in ids {
                locked.entry(id.clone()).or_insert(is_shared);
            }
        }
    }

    /// Whether the transaction has locked the object, `Some(true)` if shared. A savepoint that was rolled back may have released it.
    pub(crate) fn mode(status: &TransactionManagerStatus, id: &ObjectId) -> Option<bool> {
        let locked = lock(&LOCKED);
        let locked = locked.get(&std::ptr::from_ref(status).addr())?;
        locked.get(id).copied()
    }
}

impl Drop for LockedObjects {
    fn drop(&mut self) {
        lock(&LOCKED).remove(&self.0);
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

#[cfg(test)]
mod tests {
    use std::thread;

    use super::{StartedTransaction, mark_started, started};
    use crate::IsolationLevel;

    const COMMITTED: Option<IsolationLevel> = Some(IsolationLevel::ReadCommitted);
    const SERIALIZABLE: Option<IsolationLevel> = Some(IsolationLevel::Serializable);

    // Numbers stand for connections: only their addresses count.

    #[test]
    fn transaction_is_found_from_another_thread_and_ended_there() {
        let conn = 0;
        let conn = &conn;
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
        let [a, b] = [0, 1];
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
