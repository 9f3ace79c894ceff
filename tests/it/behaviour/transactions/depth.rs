//! Closures that leave transactions open, by a panic or without one, or end more than they have started.

use std::panic::{AssertUnwindSafe, catch_unwind};

use diesel::Connection;
use diesel_locks::Error;
use diesel_locks::prelude::*;

use super::aborted::{assert_aborted, assert_usable, pair, prepared, runners};
use crate::support::Backend;
use crate::support::threads::{begin, commit, roll_back};

/// A closure that leaves transactions of Diesel's open.
type Leaves<C> = fn(&mut C);

fn nested_panics<B: Backend>() -> [(&'static str, Leaves<B::Conn>); 3] {
    fn in_one<B: Backend>(conn: &mut B::Conn) {
        let _ = conn.transaction(|conn| -> Result<(), Error> {
            B::count_up(conn, 1);
            std::panic::panic_any("nested");
        });
    }
    fn in_two<B: Backend>(conn: &mut B::Conn) {
        let _ = conn.transaction(|conn| -> Result<(), Error> {
            in_one::<B>(conn);
            Ok(())
        });
    }
    fn in_a_lock<B: Backend>(conn: &mut B::Conn) {
        let _ = conn.with_object_lock("b", |conn| -> Result<(), Error> {
            in_two::<B>(conn);
            Ok(())
        });
    }
    [
        ("in one", in_one::<B>),
        ("in two", in_two::<B>),
        ("in a lock", in_a_lock::<B>),
    ]
}

fn caught(work: impl FnOnce()) {
    let panic = catch_unwind(AssertUnwindSafe(work)).expect_err("the panic continues");
    assert_eq!(panic.downcast_ref(), Some(&"nested"));
}

pub(crate) fn a_panic_in_a_nested_transaction_rolls_back_all<B: Backend>() {
    let (database, mut conn) = prepared::<B>();
    for (runner, run) in runners::<B>() {
        for (_, panics) in nested_panics::<B>() {
            caught(|| {
                let _ = run(&mut conn, &mut |conn| {
                    B::count_up(conn, 0);
                    panics(conn);
                    Ok(())
                });
            });
            for id in [0, 1] {
                assert_eq!(B::counter(&mut database.connect(), id), 0, "{runner}");
            }
            assert_usable(&mut conn, &database);
        }
    }
}

/// The transaction is the application's, and continues.
pub(crate) fn a_panic_under_a_lock_in_a_transaction_rolls_back_to_the_lock<B: Backend>() {
    let (database, mut conn) = prepared::<B>();
    for (rounds, (_, panics)) in (1..).zip(nested_panics::<B>()) {
        B::in_transaction(&mut conn, |conn| {
            B::count_up(conn, 0);
            caught(|| {
                let _ = conn.with_object_lock("a", |conn| {
                    B::count_up(conn, 2);
                    panics(conn);
                    Ok::<_, Error>(())
                });
            });
            caught(|| {
                let _ = conn.with_slot(&pair(), Wait::Forever, |conn| {
                    B::count_up(conn, 2);
                    panics(conn);
                    Ok::<_, Error>(())
                });
            });
            Ok(())
        })
        .expect("the transaction continues");
        let counters = [0, 1, 2].map(|id| B::counter(&mut database.connect(), id));
        assert_eq!(counters, [rounds, 0, 0]);
        assert_usable(&mut conn, &database);
    }
}

pub(crate) fn ok_at_another_depth_is_an_error_and_rolls_back<B: Backend>() {
    let (database, mut conn) = prepared::<B>();
    for (runner, run) in runners::<B>() {
        for (_, panics) in nested_panics::<B>() {
            let result = run(&mut conn, &mut |conn| {
                B::count_up(conn, 0);
                caught(|| panics(conn));
                // A panic in with_object_lock has rolled back its savepoint, and the depth is as before.
                begin(conn);
                Ok(())
            });
            assert_aborted(result, runner);
            assert_eq!(B::counter(&mut database.connect(), 0), 0, "{runner}");
            assert_usable(&mut conn, &database);
        }
        // Ended by Diesel's means.
        let result = run(&mut conn, &mut |conn| {
            roll_back(conn);
            Ok(())
        });
        assert_aborted(result, runner);
        assert_usable(&mut conn, &database);
    }
    let result = B::in_transaction(&mut conn, |conn| {
        B::count_up(conn, 0);
        let result = conn.with_object_lock("a", |conn| {
            B::count_up(conn, 1);
            begin(conn);
            Ok::<_, Error>(())
        });
        assert_aborted(result, "a savepoint");
        let result = conn.with_object_lock("a", |conn| {
            commit(conn);
            Ok::<_, Error>(())
        });
        assert_aborted(result, "a savepoint that was released");
        Ok(())
    });
    result.expect("the transaction continues");
    assert_eq!(B::counter(&mut database.connect(), 0), 1);
    assert_eq!(B::counter(&mut database.connect(), 1), 0);
    assert_usable(&mut conn, &database);
}

pub(crate) fn an_error_at_another_depth_rolls_back_all<B: Backend>() {
    let (database, mut conn) = prepared::<B>();
    for (runner, run) in runners::<B>() {
        let result = run(&mut conn, &mut |conn| {
            B::count_up(conn, 0);
            begin(conn);
            begin(conn);
            B::count_up(conn, 1);
            Err(diesel::result::Error::NotFound.into())
        });
        assert!(
            matches!(
                result,
                Err(Error::Database(diesel::result::Error::NotFound))
            ),
            "{runner}: {result:?}"
        );
        for id in [0, 1] {
            assert_eq!(B::counter(&mut database.connect(), id), 0, "{runner}");
        }
        assert_usable(&mut conn, &database);
    }
}
