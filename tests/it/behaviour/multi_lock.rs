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
    conn.with_object_locks([&c, &a, &b], |_| {
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
            .with_object_locks(lock, |_| Ok::<_, Error>(()))
            .expect_err("one is held");
        assert!(error.is_timeout(), "{error:?}");
        assert!(
            error.to_string().contains("Bond:a, Bond:b, Bond:c"),
            "{error}"
        );
    }
    if !B::ONE_WRITER {
        assert!(database.is_free("Bond:a"));
        assert!(database.is_free("Bond:c"));
    }
    holder.release();
}

/// How often a scene is tried in which nothing may stall.
const TRIES: usize = 20;

/// Each is held for less than the time asked for, and all of them for much longer: that time is for all of
/// them together.
pub(crate) fn short_waits_do_not_add_up<B: Backend>() {
    for retention in [Retention::Transient, Retention::Kept] {
        for in_transaction in [false, true] {
            // Where one hold was too long, its wait alone may have timed out, which shows nothing.
            let shown =
                (0..TRIES).any(|_| times_out_of_short_holds::<B>(retention, in_transaction));
            assert!(shown, "no hold is short on this machine");
        }
    }
}

/// Waits for ids that come free one after the other, and times out; whether it had not waited for any of
/// them as long as it was asked to wait for all.
fn times_out_of_short_holds<B: Backend>(retention: Retention, in_transaction: bool) -> bool {
    let limit = Duration::from_millis(200);
    // Times ten, and far beyond the limit.
    let held = Duration::from_millis(100);
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
            B::in_transaction(&mut conn, |conn| conn.with_object_locks(lock, |_| Ok(())))
        } else {
            conn.with_object_locks(lock, |_| Ok::<_, Error>(()))
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
        matches!(result, Err(Error::LockTimeout { .. })),
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
                    conn.with_object_locks(names, |_| Ok::<_, Error>(()))
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
    conn.with_object_locks(lock, |_| Ok::<_, Error>(()))
        .expect("free");
    assert_eq!(database.rows(), 2);
}

pub(crate) fn no_ids_lock_nothing<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    conn.with_object_locks(Vec::<ObjectId>::new(), |conn| {
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
        .try_with_object_locks(["c", "b", "a"], |_| Ok::<_, Error>(()))
        .expect("an answer");
    assert_eq!(tried, None);
    if !B::ONE_WRITER {
        assert!(database.is_free("a"));
        assert!(database.is_free("c"));
    }
    holder.release();
    let tried = conn
        .try_with_object_locks(["c", "b", "a"], |_| Ok::<_, Error>(()))
        .expect("an answer");
    assert_eq!(tried, Some(()));
}
