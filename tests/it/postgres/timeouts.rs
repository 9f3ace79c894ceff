//! Waits that end in time, and the limits of the session.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use diesel::connection::InstrumentationEvent;
use diesel::prelude::*;
use diesel_locks::prelude::*;
use diesel_locks::{Error, Retention};

use crate::behaviour;
use crate::support::Backend;
use crate::support::postgres::Postgres;
use crate::support::threads::{Holder, result_of, spawn};

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
            let (mut conn, _) = behaviour::locked_tables::lock_waits_and_tries_end::<Postgres>(
                conn, &lock, limit, inside,
            );
            Postgres::sql(&mut holder, "ROLLBACK");
            conn.with_object_lock(&lock, |_| Ok::<_, Error>(()))
                .expect("free again");
        }
    }
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
            behaviour::locked_tables::slot_tries_and_waits_end::<Postgres>(
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
        "SET idle_session_timeout = '8s'",
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
