//! Transactions that the application begins by its own SQL, so that Diesel does not count them.

use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, Retention};

use super::aborted::{assert_usable, prepared, runners};
use crate::behaviour::slots::{acquire, one_hour, slots_of};
use crate::support::Backend;

/// A method that begins a transaction.
type Method<C> = fn(&mut C) -> Result<(), Error>;

fn methods<B: Backend>() -> Vec<(&'static str, Method<B::Conn>)> {
    const SHORT: Wait = Wait::AtMost(Duration::from_millis(200));
    vec![
        ("with_object_lock, at most", |conn| {
            conn.with_object_lock(LockRequest::new("a").wait(SHORT), |_| Ok(()))
        }),
        ("with_object_lock, several", |conn| {
            conn.with_object_lock(["a", "b"], |_| Ok(()))
        }),
        ("with_object_lock, Wait::No", |conn| {
            conn.with_object_lock(LockRequest::new("a").wait(Wait::No), |_| Ok(()))
        }),
        ("try_with_object_lock, kept", |conn| {
            let kept = LockRequest::new("kept").retention(Retention::Kept);
            conn.try_with_object_lock(kept, |_| Ok(())).map(|_| ())
        }),
        ("run_transaction at the session's level", |conn| {
            conn.run_transaction(TransactionOptions::new(), |_| Ok(()))
        }),
        ("try_acquire_slot, new", |conn| {
            let new = Semaphore::new("new", 1);
            conn.try_acquire_slot(&new, one_hour()).map(|_| ())
        }),
        ("register_semaphores", |conn| {
            conn.register_semaphores([Semaphore::new("registered", 3)])
        }),
        ("purge_object_locks", |conn| {
            conn.purge_object_locks().map(|_| ())
        }),
        ("purge_slots", |conn| {
            conn.purge_slots(Duration::from_secs(3600)).map(|_| ())
        }),
    ]
}

pub(super) fn assert_untracked<T: std::fmt::Debug>(result: Result<T, Error>, what: &str) {
    let error = result.expect_err(what);
    // Leases are refused without `autocommit`, with a transaction or without.
    let refused = matches!(error, Error::UntrackedTransaction { .. })
        || error.to_string().contains("implicit (autocommit = 0)");
    assert!(refused, "{what}: {error:?}");
    assert!(!error.is_retryable() && !error.is_timeout(), "{what}");
}

/// The application's transaction neither ends nor is committed with what it has written.
pub(crate) fn untracked_transaction_is_refused_and_not_ended<B: Backend>() {
    let (database, mut conn) = prepared::<B>();
    let mut committed = 0;
    let check = |conn: &mut B::Conn,
                 what: &str,
                 committed: &mut i64,
                 call: &mut dyn FnMut(&mut B::Conn) -> Result<(), Error>| {
        for begin in B::UNTRACKED {
            conn.batch_execute(begin).expect(begin);
            B::count_up(conn, 0);
            assert_untracked(call(conn), what);
            let seen = B::counter(&mut database.connect(), 0);
            assert_eq!(seen, *committed, "committed: {what}, {begin}");
            let goes_on = B::try_sql(conn, "UPDATE counters SET n = n + 1 WHERE id = 0").is_ok();
            assert!(goes_on || !B::UNTRACKED_SURVIVES, "{what}, {begin}");
            if goes_on {
                *committed += 2;
            }
            conn.batch_execute("COMMIT").expect("COMMIT");
            let seen = B::counter(&mut database.connect(), 0);
            assert_eq!(seen, *committed, "lost: {what}, {begin}");
            B::end_untracked(conn);
        }
        assert_usable(conn, &database);
    };
    for (what, run) in runners::<B>() {
        let mut call = |conn: &mut B::Conn| run(conn, &mut |_| panic!("{what} runs"));
        check(&mut conn, what, &mut committed, &mut call);
    }
    for (what, method) in methods::<B>() {
        let mut call = method;
        check(&mut conn, what, &mut committed, &mut call);
    }
}

/// One in which nothing has been read or written. `run_transaction` on PostgreSQL can't see it at each level.
pub(crate) fn untracked_transaction_without_a_query_is_refused<B: Backend>() {
    let (database, mut conn) = prepared::<B>();
    for (what, run) in runners::<B>() {
        conn.batch_execute("BEGIN").expect("BEGIN");
        let result = run(&mut conn, &mut |_| panic!("{what} runs"));
        assert_untracked(result, what);
        conn.batch_execute("ROLLBACK").expect("ROLLBACK");
    }
    assert_usable(&mut conn, &database);
}

/// A lease that would vanish with the application's ROLLBACK. MySQL does not report a transaction.
pub(crate) fn leases_in_an_untracked_transaction_are_refused<B: Backend>() {
    let (database, mut conn) = prepared::<B>();
    if !B::sees_untracked_leases(&mut conn) {
        return;
    }
    let mut other = database.connect();
    let single = Semaphore::new("single", 1);
    conn.register_semaphores([single.clone()])
        .expect("register");
    for end in ["ROLLBACK", "COMMIT"] {
        let mut in_one = |what: &str, call: &mut dyn FnMut(&mut B::Conn) -> Result<(), Error>| {
            conn.batch_execute("BEGIN").expect("BEGIN");
            assert_untracked(call(&mut conn), what);
            conn.batch_execute(end).expect(end);
        };
        in_one("try_acquire_slot", &mut |conn| {
            conn.try_acquire_slot(&single, one_hour()).map(|_| ())
        });
        in_one("acquire_slot", &mut |conn| {
            conn.acquire_slot(&single, one_hour(), Wait::No).map(|_| ())
        });
        // Is free.
        let slot = acquire::<B>(&mut other, &single);
        in_one("renew_slot", &mut |conn| {
            conn.renew_slot(&mut slot.clone(), Duration::from_secs(60))
                .map(|_| ())
        });
        let held = other.held_slots(&slots_of(&single)).expect("rows");
        in_one("request_release", &mut |conn| {
            conn.request_release(&held[0]).map(drop)
        });
        in_one("set_slot_data", &mut |conn| {
            conn.set_slot_data(&slot, "data").map(drop)
        });
        in_one("release_slot", &mut |conn| {
            conn.release_slot(slot.clone()).map(|_| ())
        });
        in_one("force_release_all", &mut |conn| {
            conn.force_release_all("single").map(|_| ())
        });
        // Nor has the application's COMMIT renewed it, which would have shortened its lease.
        let held = other.held_slots(&slots_of(&single)).expect("rows");
        assert!(held[0].remaining > Duration::from_secs(60), "{held:?}");
        other.release_slot(slot).expect("not released");
    }
    assert_usable(&mut conn, &database);
}

/// Also with nothing to do. On MySQL, DDL would commit it.
pub(crate) fn migrate_in_an_untracked_transaction_is_refused<B: Backend>() {
    let (database, mut conn) = prepared::<B>();
    for begin in B::UNTRACKED {
        conn.batch_execute(begin).expect(begin);
        B::count_up(&mut conn, 0);
        let migrated = diesel_locks::migrate(&mut conn);
        if B::ONE_WRITER {
            // SQLite needs no transaction to see that there is nothing to create.
            assert_eq!(migrated.expect(begin), Vec::<String>::new());
        } else {
            assert_untracked(migrated, begin);
        }
        conn.batch_execute("ROLLBACK").expect("ROLLBACK");
        assert_eq!(B::counter(&mut conn, 0), 0, "{begin}");
        // Reading the counter without `autocommit` has begun another one. SQLite, which has no such setting, has none to end.
        assert_eq!(conn.batch_execute("ROLLBACK").is_err(), B::ONE_WRITER);
        B::end_untracked(&mut conn);
    }
    assert_usable(&mut conn, &database);
}
