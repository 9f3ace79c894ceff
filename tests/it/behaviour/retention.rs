//! Rows that stay, and their removal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use diesel::Connection;
use diesel::connection::InstrumentationEvent;
use diesel_locks::prelude::*;
use diesel_locks::{Error, Retention};

use crate::support::Backend;
use crate::support::threads::Holder;

fn kept(id: impl Into<ObjectId>) -> LockRequest {
    LockRequest::new(id).retention(Retention::Kept)
}

pub(crate) fn kept_rows_stay_until_purged<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    for key in 0..1100 {
        conn.with_object_lock(kept(ObjectId::new("Bond", key % 600)), |_| {
            Ok::<_, Error>(())
        })
        .expect("free");
    }
    conn.with_object_lock("Bond:7", |_| Ok::<_, Error>(()))
        .expect("a transient lock leaves a kept row where it is");
    assert_eq!(database.rows(), 600);
    assert_eq!(conn.purge_object_locks().expect("purge"), 600);
    assert_eq!(conn.purge_object_locks().expect("purge"), 0);
    assert_eq!(database.rows(), 0);
}

/// While others take kept locks, a purge that went on as long as it finds rows would not end.
pub(crate) fn purge_ends_after_a_batch_that_is_not_full<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let made = conn.with_object_lock(kept("a"), |_| Ok::<_, Error>(()));
    made.expect("free");
    let deletions = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&deletions);
    conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
        if let InstrumentationEvent::StartQuery { query, .. } = event {
            let text = query.to_string();
            let deletes = text.contains("DELETE") && text.contains("diesel_locks_objects");
            seen.fetch_add(usize::from(deletes), Ordering::SeqCst);
        }
    });
    assert_eq!(conn.purge_object_locks().expect("purge"), 1);
    assert_eq!(deletions.load(Ordering::SeqCst), 1);
}

pub(crate) fn purge_leaves_held_rows_alone<B: Backend>() {
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    for id in ["a", "b"] {
        conn.with_object_lock(kept(id), |_| Ok::<_, Error>(()))
            .expect("free");
    }
    if B::ONE_WRITER {
        // There it waits for the holder, and then removes both.
        assert_eq!(conn.purge_object_locks().expect("purge"), 2);
        return;
    }
    let holder = Holder::acquire(&database, kept("a"));
    assert_eq!(conn.purge_object_locks().expect("purge"), 1);
    assert_eq!(database.rows(), 1);
    holder.release();
    assert_eq!(conn.purge_object_locks().expect("purge"), 1);
}

/// However many of the rows it removes.
pub(crate) fn purge_waits_for_no_held_row<B: Backend>() {
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    for key in 0..20 {
        conn.with_object_lock(kept(ObjectId::new("Bond", key)), |_| Ok::<_, Error>(()))
            .expect("free");
    }
    if B::ONE_WRITER {
        return;
    }
    let holder = Holder::acquire(&database, kept(ObjectId::new("Bond", 10)));
    B::set_short_lock_timeout(&mut conn);
    assert_eq!(conn.purge_object_locks().expect("no wait"), 19);
    database
        .connect()
        .try_with_object_lock(kept(ObjectId::new("Bond", 3)), |_| Ok::<_, Error>(()))
        .expect("an answer")
        .expect("free");
    holder.release();
}

pub(crate) fn purge_works_while_others_lock<B: Backend>() {
    let database = Arc::new(B::new());
    let stop = Arc::new(AtomicBool::new(false));
    let purger = {
        let (database, stop) = (Arc::clone(&database), Arc::clone(&stop));
        std::thread::spawn(move || {
            let mut conn = database.connect();
            let mut purged = 0;
            while !stop.load(Ordering::Relaxed) {
                purged += conn.purge_object_locks().expect("no deadlock");
            }
            purged
        })
    };
    let workers: Vec<_> = (0..6)
        .map(|worker| {
            let database = Arc::clone(&database);
            std::thread::spawn(move || {
                let mut conn = database.connect();
                for n in 0..40 {
                    let id = ObjectId::new("counter", (worker + n) % 3);
                    let lock = if n % 4 == 0 {
                        LockRequest::new(id)
                    } else {
                        kept(id)
                    };
                    conn.with_object_lock(lock, |conn| {
                        B::count_up(conn, (worker + n) % 3);
                        Ok::<_, Error>(())
                    })
                    .expect("no error reaches the caller");
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().expect("no error");
    }
    stop.store(true, Ordering::Relaxed);
    let removed = purger.join().expect("no error");
    assert!(removed > 0, "it had something to do");
    let mut conn = database.connect();
    let counted: i64 = (0..3).map(|id| B::counter(&mut conn, id)).sum();
    assert_eq!(counted, 240);
}
