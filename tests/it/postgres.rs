//! PostgreSQL: what is true of it only.

use std::sync::Arc;
use std::time::Duration;

use diesel::prelude::*;
use diesel_locks::prelude::*;
use diesel_locks::{Error, Retention};

use crate::behaviour::{self, self as bodies};
use crate::support::Backend;
use crate::support::backend::MIGRATIONS;
use crate::support::postgres::{Postgres, knows_no_german, words};
use crate::support::threads::{Holder, result_of, spawn};

mod async_endings;
mod commit_errors;
mod cost;
mod encodings;
mod held_locks;
mod kept_rows;
mod migrations;
mod pipelined;
mod protected_rows;
mod row_locks;
mod timeouts;
mod untracked;

// The others run as an application's user: see `least_privilege/postgres.rs`.
crate::owner_tests!(Postgres);
crate::held_locks_tests!(Postgres);
crate::silent_server_tests!(Postgres);

fn read(conn: &mut PgConnection) -> QueryResult<()> {
    diesel::select(diesel::dsl::sql::<diesel::sql_types::Integer>("1")).execute(conn)?;
    Ok(())
}

#[test]
fn session_settings_do_not_change_ids() {
    behaviour::ids::settings_do_not_change_ids::<Postgres>(&[
        "SET standard_conforming_strings = off",
        "SET client_encoding = 'SJIS'",
    ]);
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

/// Errors are classified in the server's language too.
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

/// Above READ COMMITTED a session that has waited for another's migration would not see it.
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
            let tried = conn.try_lock_object(LockRequest::new("b").retention(retention))?;
            assert!(tried.is_acquired());
        }
        Err::<(), Error>(diesel::result::Error::RollbackTransaction.into())
    })
    .expect_err("rolled back, and the role with it");
}

/// A grant reads the clock twice: in the search for a free slot, and for the time of the grant. Here the second reading is earlier.
#[test]
fn slot_is_not_granted_before_the_time_at_which_it_is_free() {
    let database = Postgres::new();
    let mut conn = database.connect();
    let semaphore = Semaphore::new("one", 1);
    conn.register_semaphores([&semaphore]).expect("registered");
    // Each call returns a time one second before that of the last one.
    for set_up in [
        "CREATE SCHEMA fake",
        "CREATE SEQUENCE fake.calls",
        "CREATE FUNCTION fake.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql AS \
         $$SELECT pg_catalog.clock_timestamp() - nextval('fake.calls') * interval '1 second'$$",
        "SET search_path = fake, public, pg_catalog",
        "SELECT setval('fake.calls', 10)",
        // Between the times of the next two calls.
        "UPDATE diesel_locks_slots SET expires_us = \
         (extract(epoch FROM pg_catalog.clock_timestamp()) - 11.5) * 1000000",
    ] {
        Postgres::sql(&mut conn, set_up);
    }
    let free_at = Postgres::number(&mut conn, "SELECT expires_us FROM diesel_locks_slots");
    let lease = LeaseOptions::new(Duration::from_secs(60));
    let slot = conn.try_acquire_slot(&semaphore, lease);
    assert!(slot.expect("an answer").is_some());
    let granted_at = Postgres::number(&mut conn, "SELECT acquired_us FROM diesel_locks_slots");
    assert!(granted_at >= free_at, "{granted_at} is before {free_at}");
}
