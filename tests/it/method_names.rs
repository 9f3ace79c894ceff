//! An application's own trait may use any method name that this crate does not document.

use diesel::Connection;
use diesel_locks::prelude::*;

/// Names that the traits behind the public ones use.
trait Application: Connection {
    fn begin(&mut self) -> &'static str {
        "begin"
    }

    fn check(&self) -> &'static str {
        "check"
    }

    fn purge(&mut self) -> &'static str {
        "purge"
    }

    fn migrate(&mut self) -> &'static str {
        "migrate"
    }

    fn register(&mut self) -> &'static str {
        "register"
    }

    fn held(&mut self) -> &'static str {
        "held"
    }

    fn last(&mut self) -> &'static str {
        "last"
    }
}

impl<C: Connection> Application for C {}

fn names<C: ObjectLockExt + SemaphoreExt + SequenceExt + TransactionExt>(
    conn: &mut C,
) -> [&'static str; 7] {
    [
        conn.begin(),
        conn.check(),
        conn.purge(),
        conn.migrate(),
        conn.register(),
        conn.held(),
        conn.last(),
    ]
}

#[test]
fn a_generic_function_calls_the_methods_of_the_application() {
    let mut conn = diesel::SqliteConnection::establish(":memory:").expect("SQLite");
    assert_eq!(
        names(&mut conn),
        [
            "begin", "check", "purge", "migrate", "register", "held", "last"
        ]
    );
}
