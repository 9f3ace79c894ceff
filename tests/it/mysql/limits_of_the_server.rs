//! Waits without limit that a limit of the server ends, and those that it must not end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use diesel::connection::InstrumentationEvent;
use diesel::prelude::*;
use diesel_locks::prelude::*;
use diesel_locks::{Error, Retention};

use crate::crash::own_server;
use crate::support::Backend;
use crate::support::mysql::Mysql;
use crate::support::threads::{Holder, result_of, spawn};

const RETENTIONS: [Retention; 2] = [Retention::Transient, Retention::Kept];

fn assert_ended_by_the_server(error: &Error) {
    let by_the_server = matches!(
        error,
        Error::LockTimeout {
            limit: None,
            source: Some(_),
            ..
        }
    );
    assert!(by_the_server, "{error:?}");
}

/// With `innodb_rollback_on_timeout`, InnoDB rolls the transaction back when `innodb_lock_wait_timeout` has passed. The method begins
/// another transaction and waits again.
#[test]
fn wait_of_its_own_transaction_goes_on_where_a_time_out_ends_it() {
    let Some(server) = own_server("MYSQL") else {
        return;
    };
    let database = Arc::new(Mysql::empty_on(&server.url).with_tables());
    let option = "SELECT @@GLOBAL.innodb_rollback_on_timeout";
    assert_eq!(Mysql::number(&mut database.connect(), option), 1);
    for retention in RETENTIONS {
        for ids in [&["a"][..], &["0", "a"]] {
            let holder = Holder::acquire(&database, "a");
            let lock = LockRequest::all(ids.iter().copied()).retention(retention);
            let (started, waits) = (Instant::now(), Duration::from_millis(2500));
            let wait = |lock: LockRequest| {
                let mut conn = database.connect();
                Mysql::set_short_lock_timeout(&mut conn);
                spawn(move || conn.with_object_lock(lock, |_| Ok::<_, Error>(())))
            };
            let forever = wait(lock.clone());
            let limited = result_of(&wait(lock.wait(Wait::AtMost(waits))));
            assert!(limited.is_err_and(|error| error.is_timeout()));
            assert!(
                started.elapsed() >= waits,
                "after the session's limit of 1 s"
            );
            holder.release();
            result_of(&forever).expect("free");
        }
    }
}

#[test]
fn wait_in_an_open_transaction_ends_with_innodb_lock_wait_timeout() {
    let database = Arc::new(Mysql::new());
    for retention in RETENTIONS {
        let holder = Holder::acquire(&database, "a");
        let mut conn = database.connect();
        Mysql::set_short_lock_timeout(&mut conn);
        let waiter = spawn(move || {
            Mysql::in_transaction(&mut conn, |conn| {
                Mysql::count_up(conn, 0);
                let lock = LockRequest::new("a").retention(retention);
                let several = LockRequest::all(["0", "a"]).retention(retention);
                let errors = [
                    conn.lock_object(&lock).expect_err("held"),
                    conn.with_object_lock(&lock, |_| Ok(())).expect_err("held"),
                    conn.lock_object(several).expect_err("one is held"),
                ];
                Ok(errors)
            })
        });
        let [plain, nested, several] = result_of(&waiter).expect("the transaction goes on");
        assert_ended_by_the_server(&plain);
        assert_ended_by_the_server(&nested);
        let Error::PartlyLocked { source, .. } = several else {
            panic!("{several:?}");
        };
        assert_ended_by_the_server(&source);
        holder.release();
    }
}

/// The transaction of the waiter has read a table that a third session wants to alter, so that the holder can't write to it.
/// InnoDB sees no cycle.
#[test]
fn deadlock_through_a_locked_table_ends_with_innodb_lock_wait_timeout() {
    let database = Arc::new(Mysql::new());
    for retention in RETENTIONS {
        let lock = LockRequest::new("a").retention(retention);
        let (write, told) = std::sync::mpsc::channel::<()>();
        let (held, is_held) = std::sync::mpsc::channel();
        let holder = {
            let (lock, mut conn) = (lock.clone(), database.connect());
            spawn(move || {
                conn.with_object_lock(lock, |conn| {
                    held.send(()).expect("the test waits for it");
                    told.recv().expect("the test says when");
                    Mysql::try_sql(conn, "UPDATE counters SET n = n + 1 WHERE id = 0")
                })
            })
        };
        result_of(&is_held);
        let mut conn = database.connect();
        Mysql::set_short_lock_timeout(&mut conn);
        let altering = database.connect();
        let (database, lock) = (Arc::clone(&database), lock.clone());
        let waiter = spawn(move || {
            Mysql::in_transaction(&mut conn, |conn| {
                Mysql::counter(conn, 1);
                let mut altering = altering;
                spawn(move || {
                    Mysql::sql(
                        &mut altering,
                        "ALTER TABLE counters COMMENT 'altered', FORCE",
                    );
                });
                database.await_waiting(1);
                write.send(()).expect("the holder waits for it");
                database.await_waiting(2);
                conn.lock_object(&lock)
            })
        });
        let error = result_of(&waiter).expect_err("a deadlock");
        assert_ended_by_the_server(&error);
        result_of(&holder).expect("the table is free");
    }
}

/// At top level the request waits until its own limit, and releases meanwhile what it has acquired: it may be part of such
/// a deadlock.
#[test]
fn long_wait_for_one_of_several_lets_others_have_the_rest() {
    let database = Arc::new(Mysql::new());
    for retention in RETENTIONS {
        let holder = Holder::acquire(&database, "b");
        let request = |ids: &[&str]| {
            let lock = LockRequest::all(ids.iter().copied()).retention(retention);
            let mut conn = database.connect();
            Mysql::set_short_lock_timeout(&mut conn);
            spawn(move || conn.with_object_lock(lock, |_| Ok::<_, Error>(())))
        };
        let both = request(&["a", "b"]);
        database.await_waiting(1);
        let first = request(&["a"]);
        result_of(&first).expect("the lock comes free");
        assert!(both.try_recv().is_err(), "the wait goes on");
        holder.release();
        result_of(&both).expect("the locks come free");
    }
}

/// With `innodb_lock_wait_timeout = 0` (MariaDB) no statement waits.
#[test]
fn waiter_pauses_where_statements_do_not_wait() {
    let database = Arc::new(Mysql::new());
    for retention in RETENTIONS {
        for wait in [Wait::Forever, Wait::AtMost(Duration::from_secs(60))] {
            for ids in [&["a"][..], &["0", "a"]] {
                let holder = Holder::acquire(&database, "a");
                let mut conn = database.connect();
                Mysql::sql(&mut conn, "SET SESSION innodb_lock_wait_timeout = 0");
                let sent = Arc::new(AtomicU32::new(0));
                let counted = Arc::clone(&sent);
                conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
                    if let InstrumentationEvent::StartQuery { query, .. } = event
                        && query.to_string().contains("FOR UPDATE")
                    {
                        counted.fetch_add(1, Ordering::SeqCst);
                    }
                });
                let lock = LockRequest::all(ids.iter().copied());
                let lock = lock.retention(retention).wait(wait);
                let started = Instant::now();
                let waiter = spawn(move || conn.with_object_lock(lock, |_| Ok::<_, Error>(())));
                let early = waiter.recv_timeout(Duration::from_millis(300));
                assert!(early.is_err(), "{early:?} though it is held");
                let (sent, millis) = (sent.load(Ordering::SeqCst), started.elapsed().as_millis());
                holder.release();
                result_of(&waiter).expect("the lock comes free");
                // Two statements for each pause of 10 ms.
                assert!(u128::from(sent) < millis / 5 + 20, "{sent} in {millis} ms");
            }
        }
    }
}
