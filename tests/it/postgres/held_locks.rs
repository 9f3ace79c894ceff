//! What PostgreSQL shows of object locks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel_locks::prelude::*;
use diesel_locks::{Error, HeldObjectLock, InspectExt, LockPool, Retention};

use crate::support::Backend;
use crate::support::postgres::Postgres;
use crate::support::privileges::{Role, documented_grants};
use crate::support::threads::{Holder, LONG, begin, result_of, roll_back, spawn};
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

/// Its row is not committed, and its waiter waits for the transaction.
#[test]
fn first_kept_lock_of_an_id_is_listed_once() {
    let database = Arc::new(Postgres::new());
    let mut conn = database.connect();
    let holder = Holder::acquire(&database, kept("new"));
    let waiting = {
        let mut conn = database.connect();
        spawn(move || conn.with_object_lock(kept("new"), |_| Ok::<_, Error>(())))
    };
    database.await_waiting(1);
    let locks = conn.held_object_locks(9).expect("locks");
    assert_eq!(ids(&locks), [Some("new")], "{locks:?}");
    assert_eq!(locks[0].waiters.len(), 1, "{locks:?}");
    holder.release();
    result_of(&waiting).expect("free");
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

/// The server reads its list of sessions once per transaction.
#[test]
fn waiter_that_comes_later_is_shown_in_the_same_transaction() {
    let mut roles = Vec::new();
    let database = Arc::new(Postgres::new());
    let [mut grants, _] = documented_grants();
    grants.push("GRANT pg_read_all_stats TO app".to_owned());
    let role = Role::with(&database, &grants);
    let mut conn = Postgres::connect_to(&role.url());
    roles.push(role);
    let mut waiter = database.connect();
    Postgres::sql(&mut waiter, "SELECT 1");
    let holder = Holder::acquire(&database, "a");
    begin(&mut conn);
    Postgres::sql(&mut conn, "SET TRANSACTION READ ONLY");
    assert_eq!(ids(&conn.held_object_locks(9).expect("locks")), [None]);
    let waiting = spawn(move || waiter.with_object_lock("a", |_| Ok::<_, Error>(())));
    database.await_waiting(1);
    let locks = conn.held_object_locks(9).expect("locks");
    assert_eq!(ids(&locks), [Some("a")], "{locks:?}");
    assert_eq!(locks[0].waiters.len(), 1, "{locks:?}");
    roll_back(&mut conn);
    holder.release();
    result_of(&waiting).expect("the lock");
}

/// Its query is empty.
#[test]
fn waiter_without_track_activities_is_shown() {
    let database = Arc::new(Postgres::new());
    let mut waiter = database.connect();
    Postgres::sql(&mut waiter, "SET track_activities = off");
    let holder = Holder::acquire(&database, "a");
    let waiting = spawn(move || waiter.with_object_lock("a", |_| Ok::<_, Error>(())));
    let mut conn = database.connect();
    let started = Instant::now();
    let locks = loop {
        let locks = conn.held_object_locks(9).expect("locks");
        if locks.iter().any(|lock| !lock.waiters.is_empty()) {
            break locks;
        }
        assert!(started.elapsed() < LONG, "{locks:?}");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(ids(&locks), [None], "{locks:?}");
    assert_eq!(locks[0].waiters.len(), 1, "{locks:?}");
    holder.release();
    result_of(&waiting).expect("the lock");
}

/// The server does not show which transient locks a transaction holds.
#[test]
fn transient_lock_beside_a_kept_one_is_shown_by_its_waiter() {
    let database = Arc::new(Postgres::new());
    let mut conn = database.connect();
    let mut holder = database.connect();
    conn.with_object_lock(kept("kept"), |_| Ok::<_, Error>(()))
        .expect("free");
    begin(&mut holder);
    holder.lock_object(kept("kept")).expect("free");
    holder.lock_object("transient").expect("free");
    assert_eq!(
        ids(&conn.held_object_locks(9).expect("locks")),
        [Some("kept")]
    );
    let waiting = {
        let database = Arc::clone(&database);
        spawn(move || {
            database
                .connect()
                .with_object_lock("transient", |_| Ok::<_, Error>(()))
        })
    };
    database.await_waiting(1);
    let locks = conn.held_object_locks(9).expect("locks");
    assert_eq!(ids(&locks), [Some("transient"), Some("kept")], "{locks:?}");
    roll_back(&mut holder);
    result_of(&waiting).expect("the lock");
}

/// It may as well have found the other row before it could insert its own.
#[test]
fn transient_lock_of_a_waiter_is_shown_by_its_own_waiter() {
    let database = Arc::new(Postgres::new());
    let mut conn = database.connect();
    let mut both = database.connect();
    let holder = Holder::acquire(&database, "b");
    begin(&mut both);
    both.lock_object("a").expect("free");
    let (then, waits) = std::sync::mpsc::channel::<()>();
    let waiting = spawn(move || {
        both.lock_object("b").expect("the lock");
        waits.recv().expect("the test says when");
        roll_back(&mut both);
    });
    database.await_waiting(1);
    // The id of a lock that is requested in a transaction is not shown.
    let locks = conn.held_object_locks(9).expect("locks");
    assert_eq!(ids(&locks), [None], "{locks:?}");
    assert_eq!(locks[0].waiters.len(), 1, "{locks:?}");
    let waiter = {
        let database = Arc::clone(&database);
        spawn(move || {
            database
                .connect()
                .with_object_lock("a", |_| Ok::<_, Error>(()))
        })
    };
    database.await_waiting(2);
    let locks = conn.held_object_locks(9).expect("locks");
    let mut shown = ids(&locks);
    shown.sort_unstable();
    assert_eq!(shown, [None, Some("a")], "{locks:?}");
    holder.release();
    then.send(()).expect("it waits for it");
    result_of(&waiting);
    result_of(&waiter).expect("the lock");
}

/// On a connection and on a pool, whether the locks were free or not.
#[test]
fn name_of_the_session_shows_the_ids_of_transient_locks() {
    let database = Arc::new(Postgres::new());
    let pool = LockPool::new(database.pool(1));
    let application = |conn: &mut PgConnection| {
        let name = diesel::dsl::sql::<Text>("current_setting('application_name')");
        diesel::select(name).get_result::<String>(conn)
    };
    let mut conn = database.connect();
    Postgres::sql(&mut conn, "SET application_name = 'orders'");
    let longest = "x".repeat(63 - "diesel_locks:".len());
    let too_long = format!("{longest}x");
    for (request, shown) in [
        (LockRequest::new("Order:1"), vec![Some("Order:1")]),
        (LockRequest::all(["b", "a"]), vec![Some("a"), Some("b")]),
        (LockRequest::new(r"it's \ 'x'"), vec![Some(r"it's \ 'x'")]),
        (LockRequest::new(&longest), vec![Some(&*longest)]),
        (LockRequest::new(&too_long), vec![None]),
        (LockRequest::all(["a", &*longest]), vec![None]),
        (LockRequest::new("a|b"), vec![None]),
        (LockRequest::new("Größe"), vec![None]),
    ] {
        let request = request.name_session();
        for wait in [Wait::No, Wait::Forever, Wait::AtMost(LONG)] {
            let request = request.clone().wait(wait);
            let listed = |holder: &mut PgConnection| {
                let mut locks = database.connect().held_object_locks(9)?;
                locks.sort_by(|a, b| a.id.cmp(&b.id));
                assert_eq!(ids(&locks), shown, "{request:?}");
                Ok::<_, Error>(application(holder)?)
            };
            let name = conn.with_object_lock(request.clone(), listed);
            let name = name.expect("free");
            let is_named = name.starts_with("diesel_locks:");
            assert_eq!(is_named, shown[0].is_some(), "{name}");
            assert!(is_named || name == "orders", "{name}");
            assert_eq!(application(&mut conn).expect("a query"), "orders");
            pool.with_object_lock(request.clone(), listed)
                .expect("free");
        }
    }
    let request = [kept("a").name_session(), kept("b")];
    let name = conn.with_object_lock(request, |conn| Ok::<_, Error>(application(conn)?));
    assert_eq!(name.expect("free"), "orders", "kept locks have rows");
    let request = [LockRequest::new("a").name_session(), "b".into()];
    let name = conn.with_object_lock(request, |conn| Ok::<_, Error>(application(conn)?));
    assert_eq!(name.expect("free"), "diesel_locks:a|b");
}

#[test]
fn session_that_waits_under_its_name_is_a_waiter() {
    let database = Arc::new(Postgres::new());
    let holder = Holder::acquire(&database, LockRequest::new("a").name_session());
    let mut waiter = database.connect();
    let waiting = spawn(move || {
        let request = LockRequest::all(["a", "b"]).name_session();
        waiter.with_object_lock(request, |_| Ok::<_, Error>(()))
    });
    database.await_waiting(1);
    let locks = database.connect().held_object_locks(9).expect("locks");
    // Of two it is not known for which one it waits.
    let mut shown = ids(&locks);
    shown.sort_unstable();
    assert_eq!(shown, [None, Some("a")], "{locks:?}");
    let waiters: usize = locks.iter().map(|lock| lock.waiters.len()).sum();
    assert_eq!(waiters, 1, "{locks:?}");
    holder.release();
    result_of(&waiting).expect("the lock");
}
