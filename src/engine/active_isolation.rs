//! Remembers which connections are in a transaction that this crate has started, and its isolation level.
//!
//! MySQL shows the isolation level of the session, but not that of a transaction. SQLite does not show how a
//! transaction was started. Both are needed when a closure acquires another lock in its transaction. The closure runs
//! on the thread that started the transaction and gets the connection by reference, so the connection's address
//! identifies the transaction on this thread while the closure runs. If the lookup finds nothing, the session's level
//! is used.

use std::cell::RefCell;

use crate::IsolationLevel;

thread_local! {
    static ENTERED: RefCell<Vec<(usize, Option<IsolationLevel>)>> = const { RefCell::new(Vec::new()) };
}

/// A transaction that this crate has started, with its isolation level if the crate has set one.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(feature = "_mysql"),
    allow(dead_code, reason = "the level is read on MySQL only")
)]
pub(super) struct StartedTransaction(pub(super) Option<IsolationLevel>);

/// Removes the entry when it is dropped.
pub struct Scope {
    address: usize,
}

/// Adds an entry for the transaction that is open on the connection.
pub(super) fn enter<C>(conn: &C, level: Option<IsolationLevel>) -> Scope {
    let address = address(conn);
    ENTERED.with_borrow_mut(|entered| entered.push((address, level)));
    Scope { address }
}

/// The open transaction, if this crate has started it.
pub(super) fn entered<C>(conn: &C) -> Option<StartedTransaction> {
    let address = address(conn);
    ENTERED.with_borrow(|entered| {
        let own = entered.iter().rev().find(|(entry, _)| *entry == address);
        own.map(|(_, level)| StartedTransaction(*level))
    })
}

impl Drop for Scope {
    fn drop(&mut self) {
        ENTERED.with_borrow_mut(|entered| {
            if let Some(position) = entered
                .iter()
                .rposition(|(entry, _)| *entry == self.address)
            {
                entered.remove(position);
            }
        });
    }
}

fn address<C>(conn: &C) -> usize {
    std::ptr::from_ref(conn).addr()
}
