//! What PostgreSQL shows of object locks.

use std::sync::Arc;

use diesel_locks::prelude::*;
use diesel_locks::{Error, HeldObjectLock, InspectExt, Retention};

use crate::support::Backend;
use crate::support::postgres::Postgres;
use crate::support::privileges::{Role, documented_grants};
use crate::support::threads::{Holder, begin, result_of, roll_back, spawn};
use crate::support::wrapped_backend::Wrapper;

fn kept(id: &str) -> LockRequest {
    LockRequest::new(id).retention(Retention::Kept)
}

fn ids(locks: &[HeldObjectLock]) -> Vec<Option<&str>> {
    locks.iter().map(|lock| lock.id.as_deref()).collect()
}

/// The keys of both tables start at 1.
#[test]
fn locks_of_another_schema_are_not_shown() {
    let database = Postgres::new();
    let mut public = database.connect();
    let mut conn = database.connect();
    Postgres::sql(&mut conn, "CREATE SCHEMA other; SET search_path = other");
    diesel_locks::migrate(&mut conn).expect("migrate");
    public
        .with_object_lock(kept("public"), |public| {
            assert_eq!(public.held_object_locks(9)?.len(), 1);
            assert_eq!(conn.held_object_locks(9)?, []);
            conn.with_object_lock(kept("other"), |_| Ok::<_, Error>(()))?;
            conn.with_object_lock(kept("other"), |conn| {
                assert_eq!(ids(&conn.held_object_locks(9)?), [Some("other")]);
                assert_eq!(public.held_object_locks(9)?.len(), 1);
                Ok::<_, Error>(())
            })
        })
        .expect("free");
}

/// The row of a new kept lock can't be read by others, and an application's own advisory locks are none of ours.
#[test]
fn transaction_that_has_made_a_kept_row_is_shown_without_the_id() {
    let database = Arc::new(Postgres::new());
    let mut conn = database.connect();
    let mut application = database.connect();
    begin(&mut application);
    Postgres::sql(
        &mut application,
        "SELECT pg_advisory_xact_lock(1), pg_advisory_xact_lock(1, 1)",
    );
    let holder = Holder::acquire(&database, kept("new"));
    assert_eq!(ids(&conn.held_object_locks(9).expect("locks")), [None]);
    holder.release();
    let holder = Holder::acquire(&database, kept("new"));
    assert_eq!(
        ids(&conn.held_object_locks(9).expect("locks")),
        [Some("new")]
    );
    holder.release();
    roll_back(&mut application);
    assert_eq!(conn.held_object_locks(9).expect("locks"), []);
}

/// It has the locks of a transaction, although no session has it.
#[test]
fn prepared_transaction_is_shown_without_a_session() {
    let database = Postgres::new();
    let mut conn = database.connect();
    if Postgres::number(
        &mut conn,
        "SELECT current_setting('max_prepared_transactions')::integer",
    ) == 0
    {
        return;
    }
    conn.with_object_lock(kept("a"), |_| Ok::<_, Error>(()))
        .expect("free");
    Postgres::sql(
        &mut conn,
        "BEGIN; SELECT diesel_locks_acquire_one('a', true); PREPARE TRANSACTION 'diesel_locks_test'",
    );
    let locks = conn.held_object_locks(9).expect("locks");
    Postgres::sql(&mut conn, "ROLLBACK PREPARED 'diesel_locks_test'");
    assert_eq!(ids(&locks), [Some("a")]);
    assert_eq!(locks[0].holder.id, None);
}

/// A session that waits for a row of the application, of a transaction that holds an object lock.
#[test]
fn waiter_for_a_row_of_the_application_is_not_shown() {
    let database = Arc::new(Postgres::new());
    let mut conn = database.connect();
    let mut other = database.connect();
    conn.with_object_lock("a", |conn| {
        Postgres::count_up(conn, 0);
        let waits = spawn(move || {
            begin(&mut other);
            other.lock_object("b").expect("free");
            Postgres::count_up(&mut other, 0);
            roll_back(&mut other);
        });
        database.await_waiting(1);
        let locks = database.connect().held_object_locks(9)?;
        assert_eq!(ids(&locks), [None, None], "{locks:?}");
        assert!(
            locks.iter().all(|lock| lock.waiters.is_empty()),
            "{locks:?}"
        );
        Ok::<_, Error>(waits)
    })
    .map(|waits| result_of(&waits))
    .expect("free");
}

/// The sessions of another user.
#[test]
fn times_need_a_privilege_and_ids_of_kept_locks_do_not() {
    let mut roles = Vec::new();
    let database = Arc::new(Postgres::new());
    let [grants, _] = documented_grants();
    let role = Role::with(&database, &grants);
    let mut conn = Postgres::connect_to(&role.url());
    let name = role.name.clone();
    roles.push(role);
    database
        .connect()
        .with_object_lock(kept("a"), |_| Ok::<_, Error>(()))
        .expect("free");
    let holder = Holder::acquire(&database, kept("a"));
    let waiting = {
        let database = Arc::clone(&database);
        spawn(move || {
            database
                .connect()
                .with_object_lock(kept("a"), |_| Ok::<_, Error>(()))
        })
    };
    database.await_waiting(1);
    let locks = conn.held_object_locks(9).expect("locks");
    assert_eq!(ids(&locks), [Some("a")]);
    assert_eq!(locks[0].waiters.len(), 1);
    assert!(
        locks[0].holder.id.is_some() && locks[0].holder.user.is_some(),
        "{locks:?}"
    );
    assert_eq!(
        (locks[0].holder.started_at, locks[0].holder.open_for),
        (None, None)
    );
    let grant = format!("GRANT pg_read_all_stats TO {name}");
    Postgres::sql(&mut database.connect(), &grant);
    let locks = Postgres::connect_to(&roles[0].url())
        .held_object_locks(9)
        .expect("locks");
    assert!(locks[0].holder.started_at.is_some(), "{locks:?}");
    holder.release();
    result_of(&waiting).expect("the lock");
}
