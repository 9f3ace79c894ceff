//! SQLite.

use std::sync::Arc;

use diesel::connection::{AnsiTransactionManager, SimpleConnection};
use diesel::prelude::*;
use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt};

use crate::support::Backend;
use crate::support::sqlite::Sqlite;
use crate::support::threads::{begin, commit, result_of, spawn};

crate::all_tests!(Sqlite);

#[test]
fn locks_work_in_memory() {
    let mut conn = SqliteConnection::establish(":memory:").expect("open");
    diesel_locks::migrate(&mut conn).expect("migrate");
    conn.with_object_lock("a", |conn| conn.lock_object("b"))
        .expect("free");
}

#[test]
fn held_object_locks_are_not_shown() {
    let database = Sqlite::new();
    let mut conn = database.connect();
    let error = conn.held_object_locks(10).expect_err("SQLite");
    assert!(
        matches!(
            error,
            Error::LocksNotShown {
                engine: "SQLite",
                ..
            }
        ),
        "{error:?}"
    );
    conn.with_object_lock("a", |_| {
        let error = database
            .connect()
            .held_object_locks(10)
            .expect_err("SQLite");
        assert!(
            error.to_string().contains("SQLite does not show"),
            "{error}"
        );
        Ok::<_, Error>(())
    })
    .expect("free");
    let error = conn.held_object_locks(0).expect_err("the limit");
    assert!(
        matches!(error, Error::InvalidLimit { requested: 0 }),
        "{error:?}"
    );
}

/// Of which Diesel does not know.
#[test]
fn transaction_begun_as_text_is_rejected_and_stays_open() {
    let database = Sqlite::new();
    let mut conn = database.connect();
    let read_only = TransactionOptions::new().read_only();
    for transaction in [TransactionOptions::new(), read_only] {
        conn.batch_execute("BEGIN").expect("begin");
        let before = Sqlite::counter(&mut conn, 0);
        Sqlite::count_up(&mut conn, 0);
        conn.run_transaction(transaction, |_| Ok::<_, Error>(()))
            .expect_err("in a transaction");
        conn.with_object_lock("a", |_| Ok::<_, Error>(()))
            .expect_err("in a transaction");
        conn.batch_execute("COMMIT").expect("it is still open");
        assert_eq!(Sqlite::counter(&mut database.connect(), 0), before + 1);
    }
}

/// A refusal needs no right to write.
#[test]
fn a_full_semaphore_refuses_while_another_writes() {
    let database = Sqlite::new();
    let mut conn = database.connect();
    let one = Semaphore::new("one", 1);
    let one_hour = || LeaseOptions::new(std::time::Duration::from_secs(3600));
    let slot = conn.acquire_slot(&one, one_hour(), Wait::No).expect("free");
    let mut writer = database.connect();
    AnsiTransactionManager::begin_transaction_sql(&mut writer, "BEGIN IMMEDIATE").expect("begin");
    let refused = conn.try_acquire_slot(&one, one_hour()).expect("an answer");
    assert_eq!(refused, None);
    assert_eq!(conn.held_slots(&one).expect("rows").len(), 1);
    writer.batch_execute("COMMIT").expect("commit");
    conn.release_slot(slot).expect("ours");
}

/// A transaction that has not read yet waits for the writer, and then sees what that committed.
#[test]
fn a_deferred_transaction_that_locks_first_reads_fresh() {
    let database = Arc::new(Sqlite::new());
    let mut writer = database.connect();
    AnsiTransactionManager::begin_transaction_sql(&mut writer, "BEGIN IMMEDIATE").expect("begin");
    Sqlite::sql(&mut writer, "UPDATE counters SET n = 7 WHERE id = 0");
    let waiter = {
        let database = Arc::clone(&database);
        spawn(move || {
            database.connect().transaction(|conn| {
                conn.lock_object("a")?;
                Ok::<_, Error>(Sqlite::counter(conn, 0))
            })
        })
    };
    assert!(
        waiter
            .recv_timeout(std::time::Duration::from_millis(100))
            .is_err()
    );
    writer.batch_execute("COMMIT").expect("commit");
    assert_eq!(result_of(&waiter).expect("the lock comes free"), 7);
}

/// Connections that share a cache get another error, at once and without the busy handler.
#[test]
fn a_deferred_transaction_waits_for_the_writer_of_a_shared_cache() {
    let database = Sqlite::new();
    let in_memory = format!(
        "file:{}?mode=memory&cache=shared",
        database.url().replace('/', "_")
    );
    let in_a_file = format!("file:{}?cache=shared", database.url());
    for url in [in_memory, in_a_file] {
        let mut writer = SqliteConnection::establish(&url).expect("open");
        diesel_locks::migrate(&mut writer).expect("migrate");
        writer
            .batch_execute("CREATE TABLE notes (n INTEGER); INSERT INTO notes VALUES (0)")
            .expect("a table");
        AnsiTransactionManager::begin_transaction_sql(&mut writer, "BEGIN IMMEDIATE")
            .expect("begin");
        writer
            .batch_execute("UPDATE notes SET n = 7")
            .expect("update");
        let mut conn = SqliteConnection::establish(&url).expect("open");
        conn.transaction(|conn| {
            assert!(!conn.try_lock_object("a")?);
            let held = conn.lock_object(LockRequest::new("a").wait(Wait::No));
            assert!(held.expect_err("held").is_unavailable());
            let wait = Wait::AtMost(std::time::Duration::from_millis(20));
            let late = conn.lock_object(LockRequest::new("a").wait(wait));
            assert!(late.expect_err("held").is_timeout());
            Ok::<_, Error>(())
        })
        .expect("an empty transaction");
        let (started, has_begun) = std::sync::mpsc::channel();
        let waiter = spawn(move || {
            conn.transaction(|conn| {
                started.send(()).expect("the test waits for it");
                conn.lock_object("a")?;
                Ok::<_, Error>(Sqlite::number(conn, "SELECT n FROM notes"))
            })
        });
        has_begun.recv().expect("it begins");
        assert!(
            waiter
                .recv_timeout(std::time::Duration::from_millis(50))
                .is_err()
        );
        writer.batch_execute("COMMIT").expect("commit");
        assert_eq!(result_of(&waiter).expect("the lock comes free"), 7);
    }
}

/// What it has read no other of them can change.
#[test]
fn a_transaction_that_has_read_waits_for_the_writer_of_a_shared_cache() {
    let database = Sqlite::new();
    let url = format!("file:{}?cache=shared", database.url());
    let mut conn = SqliteConnection::establish(&url).expect("open");
    let mut writer = SqliteConnection::establish(&url).expect("open");
    begin(&mut conn);
    assert_eq!(Sqlite::counter(&mut conn, 0), 0);
    AnsiTransactionManager::begin_transaction_sql(&mut writer, "BEGIN IMMEDIATE").expect("begin");
    writer
        .batch_execute("UPDATE counters SET n = 7")
        .expect_err("it was read");
    writer
        .batch_execute("INSERT INTO drawn VALUES (1, 1)")
        .expect("nobody has read it");
    assert!(!conn.try_lock_object("a").expect("an answer"));
    writer.batch_execute("COMMIT").expect("commit");
    conn.lock_object("a").expect("free");
    Sqlite::count_up(&mut conn, 0);
    commit(&mut conn);
    assert_eq!(Sqlite::counter(&mut writer, 0), 1);
}

#[test]
fn a_rollback_journal_works_too() {
    let database = Arc::new(Sqlite::new());
    Sqlite::sql(&mut database.connect(), "PRAGMA journal_mode = DELETE");
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let database = Arc::clone(&database);
            spawn(move || {
                let mut conn = SqliteConnection::establish(&database.url()).expect("open");
                // COMMIT waits for readers there.
                Sqlite::sql(&mut conn, "PRAGMA busy_timeout = 5000");
                for _ in 0..20 {
                    conn.with_object_lock("a", |conn| {
                        Sqlite::count_up(conn, 0);
                        Ok::<_, Error>(())
                    })
                    .expect("no error reaches the caller");
                }
            })
        })
        .collect();
    for thread in threads {
        result_of(&thread);
    }
    assert_eq!(Sqlite::counter(&mut database.connect(), 0), 80);
}

/// What an application has in its hand: a connection, a pooled one, one of a type that is a parameter.
#[test]
fn migrate_takes_a_connection_a_pooled_one_and_a_generic_one() {
    fn generic<C: ObjectLockExt>(conn: &mut C) -> Result<Vec<String>, Error> {
        diesel_locks::migrate(conn)
    }

    let mut conn = SqliteConnection::establish(":memory:").expect("SQLite");
    assert_eq!(diesel_locks::migrate(&mut conn).expect("migrate").len(), 3);
    assert_eq!(generic(&mut conn).expect("migrate").len(), 0);
    let manager = diesel::r2d2::ConnectionManager::<SqliteConnection>::new(":memory:");
    let pool = diesel::r2d2::Pool::builder().max_size(1).build(manager);
    let mut pooled = pool.expect("a pool").get().expect("a connection");
    assert_eq!(
        diesel_locks::migrate(&mut pooled).expect("migrate").len(),
        3
    );
    assert_eq!(generic(&mut *pooled).expect("migrate").len(), 0);
}
