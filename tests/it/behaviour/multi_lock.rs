//! Several objects, all or none.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use diesel_locks::prelude::*;
use diesel_locks::{Error, Retention};

use crate::support::Backend;
use crate::support::threads::{Holder, result_of, spawn};

pub(crate) fn all_or_none<B: Backend>() {
    let database = Arc::new(B::new());
    let [a, b, c] = ["a", "b", "c"].map(|key| ObjectId::new("Bond", key));
    let mut conn = database.connect();
    conn.with_object_lock([&c, &a, &b], |_| {
        for id in [&a, &b, &c] {
            assert!(!database.is_free(id.as_str()), "{id}");
        }
        Ok::<_, Error>(())
    })
    .expect("all free");

    let holder = Holder::acquire(&database, "Bond:b");
    for retention in [Retention::Transient, Retention::Kept] {
        let lock = LockRequest::all([&c, &a, &b])
            .wait(Wait::AtMost(Duration::from_millis(200)))
            .retention(retention);
        let error = conn
            .with_object_lock(lock, |_| Ok::<_, Error>(()))
            .expect_err("one is held");
        assert!(error.is_timeout(), "{error:?}");
        let named = r#"the object locks "Bond:a", "Bond:b", "Bond:c""#;
        assert!(error.to_string().starts_with(named), "{error}");
    }
    if !B::ONE_WRITER {
        assert!(database.is_free("Bond:a"));
        assert!(database.is_free("Bond:c"));
    }
    holder.release();
}

/// How often a scene is tried in which nothing may stall.
const TRIES: u32 = 20;

/// Each is held for less than the time asked for, and all of them for much longer: that time is for all of
/// them together.
pub(crate) fn short_waits_do_not_add_up<B: Backend>() {
    for retention in [Retention::Transient, Retention::Kept] {
        for in_transaction in [false, true] {
            // Where one hold was too long, its wait alone may have timed out, which shows nothing.
            let shown = (0..TRIES).any(|tried| {
                times_out_of_short_holds::<B>(retention, in_transaction, 1 << (tried / 4))
            });
            assert!(shown, "no hold is short on this machine");
        }
    }
}

/// Waits for ids that come free one after the other, and times out; whether it had not waited for any of
/// them as long as it was asked to wait for all. All times are this many times as long.
fn times_out_of_short_holds<B: Backend>(
    retention: Retention,
    in_transaction: bool,
    times: u32,
) -> bool {
    let limit = Duration::from_millis(200) * times;
    // Times ten, and far beyond the limit.
    let held = limit / 2;
    let database = Arc::new(B::new());
    let ids: Vec<String> = (0..10).map(|number| format!("Bond:{number}")).collect();
    let holders: Vec<Holder> = ids
        .iter()
        .map(|id| Holder::acquire(&database, LockRequest::new(id).retention(retention)))
        .collect();
    let mut conn = database.connect();
    let lock = LockRequest::all(&ids)
        .wait(Wait::AtMost(limit))
        .retention(retention);
    // Not later than the wait for the first began.
    let mut since = Instant::now();
    let waiting = spawn(move || {
        if in_transaction {
            B::in_transaction(&mut conn, |conn| conn.with_object_lock(lock, |_| Ok(())))
        } else {
            conn.with_object_lock(lock, |_| Ok::<_, Error>(()))
        }
    });
    let mut result = None;
    // Seen by the database, if it is not over before.
    while result.is_none() && database.waiting() == Some(0) {
        result = waiting.recv_timeout(Duration::from_millis(2)).ok();
    }
    let mut short = since.elapsed() < limit;
    for holder in holders {
        if result.is_none() {
            result = waiting.recv_timeout(held).ok();
            short &= since.elapsed() < limit;
        }
        since = Instant::now();
        holder.release();
    }
    let result = result.unwrap_or_else(|| result_of(&waiting));
    assert!(
        result.as_ref().is_err_and(Error::is_timeout),
        "{result:?} though all were held for longer"
    );
    short
}

/// Inside transactions, where a deadlock would not be tried again unseen.
pub(crate) fn order_of_ids_does_not_matter<B: Backend>() {
    let database = Arc::new(B::new());
    let together = Arc::new(Barrier::new(2));
    let threads = [["a", "b", "c"], ["c", "b", "a"]].map(|names| {
        let (database, together) = (Arc::clone(&database), Arc::clone(&together));
        spawn(move || {
            let mut conn = database.connect();
            for _ in 0..30 {
                together.wait();
                B::in_transaction(&mut conn, |conn| {
                    conn.with_object_lock(names, |_| Ok::<_, Error>(()))
                })
                .expect("no deadlock");
            }
        })
    });
    for thread in threads {
        result_of(&thread);
    }
}

pub(crate) fn duplicate_ids_are_locked_once<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let lock = LockRequest::all(["b", "a", "b", "a"]).retention(Retention::Kept);
    conn.with_object_lock(lock, |_| Ok::<_, Error>(()))
        .expect("free");
    assert_eq!(database.rows(), 2);
}

pub(crate) fn no_ids_lock_nothing<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    conn.with_object_lock(Vec::<ObjectId>::new(), |conn| {
        B::count_up(conn, 0);
        Ok::<_, Error>(())
    })
    .expect("a plain transaction");
    assert_eq!(B::counter(&mut conn, 0), 1);
}

pub(crate) fn failed_try_of_several_releases_the_free_ones<B: Backend>() {
    let database = Arc::new(B::new());
    let holder = Holder::acquire(&database, "b");
    let mut conn = database.connect();
    let tried = conn
        .try_with_object_lock(["c", "b", "a"], |_| Ok::<_, Error>(()))
        .expect("an answer");
    assert_eq!(tried, None);
    if !B::ONE_WRITER {
        assert!(database.is_free("a"));
        assert!(database.is_free("c"));
    }
    holder.release();
    let tried = conn
        .try_with_object_lock(["c", "b", "a"], |_| Ok::<_, Error>(()))
        .expect("an answer");
    assert_eq!(tried, Some(()));
}

/// `count` objects, and a request for all of them.
fn several(count: usize, retention: Retention) -> (Vec<String>, LockRequest) {
    let ids: Vec<String> = (0..count).map(|id| format!("Bond:{id:03}")).collect();
    let lock = LockRequest::all(&ids).retention(retention);
    (ids, lock)
}

/// In a transaction that has read, written and locked before, in which InnoDB keeps every lock on a row.
pub(crate) fn refused_try_of_several_in_a_transaction_locks_none<B: Backend>() {
    let database = Arc::new(B::new());
    for (count, retention) in [
        (3, Retention::Transient),
        (3, Retention::Kept),
        // More than one message locks.
        (150, Retention::Transient),
    ] {
        let (ids, lock) = several(count, retention);
        let mut conn = database.connect();
        // InnoDB keeps what is left of deleted rows for a while.
        conn.with_object_lock(lock.clone(), |_| Ok::<_, Error>(()))
            .expect("free");
        let last = LockRequest::new(&ids[count - 1]).retention(retention);
        let holder = Holder::acquire(&database, last);
        B::in_transaction(&mut conn, |conn| {
            if !B::ONE_WRITER {
                B::count_up(conn, 1);
                conn.lock_object("before")?;
            }
            for nested in [false, true] {
                let acquired = if nested {
                    let done = conn.try_with_object_lock(lock.clone(), |_| Ok::<_, Error>(()));
                    done?.is_some()
                } else {
                    conn.try_lock_object(&lock)?.is_acquired()
                };
                assert!(!acquired, "one is held");
                if !B::ONE_WRITER {
                    for id in [&ids[0], &ids[count - 2]] {
                        assert!(database.is_free(id), "{id}, {retention:?}, {nested}");
                    }
                    assert!(!database.is_free("before"));
                }
            }
            holder.release();
            assert!(conn.try_lock_object(&lock)?.is_acquired());
            Ok(())
        })
        .expect("the transaction goes on");
    }
}

pub(crate) fn timed_out_wait_for_several_in_a_transaction_locks_none_or_says_so<B: Backend>() {
    let database = Arc::new(B::new());
    for (count, retention) in [(3, Retention::Transient), (3, Retention::Kept)] {
        let (ids, lock) = several(count, retention);
        let lock = lock.wait(Wait::AtMost(Duration::from_millis(100)));
        let holder = Holder::acquire(&database, ids[count - 1].as_str());
        let mut conn = database.connect();
        B::in_transaction(&mut conn, |conn| {
            if !B::ONE_WRITER {
                B::count_up(conn, 1);
            }
            for nested in [false, true] {
                let result = if nested {
                    conn.with_object_lock(lock.clone(), |_| Ok(()))
                } else {
                    conn.lock_object(&lock)
                };
                let error = result.expect_err("one is held");
                assert!(error.is_timeout() && error.is_busy(), "{error:?}");
                match &error {
                    Error::PartlyLocked { acquired, .. } => {
                        assert_eq!(acquired, r#"the object locks "Bond:000", "Bond:001""#);
                        assert!(error.to_string().contains(&ids[count - 1]), "{error}");
                    }
                    _ if B::ONE_WRITER => {}
                    _ => assert!(database.is_free(&ids[0]) && database.is_free(&ids[1])),
                }
            }
            Ok(())
        })
        .expect("the transaction goes on");
        holder.release();
        for id in ids {
            assert!(database.is_free(&id), "{id}");
        }
    }
}
