//! Many at once: no lost update, no error to the caller, nothing left behind.

use std::sync::{Arc, Barrier};

use diesel_locks::Retention;
use diesel_locks::prelude::*;

use crate::support::Backend;

const CYCLES: usize = 12;

/// Runs `cycle(conn, thread, n)` on `threads` connections at the same time; it returns which counters it
/// has committed one more for. Checks that the counters agree.
fn compete<B: Backend>(
    database: &Arc<B>,
    threads: usize,
    cycle: impl Fn(&mut B::Conn, usize, usize) -> Vec<usize> + Send + Sync + 'static,
) {
    let cycle = Arc::new(cycle);
    let together = Arc::new(Barrier::new(threads));
    // Before the threads: the others would wait for ever for one that gets no connection.
    let conns: Vec<_> = (0..threads).map(|_| database.connect()).collect();
    let all: Vec<_> = conns
        .into_iter()
        .enumerate()
        .map(|(thread, mut conn)| {
            let (cycle, together) = (Arc::clone(&cycle), Arc::clone(&together));
            std::thread::spawn(move || {
                together.wait();
                let mut counted = [0; 10];
                for n in 0..CYCLES {
                    for id in cycle(&mut conn, thread, n) {
                        counted[id] += 1;
                    }
                }
                counted
            })
        })
        .collect();
    let mut expected = [0; 10];
    for thread in all {
        let counted = thread.join().expect("no error reaches the caller");
        for (sum, n) in expected.iter_mut().zip(counted) {
            *sum += n;
        }
    }
    let mut conn = database.connect();
    let found: Vec<_> = (0..10).map(|id| B::counter(&mut conn, id)).collect();
    assert_eq!(found, expected);
}

/// Every second one rolls back.
fn half_roll_back<B: Backend>(retention: impl Fn(usize) -> Retention + Send + Sync + 'static) {
    let database = Arc::new(B::new());
    compete(&database, 32, move |conn, thread, n| {
        let commits = (thread + n) % 2 == 0;
        let lock = LockRequest::new("counter").retention(retention(thread));
        let result = conn.with_object_lock(lock, |conn| {
            B::count_up(conn, 0);
            if commits {
                Ok(())
            } else {
                Err(diesel::result::Error::RollbackTransaction)
            }
        });
        match result {
            Ok(()) => vec![0],
            Err(diesel::result::Error::RollbackTransaction) => vec![],
            Err(error) => panic!("{error:?}"),
        }
    });
    let kept = database.rows();
    database.connect().purge_object_locks().expect("purge");
    assert!(kept <= 1, "{kept} rows");
    assert_eq!(database.rows(), 0);
}

pub(crate) fn thirty_two_connections_lose_no_update_on_a_transient_lock<B: Backend>() {
    half_roll_back::<B>(|_| Retention::Transient);
}

pub(crate) fn thirty_two_connections_lose_no_update_on_a_kept_lock<B: Backend>() {
    half_roll_back::<B>(|_| Retention::Kept);
}

pub(crate) fn thirty_two_connections_lose_no_update_on_both_kinds_of_locks<B: Backend>() {
    half_roll_back::<B>(|thread| {
        if thread % 2 == 0 {
            Retention::Kept
        } else {
            Retention::Transient
        }
    });
}

/// Two of ten ids each, named in any order.
pub(crate) fn sixteen_connections_take_two_of_ten_ids_each<B: Backend>() {
    for retention in [Retention::Transient, Retention::Kept] {
        let database = Arc::new(B::new());
        compete(&database, 16, move |conn, thread, n| {
            let one = (thread * 7 + n * 3) % 10;
            let other = (thread * 3 + n * 7 + 1) % 10;
            let pair = [one, other].map(|id| ObjectId::new("counter", id));
            conn.with_object_lock(LockRequest::all(pair).retention(retention), |conn| {
                B::count_up(conn, one);
                if other != one {
                    B::count_up(conn, other);
                }
                diesel::QueryResult::Ok(())
            })
            .expect("no deadlock reaches the caller");
            if one == other {
                vec![one]
            } else {
                vec![one, other]
            }
        });
        if retention == Retention::Transient {
            assert_eq!(database.rows(), 0);
        }
    }
}

pub(crate) fn lock_object_in_own_transactions_loses_no_update<B: Backend>() {
    for retention in [Retention::Transient, Retention::Kept] {
        let database = Arc::new(B::new());
        compete(&database, 8, move |conn, _, _| {
            B::in_transaction(conn, |conn| {
                conn.lock_object(LockRequest::new("counter").retention(retention))?;
                B::count_up(conn, 0);
                Ok(())
            })
            .expect("no error reaches the caller");
            vec![0]
        });
    }
}
