//! Waits that end in time, and the limits of the session.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diesel::connection::InstrumentationEvent;
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel_locks::prelude::*;
use diesel_locks::{Error, Retention};

use crate::behaviour;
use crate::support::Backend;
use crate::support::awaited::Awaited;
use crate::support::backend::EngineConnection;
use crate::support::postgres::{Postgres, PostgresOn};
use crate::support::threads::{Holder, LONG, result_of, spawn};

/// Another session has locked the whole table.
#[test]
fn waits_and_tries_end_while_the_table_is_locked() {
    let lock = LockRequest::new("a");
    for lock in [
        lock.clone().retention(Retention::Transient),
        lock.retention(Retention::Kept),
        LockRequest::shared("a"),
    ] {
        for kind in [(false, false), (true, false), (true, true)] {
            waits_and_tries_end("diesel_locks_objects", &lock, kind);
        }
    }
}

/// One that holds a lock does not look at the marks.
#[test]
fn readers_end_while_the_table_of_marks_is_locked() {
    for warm in [false, true] {
        let shared = LockRequest::shared("a");
        waits_and_tries_end("diesel_locks_wanted", &shared, (warm, false));
    }
}

fn waits_and_tries_end(table: &str, lock: &LockRequest, kind: (bool, bool)) {
    let hold = format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE");
    let body = behaviour::locked_tables::waits_and_tries_end::<Postgres>;
    body([&hold, "ROLLBACK"], lock, kind, |_| ());
}

#[test]
fn writer_of_a_pool_ends_while_the_table_of_marks_is_locked() {
    let database = Arc::new(Postgres::new());
    let mut holder = database.connect();
    behaviour::locked_tables::writer_of_a_pool_ends(&database, "a", |locked| {
        let statement = if locked {
            "BEGIN; LOCK TABLE diesel_locks_wanted IN ACCESS EXCLUSIVE MODE"
        } else {
            "ROLLBACK"
        };
        Postgres::sql(&mut holder, statement);
    });
}

/// The other session waits for the table behind a reader.
#[test]
fn waits_and_tries_end_while_a_lock_on_the_table_is_waited_for() {
    let database = Arc::new(Postgres::new());
    let limit = Duration::from_millis(300);
    for retention in [Retention::Transient, Retention::Kept] {
        for inside in [false, true] {
            let lock = LockRequest::new("a")
                .retention(retention)
                .wait(Wait::AtMost(limit));
            let (conn, mut reader, mut other) =
                (database.connect(), database.connect(), database.connect());
            Postgres::sql(&mut reader, "BEGIN; SELECT FROM diesel_locks_objects");
            let other = spawn(move || {
                let lock =
                    "BEGIN; LOCK TABLE diesel_locks_objects IN ACCESS EXCLUSIVE MODE; ROLLBACK";
                Postgres::sql(&mut other, lock);
            });
            database.await_waiting(1);
            behaviour::locked_tables::lock_waits_and_tries_end::<Postgres>(
                conn, &lock, limit, inside,
            );
            Postgres::sql(&mut reader, "ROLLBACK");
            result_of(&other);
        }
    }
}

fn slot_requests_end_whenever_it_is_locked(table: &'static str, lock: &'static str) {
    let requested = format!(
        "SELECT count(*) FROM pg_locks WHERE relation = '{table}'::regclass AND mode = 'AccessExclusiveLock' \
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    );
    behaviour::locked_tables::slot_requests_end_whenever_a_table_is_locked::<Postgres>(
        table,
        lock,
        "ROLLBACK",
        requested.leak(),
    );
}

#[test]
fn slot_requests_end_whenever_the_slots_are_locked() {
    slot_requests_end_whenever_it_is_locked(
        "diesel_locks_slots",
        "BEGIN; LOCK TABLE diesel_locks_slots IN ACCESS EXCLUSIVE MODE",
    );
}

#[test]
fn slot_requests_end_whenever_the_fences_are_locked() {
    slot_requests_end_whenever_it_is_locked(
        "diesel_locks_fences",
        "BEGIN; LOCK TABLE diesel_locks_fences IN ACCESS EXCLUSIVE MODE",
    );
}

/// Servers before PostgreSQL 17 do not have it.
fn wait_ends_before_the_transaction_timeout<C: EngineConnection<Backend = Pg>>() {
    let database = Arc::new(PostgresOn::<C>::new());
    let mut conn = database.connect();
    let set = "SET transaction_timeout = '3s'";
    if Postgres::number(&mut Postgres::connect_to(&database.url()), VERSION) < 170_000 {
        let unknown = PostgresOn::<C>::try_sql(&mut conn, set).expect_err("unknown");
        let named = unknown.to_string().contains("\"transaction_timeout\"");
        assert!(named, "{unknown:?}");
        return;
    }
    PostgresOn::<C>::sql(&mut conn, set);
    if C::NOTICES_DEADLOCKS {
        // The client library passes on the server's last message.
        let mut conn = database.connect();
        PostgresOn::<C>::sql(&mut conn, set);
        let slept = PostgresOn::<C>::in_transaction(&mut conn, |conn| {
            PostgresOn::<C>::try_number(conn, "SELECT count(*) FROM pg_sleep(10)")
        });
        let error = slept.expect_err("too long");
        assert!(error.is_timeout() && error.is_busy(), "{error:?}");
    }
    for retention in [Retention::Transient, Retention::Kept] {
        let holder = Holder::acquire(&database, LockRequest::new("a").retention(retention));
        let limit = Duration::from_secs(4);
        let lock = LockRequest::all(["a", "b"])
            .retention(retention)
            .wait(Wait::AtMost(limit));
        for inside in [false, true] {
            let started = Instant::now();
            let result = if inside {
                PostgresOn::<C>::in_transaction(&mut conn, |conn| conn.lock_object(&lock))
            } else {
                conn.with_object_lock(&lock, |_| Ok::<_, Error>(()))
            };
            let error = result.expect_err("held");
            assert!(error.is_timeout() && error.is_busy(), "{error:?}");
            assert!(inside || started.elapsed() >= limit);
            // The connection is open.
            PostgresOn::<C>::sql(&mut conn, "SELECT 1");
        }
        let waiter = {
            let lock = lock.clone().wait(Wait::AtMost(LONG));
            spawn(move || {
                let locked = conn.with_object_lock(&lock, |_| Ok::<_, Error>(()));
                (conn, locked)
            })
        };
        database.await_waiting(1);
        holder.release();
        let locked;
        (conn, locked) = result_of(&waiter);
        locked.expect("free");
    }
}

const VERSION: &str = "current_setting('server_version_num')::bigint";

#[test]
fn wait_on_a_blocking_connection_ends_before_the_transaction_timeout() {
    wait_ends_before_the_transaction_timeout::<PgConnection>();
}

#[test]
fn wait_on_an_asynchronous_connection_ends_before_the_transaction_timeout() {
    wait_ends_before_the_transaction_timeout::<Awaited<diesel_async::AsyncPgConnection>>();
}

#[test]
fn long_waits_for_slots_end_while_their_table_is_locked() {
    let database = Postgres::new();
    let mut holder = database.connect();
    behaviour::locked_tables::long_slot_waits_end(&database, |locked| {
        let lock = "BEGIN; LOCK TABLE diesel_locks_slots IN ACCESS EXCLUSIVE MODE";
        Postgres::sql(&mut holder, if locked { lock } else { "ROLLBACK" });
    });
}

#[test]
fn node_that_cannot_look_at_the_slot_does_not_try_to_acquire_it() {
    let database = Postgres::new();
    let mut holder = database.connect();
    let test =
        behaviour::timer_grants::node_that_cannot_look_at_the_slot_does_not_try_to_acquire_it;
    test(&database, |locked| {
        let lock = "BEGIN; LOCK TABLE diesel_locks_slots IN ACCESS EXCLUSIVE MODE";
        Postgres::sql(&mut holder, if locked { lock } else { "ROLLBACK" });
    });
}

#[test]
fn waits_and_tries_for_slots_end_while_their_table_is_locked() {
    let database = Arc::new(Postgres::new());
    let limit = Duration::from_millis(300);
    let lease = || LeaseOptions::new(Duration::from_secs(60));
    let two = Semaphore::new("two", 2);
    for (inside, table, semaphore) in [false, true].into_iter().flat_map(|inside| {
        let registered = Semaphore::registered("two");
        [("slots", two.clone()), ("semaphores", registered)]
            .map(|(table, semaphore)| (inside, table, semaphore))
    }) {
        let mut conn = database.connect();
        conn.register_semaphores([&two]).expect("registered");
        let mut holder = database.connect();
        let lock = format!("BEGIN; LOCK TABLE diesel_locks_{table} IN ACCESS EXCLUSIVE MODE");
        Postgres::sql(&mut holder, &lock);
        let waiter = spawn(move || {
            behaviour::locked_tables::slot_tries_and_waits_end::<Postgres>(
                &mut conn, &semaphore, limit, inside,
            );
            conn
        });
        let mut conn = result_of(&waiter);
        Postgres::sql(&mut holder, "ROLLBACK");
        let slot = conn.try_acquire_slot(&two, lease());
        conn.release_slot(slot.expect("an answer").expect("free"))
            .expect("ours");
    }
}

/// PostgreSQL may report the `lock_timeout` of a request that does not wait as a cancel request. A `statement_timeout`, which
/// has the same SQLSTATE, stays an error.
#[test]
fn cancel_request_that_may_be_a_lock_timeout_is_a_refusal() {
    let database = Postgres::new();
    let mut conn = database.connect();
    let mut admin = database.connect();
    pause_before(&mut admin, "INSERT ON diesel_locks_objects");
    let lock = || LockRequest::new("a").wait(Wait::No);
    Postgres::sql(&mut conn, "SET statement_timeout = '100ms'");
    let error = conn
        .with_object_lock(lock(), |_| Ok::<_, Error>(()))
        .expect_err("it pauses");
    assert!(error.is_timeout(), "{error:?}");

    Postgres::sql(&mut conn, "SET statement_timeout = 0");
    let request = spawn(move || conn.with_object_lock(lock(), |_| Ok::<_, Error>(())));
    cancel_paused(&mut admin, Duration::from_millis(20));
    let error = result_of(&request).expect_err("it was cancelled");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

/// As if the statement waited for long.
fn pause_before(admin: &mut PgConnection, event: &str) {
    let pause = format!(
        "CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$; \
         CREATE TRIGGER pause BEFORE {event} FOR EACH ROW EXECUTE FUNCTION pause()"
    );
    Postgres::sql(admin, &pause);
}

/// Cancels the statement that pauses when it has run for so long.
fn cancel_paused(admin: &mut PgConnection, after: Duration) {
    let cancelled = format!(
        "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity \
         WHERE datname = current_database() AND wait_event = 'PgSleep' \
         AND clock_timestamp() - query_start > '{}ms'",
        after.as_millis()
    );
    let started = Instant::now();
    while Postgres::number(admin, &cancelled) == 0 {
        assert!(started.elapsed() < LONG, "it does not pause");
    }
}

/// The same of a wait whose time is up. Before, it has no `lock_timeout`.
#[test]
fn cancel_request_that_may_be_the_lock_timeout_of_a_wait_is_a_time_out() {
    let database = Postgres::new();
    let mut admin = database.connect();
    pause_before(&mut admin, "INSERT ON diesel_locks_objects");
    for inside in [false, true] {
        let mut cancelled = |limit| {
            let mut conn = database.connect();
            let lock = LockRequest::new("a").wait(Wait::AtMost(limit));
            let request = spawn(move || {
                if inside {
                    Postgres::in_transaction(&mut conn, |conn| {
                        let error = conn.lock_object(lock).expect_err("it was cancelled");
                        Postgres::count_up(conn, 1);
                        Ok(error)
                    })
                    .expect("the transaction continues")
                } else {
                    conn.with_object_lock(lock, |_| Ok::<_, Error>(()))
                        .expect_err("it was cancelled")
                }
            });
            cancel_paused(&mut admin, Duration::from_millis(20));
            result_of(&request)
        };
        let error = cancelled(Duration::ZERO);
        assert!(matches!(error, Error::LockTimeout { .. }), "{error:?}");
        let error = cancelled(LONG);
        assert!(matches!(error, Error::Database(_)), "{error:?}");
    }
}

/// The same of a request for a slot, whose `lock_timeout` is for a locked table.
#[test]
fn cancel_request_that_may_be_the_lock_timeout_of_a_slot_is_a_refusal() {
    let database = Postgres::new();
    let mut admin = database.connect();
    let one = Semaphore::new("one", 1);
    let lease = || LeaseOptions::new(LONG);
    let slot = admin.try_acquire_slot(&one, lease()).expect("an answer");
    admin.release_slot(slot.expect("free")).expect("ours");
    pause_before(&mut admin, "UPDATE ON diesel_locks_slots");
    for inside in [false, true] {
        let request = |mut conn: PgConnection| {
            let one = one.clone();
            move || {
                if inside {
                    Postgres::in_transaction(&mut conn, |conn| {
                        let slot = conn.try_acquire_slot(&one, lease())?;
                        Postgres::count_up(conn, 1);
                        Ok(slot)
                    })
                } else {
                    conn.try_acquire_slot(&one, lease())
                }
            }
        };
        let mut conn = database.connect();
        Postgres::sql(&mut conn, "SET statement_timeout = '100ms'");
        let error = request(conn)().expect_err("it pauses");
        assert!(error.is_timeout(), "{error:?}");

        let request = spawn(request(database.connect()));
        cancel_paused(&mut admin, Duration::from_millis(100));
        assert_eq!(result_of(&request).expect("an answer"), None);
    }
}

/// The message that sets limits, locks and restores the limits is cancelled.
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

#[test]
fn waiters_in_a_queue_outlast_the_limit_of_idle_sessions() {
    behaviour::idle_sessions::waiters_in_a_queue_outlast_the_limit_of_idle_sessions::<Postgres>(
        "SET idle_session_timeout = '12s'",
        "SELECT pg_backend_pid()",
        "SELECT count(*) FROM pg_stat_activity WHERE pid =",
    );
}

#[test]
fn server_timeout_ends_an_idle_transaction() {
    behaviour::idle_sessions::server_timeout_ends_an_idle_transaction::<Postgres>(
        "SET idle_in_transaction_session_timeout = '100ms'",
    );
}

/// A wait causes no error on the server, which would write it to its log.
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
