//! Which connections are in a transaction that this crate has begun, and at which level.
//!
//! MySQL does not show the level of a single transaction (only the session's), so that
//! `lock_object` inside `with_object_lock` could not know; and SQLite shows of no transaction how it was begun. The closure runs on the thread that began
//! the transaction and gets the connection by reference: while it runs, the connection's address on
//! this thread stands for the transaction. Elsewhere the lookup finds nothing, and the session's level
//! decides.

use std::cell::RefCell;

use crate::IsolationLevel;

thread_local! {
    static ENTERED: RefCell<Vec<(usize, Option<IsolationLevel>)>> = const { RefCell::new(Vec::new()) };
}

/// A transaction that this crate has begun, with its level when it has set one.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(feature = "mysql"),
    allow(dead_code, reason = "of SQLite's it counts that there is one")
)]
pub(super) struct Begun(pub(super) Option<IsolationLevel>);

/// Takes the mark away when it is dropped.
pub struct Scope {
    address: usize,
}

pub(super) fn enter<C>(conn: &C, level: Option<IsolationLevel>) -> Scope {
    let address = address(conn);
    ENTERED.with_borrow_mut(|entered| entered.push((address, level)));
    Scope { address }
}

/// The open transaction, when this crate has begun it.
pub(super) fn entered<C>(conn: &C) -> Option<Begun> {
    let address = address(conn);
    ENTERED.with_borrow(|entered| {
        let own = entered.iter().rev().find(|(entry, _)| *entry == address);
        own.map(|(_, level)| Begun(*level))
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
