//! Errors that say what is wrong and what to do.

use std::sync::Arc;
use std::time::Duration;

use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, ListOptions, Retention};

use crate::behaviour::slots::{acquire, one_hour, single_slot};
use crate::support::Backend;
use crate::support::threads::{Holder, begin, roll_back};

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

pub(crate) fn refusals_name_what_was_requested<B: Backend>() {
    let database = Arc::new(B::new());
    let holder = Holder::acquire(&database, "a\"b");
    let mut conn = database.connect();
    for (ids, named) in [
        (vec!["a\"b"], r#"the object lock "a\"b""#),
        (vec!["a\"b", "c"], r#"the object locks "a\"b", "c""#),
    ] {
        let now = LockRequest::all(ids.clone()).wait(Wait::No);
        let limit = Duration::from_millis(100);
        let soon = LockRequest::all(ids).wait(Wait::AtMost(limit));
        let [refused, late] = [now, soon].map(|request| {
            conn.with_object_lock(request, |_| Ok::<_, Error>(()))
                .expect_err("held")
                .to_string()
        });
        assert_eq!(refused, format!("{named}: not acquired, already held"));
        assert!(
            late.starts_with(&format!("{named}: not acquired within ")),
            "{late}"
        );
        assert!(late.ends_with(" ms (limit 100 ms)"), "{late}");
    }
    holder.release();

    let slot = acquire::<B>(&mut conn, &single_slot());
    let refused = conn
        .acquire_slot(&single_slot(), one_hour(), Wait::No)
        .expect_err("held");
    assert_eq!(
        refused.to_string(),
        r#"a slot of the semaphore "one" (1 permit): not acquired, already held"#
    );
    conn.release_slot(slot).expect("held");
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
        for wait in [Wait::Forever, Wait::AtMost(Duration::from_secs(1))] {
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
    let single = Semaphore::new("one", 1);
    let lease = LeaseOptions::new(Duration::from_secs(60));
    let slot = conn.acquire_slot(&single, lease, Wait::No).expect("free");
    let held = conn.held_slots(&ListOptions::new()).expect("rows");
    begin(&mut conn);
    let error = conn.request_release(&held[0]).expect_err("in one");
    assert!(matches!(
        error,
        Error::AlreadyInTransaction {
            method: "request_release",
            ..
        }
    ));
    let error = conn.set_slot_data(&slot, "data").expect_err("in one");
    assert!(matches!(
        error,
        Error::AlreadyInTransaction {
            method: "set_slot_data",
            ..
        }
    ));
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
    conn.release_slot(slot).expect("held");
}
