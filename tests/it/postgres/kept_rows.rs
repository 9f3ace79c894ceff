//! Kept rows, the advisory locks that stand for them, and their purge.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diesel::connection::InstrumentationEvent;
use diesel::prelude::*;
use diesel_locks::prelude::*;
use diesel_locks::{Error, Retention};

use super::read;
use crate::support::Backend;
use crate::support::postgres::{Postgres, words};
use crate::support::threads::{Holder, LONG, result_of, spawn};

/// The advisory locks of this database that stand for kept rows, by id; `?` for a key without a row.
fn kept_held(conn: &mut PgConnection) -> String {
    words(
        conn,
        "SELECT coalesce(string_agg(coalesce(id, '?'), ' ' ORDER BY id), '') \
         FROM pg_locks LEFT JOIN diesel_locks_objects ON advisory_key::bigint & 4294967295 = objid::bigint \
         WHERE locktype = 'advisory' AND classid = 'diesel_locks_objects'::regclass AND objsubid = 2 AND granted \
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
    )
}

/// Returns when a session waits for the lock of a kept row with that key.
fn await_waiting_for_key(conn: &mut PgConnection, key: u32) {
    let waiting = format!(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' \
         AND classid = 'diesel_locks_objects'::regclass AND objid = {key} AND objsubid = 2 AND NOT granted \
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    );
    let started = Instant::now();
    while Postgres::number(conn, &waiting) == 0 {
        assert!(started.elapsed() < LONG, "nobody waits for {key}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn kept(ids: impl IntoIterator<Item = impl Into<ObjectId>>) -> LockRequest {
    LockRequest::all(ids).retention(Retention::Kept)
}

/// Makes 300 kept rows, `row:0` to `row:299`, in a table that is never analyzed.
fn make_kept_rows(conn: &mut PgConnection) {
    Postgres::sql(
        conn,
        "ALTER TABLE diesel_locks_objects SET (autovacuum_enabled = off)",
    );
    let rows: Vec<_> = (0..300).map(|row| ObjectId::new("row", row)).collect();
    conn.with_object_lock(kept(&rows), read).expect("free");
}

/// VACUUM would lock them as a whole to return empty pages, and requests that do not wait would be refused.
#[test]
fn vacuum_does_not_truncate_the_tables() {
    let database = Postgres::new();
    let mut conn = database.connect();
    make_kept_rows(&mut conn);
    conn.register_semaphores([&Semaphore::new("many", 300)])
        .expect("registered");
    for table in ["diesel_locks_objects", "diesel_locks_slots"] {
        let size = format!("pg_relation_size('{table}')");
        let before = Postgres::number(&mut conn, &size);
        assert!(before > 0);
        Postgres::sql(&mut conn, &format!("DELETE FROM {table}"));
        Postgres::sql(&mut conn, &format!("VACUUM {table}"));
        assert_eq!(Postgres::number(&mut conn, &size), before, "{table}");
    }
}

/// The planner is free to evaluate a function before a condition beside it, and plans anew after some calls.
#[test]
fn try_locks_only_the_requested_objects() {
    let database = Postgres::new();
    make_kept_rows(&mut database.connect());
    let own_advisory_locks =
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()";
    for (ids, kept_rows) in [
        (vec!["a"], 0),
        (vec!["a", "b", "c"], 0),
        (vec!["row:7"], 1),
        (vec!["a", "row:7", "row:8"], 2),
    ] {
        let mut conn = database.connect();
        for call in 0..12 {
            let locks = conn
                .try_with_object_lock(ids.clone(), |conn| {
                    Ok::<_, Error>(Postgres::number(conn, own_advisory_locks))
                })
                .expect("an answer");
            assert_eq!(locks, Some(kept_rows), "{ids:?}, call {call}");
        }
    }
    let mut conn = database.connect();
    for call in 0..12 {
        let locks = conn
            .try_with_object_lock(kept(["a", "row:7", "row:8"]), |conn| {
                Ok::<_, Error>(Postgres::number(conn, own_advisory_locks))
            })
            .expect("an answer");
        assert_eq!(locks, Some(3), "call {call}");
    }
}

/// The planner reads the whole table for a condition of which it expects many rows.
#[test]
fn requests_for_kept_rows_read_no_other_row() {
    let database = Postgres::new();
    make_kept_rows(&mut database.connect());
    let scans = "SELECT coalesce(sum(seq_scan), 0) FROM pg_stat_xact_user_tables WHERE relname = 'diesel_locks_objects'";
    for ids in [vec!["row:7"], vec!["a", "row:7", "row:8"]] {
        for wait in [Wait::No, Wait::Forever] {
            let mut conn = database.connect();
            for call in 0..12 {
                let scans = conn
                    .with_object_lock(kept(ids.iter().copied()).wait(wait), |conn| {
                        Ok::<_, Error>(Postgres::number(conn, scans))
                    })
                    .expect("free");
                assert_eq!(scans, 0, "{ids:?}, {wait:?}, call {call}");
            }
        }
    }
}

/// Its SELECT locks what it returns, a batch at a time, and no other row.
#[test]
fn purge_locks_one_batch_at_a_time() {
    let database = Arc::new(Postgres::new());
    let mut conn = database.connect();
    make_kept_rows(&mut conn);
    Postgres::sql(
        &mut conn,
        "BEGIN; SELECT FROM diesel_locks_objects FOR UPDATE",
    );
    let purge = {
        let database = Arc::clone(&database);
        spawn(move || database.connect().purge_object_locks())
    };
    database.await_waiting(1);
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' \
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    assert_eq!(Postgres::number(&mut conn, locks), 100);
    Postgres::sql(&mut conn, "COMMIT");
    assert_eq!(result_of(&purge).expect("purged"), 300);
}

/// Transient locks take places in the server's table of locks too where rows are kept.
#[test]
fn transient_locks_on_too_many_kept_rows_are_refused() {
    let database = Postgres::new();
    let mut conn = database.connect();
    Postgres::sql(
        &mut conn,
        "INSERT INTO diesel_locks_objects (id, kept) SELECT 'row:' || n, true FROM generate_series(1, 1200) AS n",
    );
    let ids: Vec<_> = (1..=1200).map(|row| ObjectId::new("row", row)).collect();
    for _ in 0..2 {
        let refusals = [
            conn.with_object_lock(&ids, |_| Ok(())),
            conn.try_with_object_lock(&ids, |_| Ok(())).map(drop),
            conn.transaction(|conn| conn.lock_object(&ids)),
        ];
        for refusal in refusals {
            let error = refusal.expect_err("too many");
            let expected = matches!(
                error,
                Error::TooManyIds {
                    ids: 1200,
                    limit: 1000
                }
            );
            assert!(expected, "{error:?}");
        }
    }
    assert_eq!(kept_held(&mut conn), "");
    conn.with_object_lock(&ids[..1000], read).expect("all free");
}

/// Each schema has a table of its own, whose keys start at 1.
#[test]
fn kept_locks_of_two_schemas_are_independent() {
    let database = Postgres::empty();
    let in_schema = |schema: &str| {
        let mut conn = database.connect();
        Postgres::sql(&mut conn, &format!("SET search_path = {schema}"));
        conn
    };
    let [mut one, mut two] = ["one", "two"].map(|schema| {
        let mut conn = in_schema(schema);
        Postgres::sql(&mut conn, &format!("CREATE SCHEMA {schema}"));
        diesel_locks::migrate(&mut conn).expect("migrate");
        conn.with_object_lock(kept(["a"]), read).expect("free");
        let key = words(&mut conn, "SELECT advisory_key FROM diesel_locks_objects");
        assert_eq!(key, "1");
        conn
    });
    one.with_object_lock(kept(["a"]), |one| {
        for wait in [Wait::No, Wait::AtMost(Duration::from_secs(5))] {
            two.with_object_lock(kept(["a"]).wait(wait), read)?;
            two.transaction(|two| two.lock_object(LockRequest::new("a").wait(wait)))?;
        }
        assert_eq!(two.purge_object_locks()?, 1);
        // A session that changes its schema asks for the locks of that schema's table.
        let mut other = in_schema("one");
        for _ in 0..12 {
            for (schema, free) in [("one", None), ("two", Some(()))] {
                Postgres::sql(&mut other, &format!("SET search_path = {schema}"));
                assert_eq!(other.try_with_object_lock("a", read)?, free);
                let kept = other.with_object_lock(kept(["a"]).wait(Wait::No), read);
                assert_eq!(kept.is_ok(), free.is_some());
            }
        }
        // The lock is the table's, whatever its schema is called.
        Postgres::sql(&mut two, "ALTER SCHEMA one RENAME TO three");
        let mut three = in_schema("three");
        assert_eq!(three.try_with_object_lock("a", read)?, None);
        assert_eq!(three.purge_object_locks()?, 0);
        assert_eq!(kept_held(&mut three), "a");
        assert_eq!(kept_held(&mut two), "");
        let _ = one;
        Ok::<_, Error>(())
    })
    .expect("no wait");
}

/// Refused or rolled back, all of them are free again.
#[test]
fn no_advisory_lock_outlives_its_request() {
    let database = Arc::new(Postgres::new());
    let mut conn = database.connect();
    let kept = |ids: &[&str]| LockRequest::all(ids.iter().copied()).retention(Retention::Kept);
    conn.with_object_lock(kept(&["a", "b", "c"]), read)
        .expect("free");
    let holder = Holder::acquire(&database, kept(&["b"]));
    conn.transaction(|conn| {
        conn.lock_object(kept(&["c"]))?;
        for wait in [Wait::No, Wait::AtMost(Duration::from_millis(20))] {
            let refused = conn.with_object_lock(kept(&["a", "b"]).wait(wait), read);
            assert!(refused.is_err());
            assert_eq!(kept_held(conn), "b c");
        }
        let rolled_back = conn.with_object_lock(kept(&["a"]), |conn| {
            assert_eq!(kept_held(conn), "a b c");
            Err::<(), _>(diesel::result::Error::RollbackTransaction)
        });
        assert!(rolled_back.is_err());
        assert_eq!(kept_held(conn), "b c");
        Ok::<_, Error>(())
    })
    .expect("the transaction goes on");
    holder.release();
    assert_eq!(kept_held(&mut conn), "");
}

/// A waiter has read a key. When its lock is released, the row may be deleted, or a new row with another key may be
/// locked.
#[test]
fn waiter_waits_for_the_new_row_after_a_purge() {
    for wanted in [Retention::Transient, Retention::Kept] {
        let database = Arc::new(Postgres::new());
        let mut conn = database.connect();
        conn.with_object_lock(LockRequest::new("a").retention(Retention::Kept), read)
            .expect("free");
        let mut purge = database.connect();
        Postgres::sql(
            &mut purge,
            "BEGIN; DELETE FROM diesel_locks_objects \
             WHERE pg_try_advisory_xact_lock(tableoid::integer, advisory_key)",
        );
        let waiter = {
            let database = Arc::clone(&database);
            spawn(move || {
                let lock = LockRequest::new("a").retention(wanted);
                database.connect().with_object_lock(lock, read)
            })
        };
        database.await_waiting(1);
        let holder_of_the_new_one =
            "BEGIN; SELECT pg_advisory_xact_lock('diesel_locks_objects'::regclass::integer, 7)";
        Postgres::sql(&mut conn, holder_of_the_new_one);
        Postgres::sql(
            &mut purge,
            "INSERT INTO diesel_locks_objects VALUES ('a', true, 7); COMMIT",
        );
        await_waiting_for_key(&mut purge, 7);
        assert!(waiter.try_recv().is_err(), "{wanted:?}");
        // A kept one has the old key too. A transient one has waited in its INSERT, for the purge.
        let keys = if wanted == Retention::Kept {
            "a ?"
        } else {
            "a"
        };
        assert_eq!(kept_held(&mut conn), keys);
        Postgres::sql(&mut conn, "COMMIT");
        result_of(&waiter).expect("it comes free");
    }
}

/// Rows come and go all the time, and every way of asking meets every other.
#[test]
fn two_concurrent_purges_lose_no_update() {
    let database = Arc::new(Postgres::new());
    let stop = Arc::new(AtomicBool::new(false));
    let purges: Vec<_> = (0..2)
        .map(|_| {
            let (database, stop) = (Arc::clone(&database), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut conn = database.connect();
                let mut purged = 0;
                while !stop.load(Ordering::Relaxed) {
                    purged += conn.purge_object_locks().expect("no error");
                }
                purged
            })
        })
        .collect();
    let workers: Vec<_> = (0..12)
        .map(|worker| {
            let database = Arc::clone(&database);
            std::thread::spawn(move || {
                let mut conn = database.connect();
                for n in 0..60 {
                    let turn = worker + n;
                    let lock = if turn % 5 == 0 {
                        LockRequest::all(["0", "1"])
                    } else {
                        LockRequest::new(["0", "1"][turn % 2])
                    };
                    let lock = lock
                        .retention(
                            [Retention::Kept, Retention::Transient][usize::from(turn % 3 == 0)],
                        )
                        .wait(
                            [
                                Wait::Forever,
                                Wait::AtMost(Duration::from_secs(20)),
                                Wait::No,
                            ][n % 3],
                        );
                    loop {
                        let locked = conn.with_object_lock(lock.clone(), |conn| {
                            Postgres::count_up(conn, turn % 2);
                            Ok::<_, Error>(())
                        });
                        match locked {
                            Ok(()) => break,
                            Err(Error::Unavailable { .. }) => {}
                            Err(error) => panic!("{error:?}"),
                        }
                    }
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().expect("no error");
    }
    stop.store(true, Ordering::Relaxed);
    let removed: usize = purges
        .into_iter()
        .map(|purge| purge.join().expect("no error"))
        .sum();
    assert!(removed > 0, "they had something to do");
    let mut conn = database.connect();
    let counted: i64 = (0..2).map(|id| Postgres::counter(&mut conn, id)).sum();
    assert_eq!(counted, 12 * 60);
    assert_eq!(kept_held(&mut conn), "");
}

/// The keys start over after 2^32 rows. Two ids with one key exclude each other, and no waiter waits forever.
#[test]
fn two_rows_with_the_same_key_share_a_lock() {
    let database = Arc::new(Postgres::new());
    let mut conn = database.connect();
    let kept = |id| LockRequest::new(id).retention(Retention::Kept);
    Postgres::sql(
        &mut conn,
        "SELECT setval('diesel_locks_objects_advisory_key_seq', 2147483647)",
    );
    conn.with_object_lock(kept("b"), read).expect("free");
    let key = words(&mut conn, "SELECT advisory_key FROM diesel_locks_objects");
    assert_eq!(key, "-2147483648");
    Postgres::sql(
        &mut conn,
        "SELECT setval('diesel_locks_objects_advisory_key_seq', -2147483648, false)",
    );
    let holder = Holder::acquire(&database, kept("a"));
    let other = conn
        .try_with_object_lock(kept("b"), read)
        .expect("an answer");
    assert_eq!(other, None);
    holder.release();
    conn.with_object_lock(
        LockRequest::all(["a", "b"]).retention(Retention::Kept),
        read,
    )
    .expect("both");
    assert_eq!(conn.purge_object_locks().expect("purge"), 2);
}

/// The rollback of a connection that is lost fails too, with an error that tells nothing.
#[test]
fn purge_returns_the_error_of_a_lost_connection() {
    let database = Postgres::new();
    let mut conn = database.connect();
    let other = Mutex::new(database.connect());
    let session = Postgres::number(&mut conn, "SELECT pg_backend_pid()");
    conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
        let InstrumentationEvent::StartQuery { query, .. } = event else {
            return;
        };
        if query.to_string().contains("diesel_locks_objects") {
            let mut other = other.lock().expect("no panic");
            let gone = format!("SELECT count(pg_terminate_backend({session}, 30000))");
            Postgres::number(&mut other, &gone);
        }
    });
    let error = conn
        .purge_object_locks()
        .expect_err("the session has ended");
    let text = error.to_string();
    assert!(!text.contains("transaction manager"), "{text}");
}
