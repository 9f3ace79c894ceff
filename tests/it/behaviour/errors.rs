//! Errors that say what is wrong and what to do.

use diesel_locks::prelude::*;
use diesel_locks::{Error, Retention};

use crate::support::Backend;
use crate::support::threads::{begin, roll_back};

pub(crate) fn lock_object_needs_a_transaction<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let error = conn.lock_object("a").expect_err("no transaction");
    assert!(matches!(
        error,
        Error::NotInTransaction {
            method: "lock_object"
        }
    ));
    assert!(error.to_string().contains("with_object_lock"), "{error}");
    let error = conn.try_lock_object("a").expect_err("no transaction");
    assert!(matches!(
        error,
        Error::NotInTransaction {
            method: "try_lock_object"
        }
    ));
}

pub(crate) fn a_missing_table_names_migrate<B: Backend>() {
    let database = B::empty();
    let mut conn = database.connect();
    for retention in [Retention::Transient, Retention::Kept] {
        let lock = LockRequest::new("a").retention(retention);
        let errors = [
            conn.with_object_lock(&lock, |_| Ok::<_, Error>(()))
                .expect_err("no table"),
            conn.try_with_object_lock(&lock, |_| Ok::<_, Error>(()))
                .expect_err("no table"),
            B::in_transaction(&mut conn, |conn| conn.lock_object(&lock)).expect_err("no table"),
        ];
        for error in errors {
            assert!(error.is_missing_tables(), "{error:?}");
            assert!(
                error.to_string().contains("diesel_locks::migrate"),
                "{error}"
            );
        }
    }
    diesel_locks::migrate(&mut conn).expect("migrate");
    conn.with_object_lock("a", |_| Ok::<_, Error>(()))
        .expect("the connection stays usable");
}

pub(crate) fn read_only_connection_is_a_typed_error<B: Backend>() {
    let database = B::new();
    let mut conn = B::read_only_to(&database.url());
    for retention in [Retention::Transient, Retention::Kept] {
        let lock = LockRequest::new("a").retention(retention);
        let errors = [
            conn.with_object_lock(&lock, |_| Ok::<_, Error>(()))
                .expect_err("read only"),
            conn.try_with_object_lock(&lock, |_| Ok::<_, Error>(()))
                .expect_err("read only"),
            B::in_transaction(&mut conn, |conn| conn.lock_object(&lock)).expect_err("read only"),
        ];
        for error in errors {
            assert!(error.is_read_only(), "{error:?}");
        }
    }
    assert_eq!(B::counter(&mut conn, 0), 0, "the connection stays usable");
}

/// The transaction has read before the lock, at a level with one snapshot.
pub(crate) fn a_stale_transaction_is_refused<B: Backend>() {
    let database = B::new();
    for retention in [Retention::Transient, Retention::Kept] {
        for wait in [
            Wait::Forever,
            Wait::AtMost(std::time::Duration::from_secs(1)),
        ] {
            let mut conn = database.stale_transaction();
            let lock = LockRequest::new("a").retention(retention).wait(wait);
            let errors = [
                conn.lock_object(&lock).expect_err("stale"),
                conn.try_lock_object(lock.clone().wait(Wait::No))
                    .expect_err("stale"),
                conn.with_object_lock(&lock, |_| Ok::<_, Error>(()))
                    .expect_err("stale"),
            ];
            for error in errors {
                assert!(
                    matches!(error, Error::UnsuitableIsolation { .. }),
                    "{error:?}"
                );
            }
            B::counter(&mut conn, 0);
            roll_back(&mut conn);
            conn.with_object_lock(&lock, |conn| {
                B::count_up(conn, 0);
                Ok::<_, Error>(())
            })
            .expect("at top level it is fine at any level of the session");
        }
    }
    // Counted by the four other transactions and by the four of ours, none lost.
    assert_eq!(B::counter(&mut database.connect(), 0), 8);
}

pub(crate) fn purge_and_migrate_need_to_be_outside_a_transaction<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    begin(&mut conn);
    let error = conn.purge_object_locks().expect_err("in a transaction");
    assert!(matches!(
        error,
        Error::AlreadyInTransaction {
            method: "purge_object_locks",
            ..
        }
    ));
    let error = diesel_locks::migrate(&mut conn).expect_err("in a transaction");
    assert!(matches!(
        error,
        Error::AlreadyInTransaction {
            method: "migrate",
            ..
        }
    ));
    roll_back(&mut conn);
}
