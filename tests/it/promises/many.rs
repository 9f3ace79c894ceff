//! Several objects, all or none.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use diesel_locks::Error;
use diesel_locks::prelude::*;

use crate::promises::waiting::GRACE;
use crate::support::Backend;
use crate::support::threads::{Holder, meanwhile, result_of};

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

    let holder = Holder::of(&database, "Bond:b");
    for retention in [Retention::Transient, Retention::Kept] {
        let lock = ObjectLock::on_all([&c, &a, &b])
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
    holder.let_go();
}

/// Each is held for a moment only, when it is its turn: the time asked for is for all of them together.
pub(crate) fn short_waits_do_not_add_up<B: Backend>() {
    let database = Arc::new(B::new());
    let ids: Vec<String> = (0..10).map(|number| format!("Bond:{number}")).collect();
    let limit = Duration::from_millis(10);
    for retention in [Retention::Transient, Retention::Kept] {
        for in_transaction in [false, true] {
            // With one writer nobody can hold the second.
            let held = if B::ONE_WRITER { 1 } else { ids.len() };
            let holders: Vec<Holder> = ids[..held]
                .iter()
                .map(|id| Holder::of(&database, ObjectLock::on(id).retention(retention)))
                .collect();
            let mut conn = database.connect();
            let lock = ObjectLock::on_all(&ids)
                .wait(Wait::AtMost(limit))
                .retention(retention);
            let started = Arc::new(Barrier::new(2));
            let waiting = {
                let started = Arc::clone(&started);
                meanwhile(move || {
                    started.wait();
                    let begun = Instant::now();
                    let result = if in_transaction {
                        B::in_transaction(&mut conn, |conn| {
                            conn.with_object_locks(lock, |_| Ok(begun.elapsed()))
                        })
                    } else {
                        conn.with_object_locks(lock, |_| Ok::<_, Error>(begun.elapsed()))
                    };
                    (result, begun.elapsed())
                })
            };
            started.wait();
            for holder in holders {
                // As long as each has it: any other time would be as right, and show less.
                std::thread::sleep(Duration::from_millis(40));
                holder.let_go();
            }
            let (result, ended) = result_of(&waiting);
            // Either answer is right, if it comes in time.
            let took = match result {
                Ok(granted) => granted,
                Err(Error::TimedOut { .. }) => ended,
                Err(error) => panic!("{error:?}"),
            };
            assert!(took <= limit + GRACE, "{took:?} is too late");
        }
    }
}

/// Inside transactions, where a deadlock would not be tried again unseen.
pub(crate) fn the_order_of_names_does_not_matter<B: Backend>() {
    let database = Arc::new(B::new());
    let together = Arc::new(Barrier::new(2));
    let threads = [["a", "b", "c"], ["c", "b", "a"]].map(|names| {
        let (database, together) = (Arc::clone(&database), Arc::clone(&together));
        meanwhile(move || {
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

pub(crate) fn duplicates_are_folded<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let lock = ObjectLock::on_all(["b", "a", "b", "a"]).retention(Retention::Kept);
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

pub(crate) fn trying_several_frees_those_that_were_free<B: Backend>() {
    let database = Arc::new(B::new());
    let holder = Holder::of(&database, "b");
    let mut conn = database.connect();
    let tried = conn
        .try_with_object_locks(["c", "b", "a"], |_| Ok::<_, Error>(()))
        .expect("an answer");
    assert_eq!(tried, None);
    if !B::ONE_WRITER {
        assert!(database.is_free("a"));
        assert!(database.is_free("c"));
    }
    holder.let_go();
    let tried = conn
        .try_with_object_locks(["c", "b", "a"], |_| Ok::<_, Error>(()))
        .expect("an answer");
    assert_eq!(tried, Some(()));
}
