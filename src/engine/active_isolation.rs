//! Remembers which connections are in a transaction that this crate has started, and its isolation level.
//!
//! MySQL shows the isolation level of the session, but not that of a transaction. SQLite does not show how a
//! transaction was started. Both are needed when a closure acquires another lock in its transaction. While the closure
//! runs, its connection is borrowed and can't move, so the connection's address identifies the transaction in this
//! process. The thread does not: a task may continue on another one after each `.await`. If the lookup finds nothing,
//! the session's level is used.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::IsolationLevel;

/// The innermost transaction of this crate on the connection at each address.
static ENTERED: Mutex<BTreeMap<usize, StartedTransaction>> = Mutex::new(BTreeMap::new());

/// A transaction that this crate has started, with its isolation level if the crate has set one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "_mysql"),
    allow(dead_code, reason = "the level is read on MySQL only")
)]
pub(super) struct StartedTransaction(pub(super) Option<IsolationLevel>);

/// Removes the entry when it is dropped.
pub struct Scope {
    address: usize,
    /// The transaction around this one: a closure may have ended the one in which it runs, and started another.
    outer: Option<StartedTransaction>,
}

/// Adds an entry for the transaction that is open on the connection.
pub(super) fn enter<C>(conn: &C, level: Option<IsolationLevel>) -> Scope {
    let address = address(conn);
    let outer = lock().insert(address, StartedTransaction(level));
    Scope { address, outer }
}

/// The open transaction, if this crate has started it.
pub(super) fn entered<C>(conn: &C) -> Option<StartedTransaction> {
    lock().get(&address(conn)).copied()
}

impl Drop for Scope {
    fn drop(&mut self) {
        let mut entered = lock();
        match self.outer {
            Some(outer) => entered.insert(self.address, outer),
            None => entered.remove(&self.address),
        };
    }
}

fn lock() -> MutexGuard<'static, BTreeMap<usize, StartedTransaction>> {
    ENTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn address<C>(conn: &C) -> usize {
    std::ptr::from_ref(conn).addr()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::{StartedTransaction, enter, entered};
    use crate::IsolationLevel;

    const COMMITTED: Option<IsolationLevel> = Some(IsolationLevel::ReadCommitted);
    const SERIALIZABLE: Option<IsolationLevel> = Some(IsolationLevel::Serializable);

    /// In place of a connection: only the address counts.
    struct Connection(#[allow(dead_code, reason = "has an address of its own")] u8);

    #[test]
    fn transaction_is_found_from_another_thread_and_ended_there() {
        let conn = Connection(0);
        let conn = &conn;
        assert_eq!(entered(conn), None);
        let scope = enter(conn, COMMITTED);
        thread::scope(|threads| {
            let other = threads.spawn(move || {
                let found = entered(conn);
                drop(scope);
                found
            });
            let found = other.join().expect("no panic");
            assert_eq!(found, Some(StartedTransaction(COMMITTED)));
        });
        assert_eq!(entered(conn), None);
    }

    #[test]
    fn transactions_of_other_connections_are_not_found() {
        let [a, b] = [Connection(0), Connection(0)];
        let first = enter(&a, COMMITTED);
        assert_eq!(entered(&b), None);
        let second = enter(&b, None);
        drop(first);
        assert_eq!(entered(&a), None);
        assert_eq!(entered(&b), Some(StartedTransaction(None)));
        drop(second);
        assert_eq!(entered(&b), None);
    }

    #[test]
    fn transaction_around_another_is_found_again() {
        let conn = Connection(0);
        let outer = enter(&conn, SERIALIZABLE);
        let inner = enter(&conn, COMMITTED);
        assert_eq!(entered(&conn), Some(StartedTransaction(COMMITTED)));
        drop(inner);
        assert_eq!(entered(&conn), Some(StartedTransaction(SERIALIZABLE)));
        drop(outer);
        assert_eq!(entered(&conn), None);
    }
}
