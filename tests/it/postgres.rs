//! PostgreSQL.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diesel::connection::{InstrumentationEvent, SimpleConnection};
use diesel::prelude::*;
use diesel::r2d2::R2D2Connection;
use diesel::result::DatabaseErrorKind::UniqueViolation;
use diesel::result::Error::DatabaseError;
use diesel_locks::Error;
use diesel_locks::prelude::*;

use crate::behaviour;
use crate::support::Backend;
use crate::support::backend::MIGRATIONS;
use crate::support::postgres::{Postgres, knows_no_german, words};
use crate::support::proxy::{
    CountingProxy, round_trips_of_a_sequence, round_trips_of_a_slot, round_trips_of_a_transaction,
};
use crate::support::threads::{Holder, LONG, result_of, spawn};

crate::all_tests!(Postgres);
crate::many_writers_tests!(Postgres);

fn read(conn: &mut PgConnection) -> QueryResult<()> {
    diesel::select(diesel::dsl::sql::<diesel::sql_types::Integer>("1")).execute(conn)?;
    Ok(())
}

/// Another session has locked the whole table.
#[test]
fn waits_and_tries_end_while_the_table_is_locked() {
    let database = Arc::new(Postgres::new());
    let limit = Duration::from_millis(300);
    for retention in [Retention::Transient, Retention::Kept] {
        for (warm, inside) in [(false, false), (true, false), (true, true)] {
            let lock = LockRequest::new("a")
                .retention(retention)
                .wait(Wait::AtMost(limit));
            let mut conn = database.connect();
            if warm {
                conn.with_object_lock(&lock, |_| Ok::<_, Error>(()))
                    .expect("free");
            }
            let mut holder = database.connect();
            // When the second returns, the table is locked.
            Postgres::sql(&mut holder, "BEGIN");
            Postgres::sql(
                &mut holder,
                "LOCK TABLE diesel_locks_objects IN ACCESS EXCLUSIVE MODE",
            );
            let waiter = {
                let lock = lock.clone();
                spawn(move || {
                    let before = Postgres::session_limits(&mut conn);
                    let started = Instant::now();
                    let result = if inside {
                        Postgres::in_transaction(&mut conn, |conn| conn.lock_object(&lock))
                    } else {
                        conn.with_object_lock(&lock, |_| Ok::<_, Error>(()))
                    };
                    let took = started.elapsed();
                    assert_eq!(Postgres::session_limits(&mut conn), before);
                    (conn, result, took)
                })
            };
            let (mut conn, result, took) = result_of(&waiter);
            let error = result.expect_err("the table is locked");
            assert!(error.is_timeout(), "{retention:?}: {error:?}");
            assert!(took >= limit, "{took:?} is too early");
            let wanted = lock.clone();
            let attempt = spawn(move || {
                let result = if inside {
                    let lock = |conn: &mut PgConnection| conn.try_lock_object(&wanted);
                    Postgres::in_transaction(&mut conn, lock)
                } else {
                    let done = conn.try_with_object_lock(&wanted, |_| Ok::<_, Error>(()));
                    done.map(|done| done.is_some())
                };
                (conn, result)
            });
            let (mut conn, locked) = result_of(&attempt);
            assert!(!locked.expect("an answer"));
            Postgres::sql(&mut holder, "ROLLBACK");
            conn.with_object_lock(&lock, |_| Ok::<_, Error>(()))
                .expect("free again");
        }
    }
}

#[test]
fn waits_and_tries_for_slots_end_while_their_table_is_locked() {
    let database = Arc::new(Postgres::new());
    let limit = Duration::from_millis(300);
    let lease = || LeaseOptions::new(Duration::from_secs(60));
    for inside in [false, true] {
        let semaphore = Semaphore::new("two", 2);
        let mut conn = database.connect();
        conn.register_semaphores([&semaphore]).expect("registered");
        let mut holder = database.connect();
        Postgres::sql(
            &mut holder,
            "BEGIN; LOCK TABLE diesel_locks_slots IN ACCESS EXCLUSIVE MODE",
        );
        let waiter = spawn(move || {
            behaviour::waiting::slot_tries_and_waits_end_while_a_table_is_locked::<Postgres>(
                &mut conn, &semaphore, limit, inside,
            );
            conn
        });
        let mut conn = result_of(&waiter);
        Postgres::sql(&mut holder, "ROLLBACK");
        let slot = conn.try_acquire_slot(&Semaphore::new("two", 2), lease());
        conn.release_slot(slot.expect("an answer").expect("free"))
            .expect("ours");
    }
}

/// What sets limits, locks, and sets them back is ended.
#[test]
fn limits_are_restored_when_the_statement_is_cancelled() {
    for retention in [Retention::Kept, Retention::Transient] {
        let lock = behaviour::session_state::limited(retention);
        behaviour::session_state::cancelled_statement_leaves_no_session_state::<Postgres>(
            "SELECT pg_backend_pid()",
            |session| format!("SELECT pg_cancel_backend({session})"),
            "diesel_locks.statement_timeout",
            "SELECT 1 FROM (SELECT pg_sleep(0.1)) AS pause",
            |conn| {
                conn.with_object_lock(&lock, |_| Ok::<_, Error>(()))?;
                conn.transaction(|conn| conn.lock_object(&lock))
            },
        );
    }
}

/// Not `currval`, nor what RETURNING returns.
#[test]
fn first_kept_lock_of_an_id_changes_lastval_alone() {
    let database = Postgres::new();
    let mut conn = database.connect();
    Postgres::sql(&mut conn, "CREATE SEQUENCE own START WITH 1000");
    let kept = LockRequest::new("a").retention(Retention::Kept);
    for (own, last) in [(1000, 1), (1001, 1001)] {
        Postgres::number(&mut conn, "SELECT nextval('own')");
        conn.with_object_lock(&kept, |_| Ok::<_, Error>(()))
            .expect("free");
        assert_eq!(Postgres::number(&mut conn, "SELECT lastval()"), last);
        assert_eq!(Postgres::number(&mut conn, "SELECT currval('own')"), own);
    }
}

/// At top level the lock rides with BEGIN, time-out included; inside a transaction it is one statement.
#[test]
fn object_lock_costs_no_round_trip_at_top_level_and_one_inside() {
    let database = Postgres::new();
    let (proxy, url) = CountingProxy::url(&database.url());
    let mut conn = Postgres::connect_to(&url);
    let bare = proxy.count(|| conn.transaction(read).expect("commit"));
    for retention in [Retention::Transient, Retention::Kept] {
        for wait in [Wait::Forever, Wait::AtMost(Duration::from_millis(500))] {
            let lock = LockRequest::new("a").wait(wait).retention(retention);
            for _ in 0..3 {
                let locked = proxy.count(|| conn.with_object_lock(&lock, read).expect("free"));
                assert_eq!(locked, bare, "{lock:?}");
            }
            let many = LockRequest::all(["a", "b", "c"])
                .wait(wait)
                .retention(retention);
            let locked = proxy.count(|| conn.with_object_locks(many, read).expect("free"));
            assert_eq!(locked, bare, "three in one");
        }
        let lock = LockRequest::new("a").retention(retention);
        conn.transaction(|conn| {
            // The first time prepares the statement.
            conn.lock_object(&lock)?;
            let inside = proxy.count(|| conn.lock_object(&lock).expect("ours"));
            assert_eq!(inside, 1, "{retention:?}");
            Ok::<_, Error>(())
        })
        .expect("commit");
        let tried = proxy.count(|| conn.try_with_object_lock(&lock, read).expect("free"));
        let tried_again = proxy.count(|| conn.try_with_object_lock(&lock, read).expect("free"));
        assert_eq!(
            tried_again,
            bare + 1,
            "an answer to read ({tried} when not yet prepared)"
        );
    }
}

/// Granted, refused, refreshed or released: each is one statement.
#[test]
fn round_trips_of_a_slot_are_one_each() {
    assert_eq!(round_trips_of_a_slot::<Postgres>(), [1, 1, 1, 1]);
}

#[test]
fn round_trips_of_a_sequence_are_one_each() {
    assert_eq!(round_trips_of_a_sequence::<Postgres>(), [1, 1]);
}

#[test]
fn round_trips_of_a_transaction_are_diesels() {
    assert_eq!(round_trips_of_a_transaction::<Postgres>(), [2, 2]);
}

#[test]
fn guard_is_lost_in_time_while_its_renewal_hangs() {
    behaviour::slots::renewers::guard_is_lost_in_time_while_its_renewal_hangs::<Postgres>();
}

#[test]
fn unresponsive_database_does_not_delay_other_renewers() {
    behaviour::slots::renewers::unresponsive_database_does_not_delay_other_renewers::<Postgres>();
}

#[test]
fn server_timeout_ends_an_idle_transaction() {
    behaviour::idle_sessions::server_timeout_ends_an_idle_transaction::<Postgres>(
        "SET idle_in_transaction_session_timeout = '100ms'",
    );
}

/// For the release alone: neither for the session nor for a transaction around it.
#[test]
fn a_release_leaves_synchronous_commit_alone() {
    let database = Postgres::new();
    let mut conn = database.connect();
    let one = Semaphore::new("one", 1);
    let lease = || LeaseOptions::new(Duration::from_secs(60));
    let synchronous = "current_setting('synchronous_commit')";
    let slot = conn.acquire_slot(&one, lease(), Wait::No).expect("free");
    conn.release_slot(slot).expect("ours");
    assert_eq!(words(&mut conn, synchronous), "on");
    let slot = conn.acquire_slot(&one, lease(), Wait::No).expect("free");
    conn.transaction(|conn| {
        conn.release_slot(slot)?;
        assert_eq!(words(conn, synchronous), "on");
        Ok::<_, Error>(())
    })
    .expect("commit");
}

/// Pages of the table and its indexes that the session has read. Counted until a transaction ends.
fn pages_read(conn: &mut PgConnection) -> i64 {
    Postgres::number(
        conn,
        "SELECT sum(pg_stat_get_xact_blocks_fetched(oid)) FROM pg_class \
         WHERE oid = 'diesel_locks_slots'::regclass \
         OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'diesel_locks_slots'::regclass)",
    )
}

/// What rows were before can't be cleared away then, and is not to be read either.
#[test]
fn slots_take_no_more_pages_beside_an_old_snapshot() {
    const PERMITS: u32 = 2;
    let database = Postgres::new();
    let mut conn = database.connect();
    let semaphore = Semaphore::new("few", PERMITS);
    let lease = || LeaseOptions::new(Duration::from_secs(60));
    let cycles = |conn: &mut PgConnection, many: u32| {
        for _ in 0..many {
            let held: Vec<_> = (0..PERMITS)
                .map(|_| conn.acquire_slot(&semaphore, lease(), Wait::No))
                .map(|slot| slot.expect("free"))
                .collect();
            for slot in held {
                conn.release_slot(slot).expect("ours");
            }
        }
    };
    let pages = |conn: &mut PgConnection| {
        conn.transaction(|conn| {
            let mut last = pages_read(conn);
            let mut since = |conn: &mut PgConnection| {
                let now = pages_read(conn);
                now - std::mem::replace(&mut last, now)
            };
            let mut slot = conn.acquire_slot(&semaphore, lease(), Wait::No)?;
            let other = conn.acquire_slot(&semaphore, lease(), Wait::No)?;
            let acquired = since(conn);
            assert!(conn.try_acquire_slot(&semaphore, lease())?.is_none());
            let refused = since(conn);
            conn.pin_slot(&slot)?;
            let ensured = since(conn);
            conn.renew_slot(&mut slot, Duration::from_secs(60))?;
            let refreshed = since(conn);
            conn.release_slot(slot)?;
            conn.release_slot(other)?;
            let released = since(conn);
            Ok::<_, Error>([acquired, refused, ensured, refreshed, released])
        })
        .expect("commit")
    };
    let mut old = database.connect();
    Postgres::sql(
        &mut old,
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT fence FROM diesel_locks_fences",
    );
    // The server plans a statement anew the first five times, and reads what the session keeps of the indexes.
    for _ in 0..10 {
        cycles(&mut conn, 2);
        pages(&mut conn);
    }
    let first = pages(&mut conn);
    cycles(&mut conn, 500);
    let last = pages(&mut conn);
    let grown = first
        .iter()
        .zip(&last)
        .any(|(first, last)| *last > 2 * first);
    assert!(!grown && !first.contains(&0), "{first:?} {last:?}");
}

/// Nobody who waits gets an error from the server, which would stand in its log.
#[test]
fn waiting_writes_nothing_to_the_server_log() {
    let database = Arc::new(Postgres::new());
    for retention in [Retention::Transient, Retention::Kept] {
        for other in [Retention::Transient, Retention::Kept] {
            let holder = Holder::acquire(&database, LockRequest::new("a").retention(retention));
            let errors = Arc::new(Mutex::new(Vec::new()));
            let waiters: Vec<_> = (0..4)
                .map(|_| {
                    let (database, errors) = (Arc::clone(&database), Arc::clone(&errors));
                    spawn(move || {
                        let mut conn = database.connect();
                        conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
                            if let InstrumentationEvent::FinishQuery {
                                error: Some(error), ..
                            } = event
                            {
                                errors.lock().expect("unpoisoned").push(error.to_string());
                            }
                        });
                        for lock in [
                            LockRequest::new("a").retention(other).wait(Wait::No),
                            LockRequest::new("a").retention(other),
                        ] {
                            let _ = conn.with_object_lock(lock, |_| Ok::<_, Error>(()));
                        }
                    })
                })
                .collect();
            database.await_waiting(4);
            holder.release();
            for waiter in waiters {
                result_of(&waiter);
            }
            assert_eq!(*errors.lock().expect("unpoisoned"), Vec::<String>::new());
        }
    }
}

/// An error of what comes before COMMIT is not that of a transaction which is gone.
#[test]
fn error_before_commit_is_returned_unchanged() {
    let database = Postgres::new();
    let mut conn = database.connect();
    conn.batch_execute(
        "CREATE SCHEMA failing; CREATE FUNCTION failing.current_setting(text) RETURNS text \
         LANGUAGE plpgsql AS $$ BEGIN RAISE 'as told'; END $$",
    )
    .expect("a function");
    let failing = "SET LOCAL search_path = failing, pg_catalog, public";
    let before = Postgres::counter(&mut conn, 0);
    let result = conn.run_transaction(TransactionOptions::new(), |conn| {
        Postgres::count_up(conn, 0);
        conn.batch_execute(failing)?;
        Ok::<_, Error>(())
    });
    let error = result.expect_err("as told");
    assert!(matches!(error, Error::Database(_)), "{error:?}");
    assert_eq!(Postgres::counter(&mut conn, 0), before, "rolled back");
    // The same with another transaction in the place of ours.
    for statements in ["ROLLBACK", "ROLLBACK; BEGIN"] {
        let result = conn.run_transaction(TransactionOptions::new(), |conn| {
            conn.batch_execute(statements)?;
            Ok::<_, Error>(())
        });
        let error = result.expect_err("another transaction");
        assert!(error.is_transaction_aborted(), "{statements}: {error:?}");
    }
}

/// Errors in the server's language are told apart all the same.
#[test]
fn german_error_messages_are_classified() {
    if knows_no_german() {
        return;
    }
    let database = Arc::new(Postgres::new());
    let german = |database: &Postgres| {
        let mut conn = database.connect();
        Postgres::sql(&mut conn, "SET lc_messages = 'de_DE.UTF-8'");
        conn
    };
    let mut conn = german(&database);
    let error = diesel::sql_query("SELECT 1/0")
        .execute(&mut conn)
        .expect_err("zero");
    assert_eq!(
        error.to_string(),
        "Division durch Null",
        "the server has the catalogue"
    );

    let holder = Holder::acquire(&database, "a");
    let lock = LockRequest::new("a").wait(Wait::AtMost(Duration::from_millis(100)));
    let error = conn
        .with_object_lock(&lock, |_| Ok::<_, Error>(()))
        .expect_err("held");
    assert!(error.is_timeout(), "{error:?}");
    holder.release();

    let both = Arc::new(std::sync::Barrier::new(2));
    let transactions = [["a", "b"], ["b", "a"]].map(|[first, second]| {
        let (database, both) = (Arc::clone(&database), Arc::clone(&both));
        spawn(move || {
            german(&database).transaction(|conn| {
                conn.lock_object(first)?;
                both.wait();
                conn.lock_object(second)
            })
        })
    });
    let victims: Vec<Error> = transactions
        .iter()
        .filter_map(|transaction| result_of(transaction).err())
        .collect();
    assert_eq!(victims.len(), 1, "{victims:?}");
    assert!(victims[0].is_deadlock(), "{victims:?}");

    Postgres::revert_all_migrations(&mut conn);
    let error = conn
        .with_object_lock("a", |_| Ok::<_, Error>(()))
        .expect_err("no table");
    assert!(error.is_missing_tables(), "{error:?}");
}

/// At the session's levels that would read what was there before the wait.
#[test]
fn with_object_lock_reads_fresh_at_any_level_of_the_session() {
    let database = Arc::new(Postgres::new());
    for level in ["repeatable read", "serializable"] {
        let mut conn = database.connect();
        Postgres::sql(
            &mut conn,
            &format!("SET default_transaction_isolation = '{level}'"),
        );
        let holder = Holder::acquire(&database, "a");
        let waiter = spawn(move || {
            conn.with_object_lock("a", |conn| {
                let at = words(conn, "current_setting('transaction_isolation')");
                Ok::<_, Error>((Postgres::counter(conn, 0), at))
            })
        });
        database.await_waiting(1);
        Postgres::sql(
            &mut database.connect(),
            "UPDATE counters SET n = n + 1 WHERE id = 0",
        );
        let committed = Postgres::counter(&mut database.connect(), 0);
        holder.release();
        let (read, at) = result_of(&waiter).expect("the lock comes free");
        assert_eq!(read, committed);
        assert_eq!(at, "read committed");
    }
}

#[test]
fn session_lock_timeout_ends_an_unlimited_wait() {
    let database = Arc::new(Postgres::new());
    let holder = Holder::acquire(&database, "a");
    let mut conn = database.connect();
    Postgres::sql(&mut conn, "SET lock_timeout = '50ms'");
    let error = conn
        .with_object_lock("a", |_| Ok::<_, Error>(()))
        .expect_err("held");
    assert!(error.is_timeout(), "{error:?}");
    holder.release();
}

/// A lock writes to an unlogged table only: a closure that only reads pays no flush of the log.
#[test]
fn lock_alone_writes_no_wal() {
    let database = Postgres::new();
    let mut conn = database.connect();
    let persistence = words(
        &mut conn,
        "SELECT relpersistence FROM pg_class WHERE relname = 'diesel_locks_objects'",
    );
    assert_eq!(persistence, "u");
}

/// A kept lock on a row that is there only reads: no transaction number, no row lock, no commit record.
#[test]
fn kept_lock_on_an_existing_row_writes_nothing() {
    let database = Postgres::new();
    let mut conn = database.connect();
    let kept = LockRequest::new("a").retention(Retention::Kept);
    conn.with_object_lock(&kept, read).expect("free");
    let assigned = |conn: &mut PgConnection| {
        words(
            conn,
            "coalesce(pg_current_xact_id_if_assigned()::text, 'none')",
        )
    };
    // A transient lock on its id takes the same lock.
    for lock in [
        kept.clone(),
        kept.clone().wait(Wait::AtMost(Duration::from_secs(1))),
        kept.clone().wait(Wait::No),
        LockRequest::new("a"),
    ] {
        let number = conn.with_object_lock(&lock, |conn| Ok::<_, Error>(assigned(conn)));
        assert_eq!(number.expect("free"), "none", "{lock:?}");
        let number = conn.transaction(|conn| {
            conn.lock_object(&lock)?;
            Ok::<_, Error>(assigned(conn))
        });
        assert_eq!(number.expect("free"), "none", "{lock:?}");
    }
    let mut reader = database.connect();
    Postgres::sql(&mut reader, "SET default_transaction_read_only = on");
    // A hot standby is one, and would grant an advisory lock of its own.
    let error = reader.with_object_lock(&kept, read).expect_err("read only");
    assert!(Error::from(error).is_read_only());
}

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

/// Returns when somebody waits for the lock of a kept row with that key.
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
    conn.with_object_locks(kept(&rows), read).expect("free");
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
                .try_with_object_locks(ids.iter().copied(), |conn| {
                    Ok::<_, Error>(Postgres::number(conn, own_advisory_locks))
                })
                .expect("an answer");
            assert_eq!(locks, Some(kept_rows), "{ids:?}, call {call}");
        }
    }
    let mut conn = database.connect();
    for call in 0..12 {
        let locks = conn
            .try_with_object_locks(kept(["a", "row:7", "row:8"]), |conn| {
                Ok::<_, Error>(Postgres::number(conn, own_advisory_locks))
            })
            .expect("an answer");
        assert_eq!(locks, Some(3), "call {call}");
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
            conn.with_object_locks(&ids, |_| Ok(())),
            conn.try_with_object_locks(&ids, |_| Ok(())).map(drop),
            conn.transaction(|conn| conn.lock_object(LockRequest::all(&ids))),
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
    conn.with_object_locks(&ids[..1000], read)
        .expect("all free");
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
        conn.with_object_locks(kept(["a"]), read).expect("free");
        let key = words(&mut conn, "SELECT advisory_key FROM diesel_locks_objects");
        assert_eq!(key, "1");
        conn
    });
    one.with_object_locks(kept(["a"]), |one| {
        for wait in [Wait::No, Wait::AtMost(Duration::from_secs(5))] {
            two.with_object_locks(kept(["a"]).wait(wait), read)?;
            two.transaction(|two| two.lock_object(LockRequest::new("a").wait(wait)))?;
        }
        assert_eq!(two.purge_object_locks()?, 1);
        // A session that changes its schema asks for the locks of that schema's table.
        let mut other = in_schema("one");
        for _ in 0..12 {
            for (schema, free) in [("one", None), ("two", Some(()))] {
                Postgres::sql(&mut other, &format!("SET search_path = {schema}"));
                assert_eq!(other.try_with_object_locks(["a"], read)?, free);
                let kept = other.with_object_locks(kept(["a"]).wait(Wait::No), read);
                assert_eq!(kept.is_ok(), free.is_some());
            }
        }
        // The lock is the table's, whatever its schema is called.
        Postgres::sql(&mut two, "ALTER SCHEMA one RENAME TO three");
        let mut three = in_schema("three");
        assert_eq!(three.try_with_object_locks(["a"], read)?, None);
        assert_eq!(three.purge_object_locks()?, 0);
        assert_eq!(kept_held(&mut three), "a");
        assert_eq!(kept_held(&mut two), "");
        let _ = one;
        Ok::<_, Error>(())
    })
    .expect("no wait");
}

/// At a higher level than READ COMMITTED who waits for another's migration would not see it afterwards.
#[test]
fn concurrent_migrations_succeed_at_any_default_level() {
    for level in ["repeatable read", "serializable"] {
        let database = Arc::new(Postgres::empty());
        let mut conn = database.connect();
        let name = words(&mut conn, "SELECT current_database()");
        Postgres::sql(
            &mut conn,
            &format!("ALTER DATABASE {name} SET default_transaction_isolation = '{level}'"),
        );
        let key = i64::from_be_bytes(*b"diesel-l");
        Postgres::sql(&mut conn, &format!("SELECT pg_advisory_lock({key})"));
        let servers: Vec<_> = (0..3)
            .map(|_| {
                let database = Arc::clone(&database);
                spawn(move || diesel_locks::migrate(&mut database.connect()))
            })
            .collect();
        database.await_waiting(3);
        Postgres::sql(&mut conn, &format!("SELECT pg_advisory_unlock({key})"));
        let ran: usize = servers
            .iter()
            .map(|server| result_of(server).expect("migrate").len())
            .sum();
        assert_eq!(ran, MIGRATIONS, "{level}");
    }
}

/// Refused or rolled back, all of them are free again.
#[test]
fn no_advisory_lock_outlives_its_request() {
    let database = Arc::new(Postgres::new());
    let mut conn = database.connect();
    let kept = |ids: &[&str]| LockRequest::all(ids.iter().copied()).retention(Retention::Kept);
    conn.with_object_locks(kept(&["a", "b", "c"]), read)
        .expect("free");
    let holder = Holder::acquire(&database, kept(&["b"]));
    conn.transaction(|conn| {
        conn.lock_object(kept(&["c"]))?;
        for wait in [Wait::No, Wait::AtMost(Duration::from_millis(20))] {
            let refused = conn.with_object_locks(kept(&["a", "b"]).wait(wait), read);
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

/// Whoever waits has read a key. When that comes free the row may be gone, or be another with another
/// key, which somebody holds.
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

/// The numbers start over after 2^32 rows; of two ids that then have the same one, each excludes the
/// other, and nobody waits for ever.
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
    conn.with_object_locks(
        LockRequest::all(["a", "b"]).retention(Retention::Kept),
        read,
    )
    .expect("both");
    assert_eq!(conn.purge_object_locks().expect("purge"), 2);
}

/// What the crate's documentation says under "Rights" is enough; the sequence needs none.
#[test]
fn user_with_table_privileges_alone_can_lock() {
    let database = Postgres::new();
    let mut conn = database.connect();
    let user = "diesel_locks_test_user";
    conn.transaction(|conn| {
        Postgres::sql(
            conn,
            &format!(
                "CREATE ROLE {user}; \
                 GRANT SELECT, INSERT, UPDATE, DELETE ON diesel_locks_objects TO {user}; SET ROLE {user}"
            ),
        );
        for retention in [Retention::Transient, Retention::Kept] {
            conn.lock_object(LockRequest::new("a").retention(retention))?;
            assert!(conn.try_lock_object(LockRequest::new("b").retention(retention))?);
        }
        Err::<(), Error>(diesel::result::Error::RollbackTransaction.into())
    })
    .expect_err("rolled back, and the role with it");
}

/// Write skew: all statements of both have succeeded, and the first to commit dooms the other.
#[test]
fn serialization_failure_at_commit_is_retried() {
    let database = Postgres::new();
    let mut conn = database.connect();
    let mut other = database.connect();
    let transaction = TransactionOptions::new()
        .isolation(IsolationLevel::Serializable)
        .retry(RetryPolicy::max_attempts(2));
    let sum_into = |conn: &mut PgConnection, id| {
        let sum = Postgres::counter(conn, 1) + Postgres::counter(conn, 2);
        let sql = format!("UPDATE counters SET n = {} WHERE id = {id}", sum + 1);
        Postgres::sql(conn, &sql);
    };
    let attempts = conn.run_transaction_attempts(transaction, |conn, attempt| {
        sum_into(conn, 2);
        if attempt == 1 {
            other.run_transaction(transaction, |other| {
                sum_into(other, 1);
                Ok::<_, Error>(())
            })?;
        }
        Ok::<_, Error>(attempt)
    });
    assert_eq!(attempts.expect("the second time"), 2);
    let n = [1, 2].map(|id| Postgres::counter(&mut conn, id));
    assert_eq!(n, [1, 2], "one after the other");
}

/// Without a next attempt it is the caller's, and the connection can be used.
#[test]
fn a_serialization_failure_at_commit_leaves_the_connection_usable() {
    let database = Postgres::new();
    let mut conn = database.connect();
    let mut other = database.connect();
    let transaction = TransactionOptions::new().isolation(IsolationLevel::Serializable);
    let result = conn.run_transaction(transaction, |conn| {
        Postgres::counter(conn, 1);
        Postgres::count_up(conn, 2);
        other.run_transaction(transaction, |other| {
            Postgres::counter(other, 2);
            Postgres::count_up(other, 1);
            Ok::<_, Error>(())
        })
    });
    let error = result.expect_err("write skew");
    assert!(error.is_serialization_failure(), "{error:?}");
    assert!(!conn.is_broken());
    conn.run_transaction(transaction, |conn| {
        Postgres::count_up(conn, 2);
        Ok::<_, Error>(())
    })
    .expect("usable");
    assert_eq!(Postgres::counter(&mut conn, 2), 1);
}

#[test]
fn constraint_violation_at_commit_is_not_retried() {
    let database = Postgres::new();
    let mut conn = database.connect();
    Postgres::sql(
        &mut conn,
        "CREATE TABLE seats (seat INTEGER, UNIQUE (seat) DEFERRABLE INITIALLY DEFERRED); \
         INSERT INTO seats VALUES (1)",
    );
    let mut attempts = 0;
    let result = conn.run_transaction(
        TransactionOptions::new().retry(RetryPolicy::max_attempts(3)),
        |conn| {
            attempts += 1;
            Postgres::try_sql(conn, "INSERT INTO seats VALUES (1)")
        },
    );
    let error = result.expect_err("taken");
    assert!(
        matches!(&error, Error::Database(DatabaseError(UniqueViolation, _))),
        "{error:?}"
    );
    assert_eq!(attempts, 1);
    assert!(!conn.is_broken());
    conn.run_transaction(TransactionOptions::new(), |conn| {
        Postgres::try_sql(conn, "INSERT INTO seats VALUES (2)")
    })
    .expect("usable");
    assert_eq!(Postgres::number(&mut conn, "SELECT count(*) FROM seats"), 2);
}
