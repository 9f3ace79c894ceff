//! Locks in transactions, savepoints and each other.

use std::error::Error as _;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use diesel::Connection;
use diesel_locks::prelude::*;
use diesel_locks::{Error, Retention};

use crate::support::Backend;
use crate::support::threads::{result_of, spawn};

pub(crate) fn lock_is_reentrant<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let of = |retention| LockRequest::new("a").retention(retention);
    for first in [Retention::Transient, Retention::Kept] {
        conn.with_object_lock(of(first), |conn| {
            for again in [Retention::Transient, Retention::Kept] {
                for wait in [
                    Wait::Forever,
                    Wait::AtMost(Duration::from_secs(9)),
                    Wait::No,
                ] {
                    conn.lock_object(of(again).wait(wait))?;
                }
                assert!(conn.try_lock_object(of(again))?.is_acquired());
                conn.with_object_lock(of(again), |_| Ok::<_, Error>(()))?;
                assert_eq!(
                    conn.try_with_object_lock(of(again), |_| Ok::<_, Error>(5))?,
                    Some(5)
                );
            }
            assert!(!database.is_free("a"));
            Ok::<_, Error>(())
        })
        .expect("all granted");
        assert!(database.is_free("a"));
    }
    assert_eq!(database.rows(), 1, "the kept one");
}

pub(crate) fn waiter_does_not_keep_the_holder_from_its_lock<B: Backend>() {
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    let of = |retention| LockRequest::new("a").retention(retention);
    for first in [Retention::Transient, Retention::Kept] {
        let mut other = database.connect();
        let waiter = conn.with_object_lock(of(first), |conn| {
            let waiter = spawn(move || other.with_object_lock("a", |_| Ok::<_, Error>(())));
            database.await_waiting(1);
            for again in [
                of(Retention::Transient),
                of(Retention::Kept),
                LockRequest::shared("a"),
            ] {
                assert!(conn.try_lock_object(&again)?.is_acquired(), "{again:?}");
                conn.lock_object(again.wait(Wait::AtMost(Duration::from_millis(100))))?;
            }
            Ok::<_, Error>(waiter)
        });
        result_of(&waiter.expect("all granted")).expect("granted");
    }
}

pub(crate) fn lock_in_a_savepoint_ends_as_documented<B: Backend>() {
    for (retention, freed) in [
        (Retention::Transient, B::SAVEPOINT_FREES_TRANSIENT),
        (Retention::Kept, B::SAVEPOINT_FREES_KEPT),
    ] {
        let of = |id| LockRequest::new(id).retention(retention);
        let database = B::new();
        let mut conn = database.connect();
        for id in ["a", "b"] {
            conn.with_object_lock(of(id), |_| Ok::<_, Error>(()))
                .expect("free");
        }
        B::in_transaction(&mut conn, |conn| {
            B::count_up(conn, 0);
            let rolled_back = conn.transaction(|conn| {
                conn.lock_object(of("a"))?;
                Err::<(), Error>(diesel::result::Error::RollbackTransaction.into())
            });
            assert!(rolled_back.is_err());
            if let Some(freed) = freed {
                assert_eq!(database.is_free("a"), freed, "{retention:?}");
            }
            conn.transaction(|conn| conn.lock_object(of("b")))?;
            assert!(!database.is_free("b"), "a released savepoint frees nothing");
            Ok(())
        })
        .expect("the transaction goes on");
        assert!(database.is_free("a"));
        assert!(database.is_free("b"));
    }
}

pub(crate) fn with_object_lock_in_a_transaction_is_a_savepoint<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    B::in_transaction(&mut conn, |conn| {
        let failed = conn.with_object_lock("a", |conn| {
            B::count_up(conn, 0);
            Err::<(), Error>(diesel::result::Error::RollbackTransaction.into())
        });
        assert!(failed.is_err());
        conn.with_object_lock("b", |conn| {
            B::count_up(conn, 1);
            Ok::<_, Error>(())
        })?;
        assert!(!database.is_free("b"), "held until the transaction ends");
        Ok(())
    })
    .expect("the transaction goes on");
    assert_eq!(B::counter(&mut conn, 0), 0);
    assert_eq!(B::counter(&mut conn, 1), 1);
    assert!(database.is_free("b"));
}

pub(crate) fn opposite_orders_deadlock_or_run_in_turn<B: Backend>() {
    for retention in [Retention::Transient, Retention::Kept] {
        let database = Arc::new(B::new());
        let both_hold_one = Arc::new(Barrier::new(2));
        let transactions = [["a", "b"], ["b", "a"]].map(|[first, second]| {
            let (database, both_hold_one) = (Arc::clone(&database), Arc::clone(&both_hold_one));
            spawn(move || {
                let of = |id| LockRequest::new(id).retention(retention);
                B::in_transaction(&mut database.connect(), |conn| {
                    conn.lock_object(of(first))?;
                    if !B::ONE_WRITER {
                        both_hold_one.wait();
                    }
                    conn.lock_object(of(second))
                })
            })
        });
        let results = transactions.map(|transaction| result_of(&transaction));
        let victims: Vec<_> = results.into_iter().filter_map(Result::err).collect();
        if B::ONE_WRITER {
            assert!(victims.is_empty(), "{victims:?}");
        } else {
            assert_eq!(victims.len(), 1, "{victims:?}");
            assert!(victims[0].is_deadlock(), "{victims:?}");
            assert!(victims[0].is_retryable());
            // The database's own words, also on the way through Diesel's type.
            let [victim] = <[Error; 1]>::try_from(victims).expect("one");
            let own = victim.source().expect("the database's error").to_string();
            assert!(own.to_lowercase().contains("deadlock"), "{own}");
            let through = diesel::result::Error::from(victim);
            assert_eq!(through.to_string(), own);
            assert!(Error::from(through).is_deadlock());
        }
        assert!(database.is_free("a"));
        assert!(database.is_free("b"));
    }
}
