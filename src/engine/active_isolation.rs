//! Remembers which connections are in a transaction that this crate has started, and its isolation level.
//!
//! MySQL shows the isolation level of the session, but not that of a transaction. SQLite does not show how a transaction was
//! started. Both are needed when a closure acquires another lock. If nothing is found, the session's level is used.

use crate::IsolationLevel;
use crate::link::depth::{Entered, Entries};

static ENTERED: Entries<StartedTransaction> = Entries::new();

/// A transaction that this crate has started, with its isolation level if the crate has set one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartedTransaction(pub(crate) Option<IsolationLevel>);

/// Until it is dropped the transaction is remembered. A closure may have ended the one in which it runs, and started another.
pub(crate) type Scope = Entered<StartedTransaction>;

pub(crate) fn enter<C>(conn: &C, level: Option<IsolationLevel>) -> Scope {
    ENTERED.enter(conn, StartedTransaction(level))
}

pub(crate) fn entered<C>(conn: &C) -> Option<StartedTransaction> {
    ENTERED.of(conn)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::{StartedTransaction, enter, entered};
    use crate::IsolationLevel;

    const COMMITTED: Option<IsolationLevel> = Some(IsolationLevel::ReadCommitted);
    const SERIALIZABLE: Option<IsolationLevel> = Some(IsolationLevel::Serializable);

    // Numbers stand for connections: only their addresses count.

    #[test]
    fn transaction_is_found_from_another_thread_and_ended_there() {
        let conn = 0;
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
    fn transaction_is_found_by_its_connection_and_again_after_one_within() {
        let [a, b] = [0, 1];
        let outer = enter(&a, SERIALIZABLE);
        assert_eq!(entered(&b), None);
        let other = enter(&b, None);
        let inner = enter(&a, COMMITTED);
        assert_eq!(entered(&a), Some(StartedTransaction(COMMITTED)));
        drop(inner);
        assert_eq!(entered(&a), Some(StartedTransaction(SERIALIZABLE)));
        drop(outer);
        assert_eq!(entered(&a), None);
        assert_eq!(entered(&b), Some(StartedTransaction(None)));
        drop(other);
        assert_eq!(entered(&b), None);
    }
}
