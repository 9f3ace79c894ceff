//! SQLite.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use diesel::connection::{
    AnsiTransactionManager, InstrumentationEvent, SimpleConnection, TransactionManager,
};
use diesel::prelude::*;
use diesel::r2d2::R2D2Connection;
use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, Retention, SlotRenewer};

use crate::behaviour::application_migrations::{Step, Steps};
use crate::behaviour::slots::guards::{await_release, guarded, renewed};
use crate::behaviour::slots::renewers::{
    await_renewal, late_renewal_does_not_extend_the_lease_of_a_lost_guard,
};
use crate::behaviour::slots::slots_of;
use crate::support::Backend;
use crate::support::R2d2;
use crate::support::sqlite::Sqlite;
use crate::support::threads::{begin, commit, result_of, spawn, until};

crate::all_tests!(Sqlite);

#[test]
fn locks_work_in_memory() {
    let mut conn = SqliteConnection::establish(":memory:").expect("open");
    diesel_locks::migrate(&mut conn).expect("migrate");
    conn.with_object_lock("a", |conn| conn.lock_object("b"))
        .expect("free");
}

/// On a busy machine each statement of a transaction that has read takes as long as a wait for another writer.
#[test]
fn slow_statement_is_no_sign_of_another_writer() {
    let database = Sqlite::new();
    for wait in [
        Wait::No,
        Wait::AtMost(Duration::from_millis(200)),
        Wait::Forever,
    ] {
        let mut conn = database.stale_transaction();
        conn.set_instrumentation(|event: InstrumentationEvent<'_>| {
            if let InstrumentationEvent::StartQuery { .. } = event {
                // Twice as long as a statement waits for another writer.
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let lock = LockRequest::new("a").wait(wait);
        let error = match wait {
            Wait::No => conn.try_lock_object(&lock).expect_err("it has read"),
            _ => conn.lock_object(&lock).expect_err("it has read"),
        };
        assert!(
            matches!(error, Error::UnsuitableIsolation { .. }),
            "{error:?}"
        );
    }
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

/// On a full disk SQLite rolls back by itself: the error is that of the statement, and not that of another rollback.
#[test]
fn error_of_a_full_disk_is_returned() {
    let full = |error: Error, what: &str| {
        let text = error.to_string();
        assert!(
            text.contains("database or disk is full"),
            "{what}: {error:?}"
        );
    };
    for mode in ["WAL", "DELETE"] {
        let database = Sqlite::new();
        let conn = &mut database.connect();
        Sqlite::sql(conn, &format!("PRAGMA journal_mode = {mode}"));
        let one = Semaphore::new("one", 1);
        let mut slot = conn
            .acquire_slot(&one, one_minute(), Wait::No)
            .expect("free");
        // As if there were no room for the journal.
        Sqlite::sql(
            conn,
            "CREATE TRIGGER without_room BEFORE UPDATE ON diesel_locks_slots \
             BEGIN SELECT RAISE(ROLLBACK, 'database or disk is full'); END",
        );
        let pages = Sqlite::number(conn, "SELECT page_count FROM pragma_page_count");
        Sqlite::sql(conn, &format!("PRAGMA max_page_count = {pages}"));
        let new = Semaphore::new("n".repeat(255), 1000);
        let kept = || {
            let ids = (0..1000).map(|id| format!("{id:0255}"));
            LockRequest::all(ids).retention(Retention::Kept)
        };
        let locked = conn.with_object_lock(kept(), |_| Ok::<_, Error>(()));
        full(locked.expect_err("no room"), "a kept lock");
        let inside = conn.run_transaction(TransactionOptions::new(), |conn| {
            conn.with_object_lock(kept(), |_| Ok::<_, Error>(()))
        });
        full(inside.expect_err("no room"), "a kept lock in a transaction");
        let acquired = conn.try_acquire_slot(&new, one_minute());
        full(acquired.expect_err("no room"), "a new semaphore");
        let held = conn.with_slot(&new, Wait::No, |_| Ok::<_, Error>(()));
        full(
            held.expect_err("no room"),
            "a new semaphore of a transaction",
        );
        let renewed = conn.renew_slot(&mut slot, Duration::from_secs(60));
        full(renewed.expect_err("no room"), "a renewal");
        let released = conn.release_slot(slot.clone());
        full(released.expect_err("no room"), "a release");
        let released = conn.force_release_all(one.name());
        full(released.expect_err("no room"), "a forced release");
        assert!(!conn.is_broken());

        Sqlite::sql(
            conn,
            "PRAGMA max_page_count = 100000; DROP TRIGGER without_room",
        );
        conn.with_object_lock(kept(), |_| Ok::<_, Error>(()))
            .expect("room again");
        conn.release_slot(slot).expect("ours");
    }
}

/// A refusal needs no right to write.
#[test]
fn a_full_semaphore_refuses_while_another_writes() {
    let database = Sqlite::new();
    let mut conn = database.connect();
    let one = Semaphore::new("one", 1);
    let one_hour = || LeaseOptions::new(Duration::from_secs(3600));
    let slot = conn.acquire_slot(&one, one_hour(), Wait::No).expect("free");
    let mut writer = database.connect();
    AnsiTransactionManager::begin_transaction_sql(&mut writer, "BEGIN IMMEDIATE").expect("begin");
    let refused = conn.try_acquire_slot(&one, one_hour()).expect("an answer");
    assert_eq!(refused, None);
    assert_eq!(conn.held_slots(&slots_of(&one)).expect("rows").len(), 1);
    writer.batch_execute("COMMIT").expect("commit");
    conn.release_slot(slot).expect("ours");
}

/// A transaction that has not read yet waits for the writer, and then sees what that committed.
#[test]
fn a_deferred_transaction_that_locks_first_reads_fresh() {
    type Lock = fn(&mut SqliteConnection) -> Result<(), Error>;

    let database = Arc::new(Sqlite::new());
    let mut writer = database.connect();
    writer.set_permits("registered", 2).expect("set");
    let locks: [Lock; 3] = [
        |conn| conn.lock_object("a"),
        |conn| {
            let lease = LeaseOptions::new(Duration::from_secs(3600));
            let slot = conn.try_acquire_slot(&Semaphore::registered("registered"), lease);
            assert!(slot?.is_some());
            Ok(())
        },
        |conn| {
            let work = |_: &mut SqliteConnection| Ok::<_, Error>(());
            conn.with_slot(&Semaphore::registered("registered"), Wait::Forever, work)
        },
    ];
    for (round, lock) in (1..).zip(locks) {
        AnsiTransactionManager::begin_transaction_sql(&mut writer, "BEGIN IMMEDIATE")
            .expect("begin");
        Sqlite::sql(&mut writer, "UPDATE counters SET n = n + 1 WHERE id = 0");
        let waiter = {
            let database = Arc::clone(&database);
            spawn(move || {
                database.connect().transaction(|conn| {
                    lock(conn)?;
                    Ok::<_, Error>(Sqlite::counter(conn, 0))
                })
            })
        };
        assert!(waiter.recv_timeout(Duration::from_millis(100)).is_err());
        AnsiTransactionManager::commit_transaction(&mut writer).expect("commit");
        assert_eq!(result_of(&waiter).expect("the lock comes free"), round);
    }
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
            assert!(!conn.try_lock_object("a")?.is_acquired());
            let held = conn.lock_object(LockRequest::new("a").wait(Wait::No));
            assert!(held.expect_err("held").is_unavailable());
            let wait = Wait::AtMost(Duration::from_millis(20));
            let late = conn.lock_object(LockRequest::new("a").wait(wait));
            assert!(late.expect_err("held").is_timeout());
            Ok::<_, Error>(())
        })
        .expect("an empty transaction");
        let (started, has_begun) = channel();
        let waiter = spawn(move || {
            conn.transaction(|conn| {
                started.send(()).expect("the test waits for it");
                conn.lock_object("a")?;
                Ok::<_, Error>(Sqlite::number(conn, "SELECT n FROM notes"))
            })
        });
        has_begun.recv().expect("it begins");
        assert!(waiter.recv_timeout(Duration::from_millis(50)).is_err());
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
    assert!(!conn.try_lock_object("a").expect("an answer").is_acquired());
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

/// The statements before and after a wait for the write lock: `busy_timeout` is 0 meanwhile.
const WAIT_BEGINS: &str = "PRAGMA busy_timeout = 0x0";
const WAIT_ENDS: &str = "PRAGMA busy_timeout = 0x1388";

/// Has the connection count how often it sends this statement.
fn count(conn: &mut SqliteConnection, statement: &'static str, counted: &Arc<AtomicU32>) {
    let counted = Arc::clone(counted);
    conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
        if let InstrumentationEvent::StartQuery { query, .. } = event
            && query.to_string().contains(statement)
        {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
}

/// What waits for a slot, and whether it has sent a statement.
struct SlotWaiter<T> {
    outcome: Receiver<Result<T, Error>>,
    sent: Arc<AtomicU32>,
}

impl<T: Send + 'static> SlotWaiter<T> {
    fn spawn(
        database: &Sqlite,
        statement: &'static str,
        acquire: impl FnOnce(SqliteConnection) -> Result<T, Error> + Send + 'static,
    ) -> Self {
        let sent = Arc::default();
        let mut conn = database.connect();
        count(&mut conn, statement, &sent);
        let outcome = spawn(move || acquire(conn));
        Self { outcome, sent }
    }

    /// Over a pool of one connection.
    fn spawn_pooled(
        database: &Sqlite,
        statement: &'static str,
        acquire: impl FnOnce(SlotRenewer<R2d2<SqliteConnection>>) -> Result<T, Error> + Send + 'static,
    ) -> Self {
        let sent = Arc::default();
        let counted = Arc::clone(&sent);
        let pool = Sqlite::pool_of(&database.url(), 1, move |conn| {
            Sqlite::sql(conn, "PRAGMA busy_timeout = 5000");
            count(conn, statement, &counted);
        });
        let outcome = spawn(move || acquire(SlotRenewer::new(pool)));
        Self { outcome, sent }
    }

    /// Returns when it has sent the statement.
    fn await_sent(&self) {
        until(|| self.sent.load(Ordering::SeqCst) > 0);
    }

    fn granted(&self) -> T {
        result_of(&self.outcome).expect("the writer has ended")
    }
}

fn begin_to_write(database: &Sqlite) -> SqliteConnection {
    let mut writer = database.connect();
    AnsiTransactionManager::begin_transaction_sql(&mut writer, "BEGIN IMMEDIATE").expect("begin");
    writer
}

fn one_minute() -> LeaseOptions {
    LeaseOptions::new(Duration::from_secs(60))
}

/// A wait for the write lock ends after 5 s here, the wait for the slot does not.
#[test]
fn a_wait_for_a_slot_outlasts_a_wait_for_another_writer() {
    const TEN: Semaphore = Semaphore::from_static("ten", 10);
    const MINUTE: Wait = Wait::AtMost(Duration::from_secs(60));

    let database = Sqlite::new();
    let mut conn = database.connect();
    let first = conn.acquire_slot(&TEN, one_minute(), Wait::No);
    let mut writer = begin_to_write(&database);
    let acquire = |semaphore, wait| {
        SlotWaiter::spawn(&database, WAIT_ENDS, move |mut conn| {
            conn.acquire_slot(&semaphore, one_minute(), wait)
        })
    };
    let new = Semaphore::new("new", 1);
    let waiters = [(TEN, MINUTE), (TEN, Wait::Forever), (new, MINUTE)];
    let waiters = waiters.map(|(semaphore, wait)| acquire(semaphore, wait));
    let guard = SlotWaiter::spawn_pooled(&database, WAIT_ENDS, |renewer| {
        renewer.acquire(&TEN, one_minute(), MINUTE)
    });
    let refused = [Wait::No, Wait::AtMost(Duration::ZERO)].map(|wait| acquire(TEN, wait));
    waiters.iter().for_each(SlotWaiter::await_sent);
    guard.await_sent();
    for waiter in refused {
        let error = result_of(&waiter.outcome).expect_err("the writer goes on");
        let by_sqlite = matches!(
            error,
            Error::LockTimeout {
                source: Some(_),
                ..
            }
        );
        assert!(by_sqlite, "{error:?}");
    }
    writer.batch_execute("COMMIT").expect("commit");
    for waiter in waiters {
        conn.release_slot(waiter.granted()).expect("ours");
    }
    assert!(guard.granted().is_held());
    conn.release_slot(first.expect("free")).expect("ours");
}

/// The lease begins when the write lock is there.
#[test]
fn a_wait_for_another_writer_takes_nothing_of_the_lease() {
    const LEASE: Duration = Duration::from_secs(3);
    const TWO: Semaphore = Semaphore::from_static("two", 2);

    let database = Sqlite::new();
    let mut conn = database.connect();
    let slot = conn.acquire_slot(&TWO, one_minute(), Wait::No);
    conn.release_slot(slot.expect("free")).expect("ours");
    let mut writer = begin_to_write(&database);
    let slot = SlotWaiter::spawn(&database, WAIT_BEGINS, move |mut conn| {
        let slot = conn.acquire_slot(&TWO, LeaseOptions::new(LEASE), Wait::Forever)?;
        Ok(slot.remaining())
    });
    let guard = SlotWaiter::spawn_pooled(&database, WAIT_BEGINS, |renewer| {
        let guard = renewer.acquire(&TWO, LeaseOptions::new(LEASE), Wait::Forever)?;
        Ok(guard.is_held())
    });
    slot.await_sent();
    guard.await_sent();
    std::thread::sleep(LEASE + Duration::from_millis(500));
    writer.batch_execute("COMMIT").expect("commit");
    let remaining = slot.granted();
    assert!(!remaining.is_zero() && remaining <= LEASE, "{remaining:?}");
    assert!(guard.granted(), "the guard is lost");
}

#[test]
fn renewal_that_waits_for_another_writer_extends_no_ended_lease() {
    let database = Sqlite::new();
    let writer = RefCell::new(database.connect());
    let execute = |sql| writer.borrow_mut().batch_execute(sql).expect("no error");
    late_renewal_does_not_extend_the_lease_of_a_lost_guard::<Sqlite>(
        &mut database.connect(),
        &database.pool(2),
        || execute("BEGIN IMMEDIATE"),
        || execute("COMMIT"),
    );
}

/// A name is the same text in each encoding.
#[test]
fn guards_are_renewed_whatever_the_encoding_of_the_database() {
    let database = Sqlite::new();
    for encoding in ["UTF-8", "UTF-16le", "UTF-16be"] {
        let url = format!("{}.{encoding}", database.url());
        let mut conn = SqliteConnection::establish(&url).expect("open");
        Sqlite::sql(&mut conn, &format!("PRAGMA encoding = '{encoding}'"));
        diesel_locks::migrate(&mut conn).expect("migrate");
        drop(Sqlite::connect_to(&url));
        let is_set = format!("SELECT encoding = '{encoding}' FROM pragma_encoding");
        assert_eq!(Sqlite::number(&mut conn, &is_set), 1);
        let one = Semaphore::new("a'b\"c\\d é漢🔒", 1);
        let renewer = SlotRenewer::new(Sqlite::pool_of(&url, 2, |_| ()));
        let guard = guarded::<Sqlite>(&renewer, &one, &renewed());
        for _ in 0..2 {
            await_renewal::<Sqlite>(&mut conn, &one);
        }
        assert!(guard.is_held(), "{encoding}");
        drop(guard);
        await_release::<Sqlite>(&mut conn);
    }
}

#[test]
fn changes_that_a_trigger_suppresses_are_an_error() {
    let database = Sqlite::new();
    let mut conn = database.connect();
    let semaphore = |name: &str| Semaphore::new(name, 1);
    conn.register_semaphores([semaphore("free")])
        .expect("registered");
    for table in ["diesel_locks_slots", "diesel_locks_sequences"] {
        for change in ["INSERT", "UPDATE"] {
            let trigger = format!(
                "CREATE TRIGGER suppress_{change}_{table} BEFORE {change} ON {table} BEGIN SELECT RAISE(IGNORE); END"
            );
            Sqlite::sql(&mut conn, &trigger);
        }
    }
    for name in ["free", "new"] {
        let lease = LeaseOptions::new(Duration::from_secs(60));
        let slot = conn.try_acquire_slot(&semaphore(name), lease);
        let error = slot.expect_err("not changed");
        assert!(error.to_string().contains("diesel_locks_slots"), "{error}");
        assert!(error.is_insufficient_privilege(), "{error:?}");
    }
    let drawn = conn.run_transaction(TransactionOptions::new(), |conn| {
        conn.next_number(&Sequence::new("invoice"))
    });
    let error = drawn.expect_err("not changed");
    assert!(
        error.to_string().contains("diesel_locks_sequences"),
        "{error}"
    );
}

/// As with a library of that version: `migrate` asks the function.
#[test]
fn older_version_is_named() {
    #[diesel::declare_sql_function]
    extern "SQL" {
        fn sqlite_version() -> Text;
    }
    let database = Sqlite::empty();
    let mut conn = database.connect();
    sqlite_version_utils::register_impl(&conn, || "3.37.2".to_owned()).expect("replaced");
    let error = diesel_locks::migrate(&mut conn).expect_err("too old");
    assert!(
        matches!(&error, Error::UnsuitableDatabase { found, .. } if found == "SQLite 3.37.2"),
        "{error:?}"
    );
    assert!(error.to_string().contains("bundled"), "{error}");
    sqlite_version_utils::register_impl(&conn, || "3.38.0".to_owned()).expect("replaced");
    diesel_locks::migrate(&mut conn).expect("new enough");
}

/// Where only `busy_timeout` is set, five of 900 connections fail.
#[test]
fn connections_that_open_a_new_file_at_once_are_prepared() {
    for _ in 0..150 {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("new.sqlite3").display().to_string();
        let together = Arc::new(std::sync::Barrier::new(6));
        let opened: Vec<_> = (0..6)
            .map(|_| {
                let (path, together) = (path.clone(), Arc::clone(&together));
                spawn(move || {
                    let mut conn = SqliteConnection::establish(&path).expect("open");
                    together.wait();
                    diesel_locks::operation::sqlite::prepare(&mut conn)
                })
            })
            .collect();
        for prepared in &opened {
            result_of(prepared).expect("WAL mode");
        }
    }
}

/// One in a transaction does not. The statements of the other wait for writers, whatever the connection's own limit.
#[test]
fn migration_outside_of_a_transaction_locks_the_file_beside_the_database() {
    let database = Sqlite::new();
    let file = format!("{}-migrate", database.url());
    let mut lock = SqliteConnection::establish(&file).expect("a file");
    Sqlite::sql(&mut lock, "BEGIN EXCLUSIVE");
    let (asks, has_asked) = channel();
    let is_free = Arc::new(AtomicBool::new(false));
    let freed = Arc::clone(&is_free);
    let mut conn = database.connect();
    conn.set_instrumentation(move |event: InstrumentationEvent<'_>| match event {
        InstrumentationEvent::FinishQuery { query, .. }
            if query.to_string().contains("pragma_database_list") =>
        {
            asks.send(()).expect("a test");
        }
        InstrumentationEvent::StartQuery { query, .. } => {
            let is_migration = query.to_string().contains("pragma_busy_timeout");
            assert!(!is_migration || freed.load(Ordering::SeqCst));
        }
        _ => {}
    });
    let outside = spawn(move || {
        let sql = "CREATE TABLE waits AS SELECT timeout FROM pragma_busy_timeout";
        let outside = Steps(vec![Step("1_outside", sql, false)]);
        diesel_locks::run_migrations(&mut conn, outside).map(|ran| (ran, conn))
    });
    result_of(&has_asked);
    let mut other = database.connect();
    let inside = Steps(vec![Step("2_inside", "CREATE TABLE inside (id)", true)]);
    let ran = diesel_locks::run_migrations(&mut other, inside).expect("the database is free");
    assert_eq!(ran, ["2"]);
    is_free.store(true, Ordering::SeqCst);
    drop(lock);
    let (ran, mut conn) = result_of(&outside).expect("free");
    assert_eq!(ran, ["1"]);
    assert_eq!(
        Sqlite::number(&mut conn, "SELECT timeout FROM waits"),
        60_000
    );
    let after = Sqlite::number(&mut conn, "SELECT timeout FROM pragma_busy_timeout");
    assert_eq!(after, 5000);
}
