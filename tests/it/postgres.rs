//! PostgreSQL.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use diesel::connection::InstrumentationEvent;
use diesel::prelude::*;
use diesel_locks::Error;
use diesel_locks::prelude::*;

use crate::support::Backend;
use crate::support::postgres::{Postgres, words};
use crate::support::proxy::Proxy;
use crate::support::threads::{Holder, meanwhile, result_of};

crate::all_promises!(Postgres);

fn read(conn: &mut PgConnection) -> QueryResult<()> {
    diesel::select(diesel::dsl::sql::<diesel::sql_types::Integer>("1")).execute(conn)?;
    Ok(())
}

/// At top level the lock rides with BEGIN, time-out included; inside a transaction it is one statement.
#[test]
fn round_trips_are_none_at_top_level_and_one_inside() {
    let database = Postgres::new();
    let (proxy, url) = Proxy::url(&database.url());
    let mut conn = Postgres::connect_to(&url);
    let bare = proxy.count(|| conn.transaction(read).expect("commit"));
    for retention in [Retention::Transient, Retention::Kept] {
        for wait in [Wait::Forever, Wait::AtMost(Duration::from_millis(500))] {
            let lock = ObjectLock::on("a").wait(wait).retention(retention);
            for _ in 0..3 {
                let locked = proxy.count(|| conn.with_object_lock(&lock, read).expect("free"));
                assert_eq!(locked, bare, "{lock:?}");
            }
            let many = ObjectLock::on_all(["a", "b", "c"])
                .wait(wait)
                .retention(retention);
            let locked = proxy.count(|| conn.with_object_locks(many, read).expect("free"));
            assert_eq!(locked, bare, "three in one");
        }
        let lock = ObjectLock::on("a").retention(retention);
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

/// Nobody who waits gets an error from the server, which would stand in its log.
#[test]
fn waiting_puts_nothing_into_the_servers_log() {
    let database = Arc::new(Postgres::new());
    for retention in [Retention::Transient, Retention::Kept] {
        for other in [Retention::Transient, Retention::Kept] {
            let holder = Holder::of(&database, ObjectLock::on("a").retention(retention));
            let errors = Arc::new(Mutex::new(Vec::new()));
            let waiters: Vec<_> = (0..4)
                .map(|_| {
                    let (database, errors) = (Arc::clone(&database), Arc::clone(&errors));
                    meanwhile(move || {
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
                            ObjectLock::on("a").retention(other).wait(Wait::No),
                            ObjectLock::on("a").retention(other),
                        ] {
                            let _ = conn.with_object_lock(lock, |_| Ok::<_, Error>(()));
                        }
                    })
                })
                .collect();
            database.await_waiting(4);
            holder.let_go();
            for waiter in waiters {
                result_of(&waiter);
            }
            assert_eq!(*errors.lock().expect("unpoisoned"), Vec::<String>::new());
        }
    }
}

/// Errors in the server's language are told apart all the same. Servers of others may lack the locale;
/// then `DIESEL_LOCKS_TEST_WITHOUT_LOCALES` says so.
#[test]
fn a_server_that_speaks_german_is_understood() {
    if std::env::var_os("DIESEL_LOCKS_TEST_WITHOUT_LOCALES").is_some() {
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

    let holder = Holder::of(&database, "a");
    let lock = ObjectLock::on("a").wait(Wait::AtMost(Duration::from_millis(100)));
    let error = conn
        .with_object_lock(&lock, |_| Ok::<_, Error>(()))
        .expect_err("held");
    assert!(error.is_timeout(), "{error:?}");
    holder.let_go();

    let both = Arc::new(std::sync::Barrier::new(2));
    let transactions = [["a", "b"], ["b", "a"]].map(|[first, second]| {
        let (database, both) = (Arc::clone(&database), Arc::clone(&both));
        meanwhile(move || {
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

    Postgres::revert(&mut conn);
    let error = conn
        .with_object_lock("a", |_| Ok::<_, Error>(()))
        .expect_err("no table");
    assert!(error.is_missing_table(), "{error:?}");
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
        let holder = Holder::of(&database, "a");
        let waiter = meanwhile(move || {
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
        holder.let_go();
        let (read, at) = result_of(&waiter).expect("the lock comes free");
        assert_eq!(read, committed);
        assert_eq!(at, "read committed");
    }
}

#[test]
fn the_sessions_own_lock_timeout_ends_a_wait_without_limit() {
    let database = Arc::new(Postgres::new());
    let holder = Holder::of(&database, "a");
    let mut conn = database.connect();
    Postgres::sql(&mut conn, "SET lock_timeout = '50ms'");
    let error = conn
        .with_object_lock("a", |_| Ok::<_, Error>(()))
        .expect_err("held");
    assert!(error.is_timeout(), "{error:?}");
    holder.let_go();
}

/// A lock writes to an unlogged table only: a closure that only reads pays no flush of the log.
#[test]
fn a_lock_alone_writes_no_log_of_its_own() {
    let database = Postgres::new();
    let mut conn = database.connect();
    let persistence = words(
        &mut conn,
        "SELECT relpersistence FROM pg_class WHERE relname = 'diesel_object_locks'",
    );
    assert_eq!(persistence, "u");
}
