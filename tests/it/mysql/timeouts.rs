//! Waits that end in time, and statements that a time-out has ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::connection::{
    AnsiTransactionManager, InstrumentationEvent, SimpleConnection, TransactionManager,
};
use diesel::prelude::*;
use diesel_locks::prelude::*;
use diesel_locks::{Error, Retention, RetryPolicy};

use crate::behaviour;
use crate::support::Backend;
use crate::support::mysql::Mysql;
use crate::support::threads::{Holder, LONG, LONGEST_RETRIES, begin, result_of, spawn};

/// Another session has locked the table, which is not a row's lock.
#[test]
fn waits_and_tries_end_while_the_table_is_locked() {
    for hold in [
        "LOCK TABLES diesel_locks_objects WRITE",
        "FLUSH TABLES diesel_locks_objects WITH READ LOCK",
    ] {
        let all = |ids| LockRequest::all((0..ids).map(|id| format!("a {id}")));
        waits_and_tries_end(hold, &all(1));
        waits_and_tries_end(hold, &all(1).retention(Retention::Kept));
        // More than one message locks.
        waits_and_tries_end(hold, &all(101));
        waits_and_tries_end(hold, &LockRequest::shared("a"));
    }
}

/// One that holds a lock does not look at the marks.
#[test]
fn readers_end_while_the_table_of_marks_is_locked() {
    let lock = "LOCK TABLES diesel_locks_wanted WRITE";
    for warm in [false, true] {
        waits_and_tries_end_in(lock, &LockRequest::shared("a"), (warm, false));
    }
}

fn waits_and_tries_end(hold: &str, lock: &LockRequest) {
    for kind in [(false, false), (true, false), (true, true)] {
        waits_and_tries_end_in(hold, lock, kind);
    }
}

fn waits_and_tries_end_in(hold: &str, lock: &LockRequest, kind: (bool, bool)) {
    let (body, set_up) = (
        behaviour::locked_tables::waits_and_tries_end::<Mysql>,
        Mysql::set_session_limits,
    );
    body([hold, "UNLOCK TABLES"], lock, kind, set_up);
}

/// Another session inserts the row after this one has found none. The INSERT would wait for its transaction until
/// `innodb_lock_wait_timeout`.
#[test]
fn limited_wait_ends_if_another_session_inserts_the_row_first() {
    for retention in [Retention::Transient, Retention::Kept] {
        let database = Mysql::new();
        let mut conn = database.connect();
        Mysql::sql(&mut conn, "SET SESSION innodb_lock_wait_timeout = 10");
        let limits = Mysql::session_limits(&mut conn);
        let mut other = database.connect();
        let mut is_inserted = false;
        conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
            if let InstrumentationEvent::StartQuery { query, .. } = event
                && query
                    .to_string()
                    .contains("INSERT INTO `diesel_locks_objects`")
                && !is_inserted
            {
                begin(&mut other);
                let insert = "INSERT INTO diesel_locks_objects (id, kept) VALUES ('a', TRUE)";
                Mysql::sql(&mut other, insert);
                is_inserted = true;
            }
        });
        let wait = Duration::from_secs(3);
        let started = Instant::now();
        let locked = Mysql::in_transaction(&mut conn, |conn| {
            conn.lock_object(LockRequest::new("a").retention(retention).wait(wait))
        });
        let error = locked.expect_err("another session has inserted it");
        let took = started.elapsed();
        assert!(error.is_timeout(), "{error:?}");
        assert!(wait <= took && took < wait * 2, "{took:?}");
        assert_eq!(Mysql::session_limits(&mut conn), limits);
    }
}

#[test]
fn writer_of_a_pool_ends_while_marks_are_locked() {
    let database = Arc::new(Mysql::new());
    let mut holder = database.connect();
    // Not for a reader: it has read the table in its transaction.
    let (writer, reader) = (LockRequest::new("a"), LockRequest::shared("a"));
    for (held, hold, end) in [
        (
            &writer,
            "LOCK TABLES diesel_locks_wanted WRITE",
            "UNLOCK TABLES",
        ),
        (
            &writer,
            "FLUSH TABLES diesel_locks_wanted WITH READ LOCK",
            "UNLOCK TABLES",
        ),
        (
            &reader,
            "REPLACE INTO diesel_locks_wanted VALUES ('a', 0); BEGIN; \
             SELECT id FROM diesel_locks_wanted WHERE id = 'a' FOR UPDATE",
            "ROLLBACK",
        ),
    ] {
        behaviour::locked_tables::writer_of_a_pool_ends(&database, held.clone(), |locked| {
            let statement = if locked { hold } else { end };
            holder.batch_execute(statement).expect(statement);
        });
    }
}

#[test]
fn long_waits_for_slots_end_while_their_table_is_locked() {
    let database = Mysql::new();
    let (mut holder, lock) = (database.connect(), "LOCK TABLES diesel_locks_slots WRITE");
    behaviour::locked_tables::long_slot_waits_end(&database, |locked| {
        let statement = if locked { lock } else { "UNLOCK TABLES" };
        holder.batch_execute(statement).expect(statement);
    });
}

#[test]
fn node_that_cannot_look_at_the_slot_does_not_try_to_acquire_it() {
    let database = Mysql::new();
    let (mut holder, lock) = (database.connect(), "LOCK TABLES diesel_locks_slots WRITE");
    let test =
        behaviour::timer_grants::node_that_cannot_look_at_the_slot_does_not_try_to_acquire_it;
    test(&database, |locked| {
        let statement = if locked { lock } else { "UNLOCK TABLES" };
        holder.batch_execute(statement).expect(statement);
    });
}

#[test]
fn waits_and_tries_for_slots_end_while_their_tables_are_locked() {
    let database = Arc::new(Mysql::new());
    let limit = Duration::from_millis(300);
    let lease = || LeaseOptions::new(Duration::from_secs(60));
    for hold in [
        "LOCK TABLES diesel_locks_slots WRITE",
        "FLUSH TABLES diesel_locks_slots WITH READ LOCK",
        "LOCK TABLES diesel_locks_slots WRITE, diesel_locks_fences WRITE",
        "FLUSH TABLES diesel_locks_slots, diesel_locks_fences WITH READ LOCK",
    ] {
        // Outside of a transaction some have no rows yet.
        for (inside, permits, registered, warm) in [
            (false, 2, true, true),
            (false, 200, true, false),
            (false, 2, false, false),
            (true, 200, true, true),
        ] {
            let name = format!("{permits} {registered}");
            let semaphore = Semaphore::new(&name, permits);
            let mut conn = database.connect();
            if registered {
                conn.register_semaphores([&semaphore]).expect("registered");
                if warm {
                    let slot = conn.try_acquire_slot(&semaphore, lease());
                    conn.release_slot(slot.expect("an answer").expect("free"))
                        .expect("ours");
                }
            }
            let mut holder = database.connect();
            // When it returns, the tables are locked.
            holder.batch_execute(hold).expect(hold);
            let waiter = spawn(move || {
                let ended = behaviour::locked_tables::slot_tries_and_waits_end::<Mysql>(
                    &mut conn, &semaphore, limit, inside,
                );
                (conn, ended)
            });
            let (mut conn, ended) = result_of(&waiter);
            println!("{ended:?}: {hold}, {inside}, {permits}, {registered}, {warm}");
            holder.batch_execute("UNLOCK TABLES").expect("unlock");
            let semaphore = Semaphore::new(&name, permits);
            let slot = conn.try_acquire_slot(&semaphore, lease());
            conn.release_slot(slot.expect("an answer").expect("free"))
                .expect("ours");
            if !registered {
                conn.purge_slots(Duration::ZERO).expect("purged");
            }
        }
    }
}

#[test]
fn tries_and_waits_end_while_the_table_of_permits_is_locked() {
    let database = Arc::new(Mysql::new());
    for inside in [false, true] {
        let semaphore = Semaphore::registered("tenant");
        let mut conn = database.connect();
        conn.set_permits("tenant", 2).expect("set");
        let mut holder = database.connect();
        let lock = "LOCK TABLES diesel_locks_semaphores WRITE";
        holder.batch_execute(lock).expect(lock);
        let waiter = spawn(move || {
            let limit = Duration::from_millis(300);
            behaviour::locked_tables::slot_tries_and_waits_end::<Mysql>(
                &mut conn, &semaphore, limit, inside,
            );
        });
        result_of(&waiter);
        holder.batch_execute("UNLOCK TABLES").expect("unlock");
    }
}

/// On MySQL no statement has a limit in milliseconds for the locks of tables: while a lock on a table is waited for, requests
/// take as long as `lock_wait_timeout`.
fn has_limits_for_tables(database: &Mysql) -> bool {
    Mysql::number(&mut database.connect(), "VERSION() LIKE '%MariaDB%'") == 1
}

/// The other session waits for the table behind a reader.
#[test]
fn waits_and_tries_end_while_a_lock_on_the_table_is_waited_for() {
    let database = Arc::new(Mysql::new());
    if !has_limits_for_tables(&database) {
        return;
    }
    let limit = Duration::from_millis(300);
    for retention in [Retention::Transient, Retention::Kept] {
        for inside in [false, true] {
            let lock = LockRequest::new("a")
                .retention(retention)
                .wait(Wait::AtMost(limit));
            let (conn, mut reader, mut other) =
                (database.connect(), database.connect(), database.connect());
            let read = "BEGIN; SELECT COUNT(*) FROM diesel_locks_objects";
            reader.batch_execute(read).expect(read);
            let other = spawn(move || {
                let alter = "ALTER TABLE diesel_locks_objects COMMENT 'altered'";
                other.batch_execute(alter).expect(alter);
            });
            database.await_waiting(1);
            behaviour::locked_tables::lock_waits_and_tries_end::<Mysql>(conn, &lock, limit, inside);
            reader.batch_execute("ROLLBACK").expect("ROLLBACK");
            result_of(&other);
        }
    }
}

fn slot_requests_end_whenever_it_is_locked(table: &'static str, lock: &'static str) {
    if !has_limits_for_tables(&Mysql::new()) {
        return;
    }
    behaviour::locked_tables::slot_requests_end_whenever_a_table_is_locked::<Mysql>(
        table,
        lock,
        "UNLOCK TABLES; DO RELEASE_LOCK(CONCAT('locked in ', DATABASE()))",
        "(SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() \
         AND state = 'Waiting for table metadata lock' AND info LIKE 'LOCK TABLES%') \
         + (IS_USED_LOCK(CONCAT('locked in ', DATABASE())) IS NOT NULL)",
    );
}

#[test]
fn slot_requests_end_whenever_the_slots_are_locked() {
    slot_requests_end_whenever_it_is_locked(
        "diesel_locks_slots",
        "LOCK TABLES diesel_locks_slots WRITE; DO GET_LOCK(CONCAT('locked in ', DATABASE()), 0)",
    );
}

#[test]
fn slot_requests_end_whenever_the_fences_are_locked() {
    slot_requests_end_whenever_it_is_locked(
        "diesel_locks_fences",
        "LOCK TABLES diesel_locks_fences WRITE; DO GET_LOCK(CONCAT('locked in ', DATABASE()), 0)",
    );
}

#[test]
fn waiters_in_a_queue_outlast_the_limit_of_idle_sessions() {
    behaviour::idle_sessions::waiters_in_a_queue_outlast_the_limit_of_idle_sessions::<Mysql>(
        "SET SESSION wait_timeout = 12",
        "SELECT CONNECTION_ID()",
        "SELECT COUNT(*) FROM /*!80000 performance_schema.threads WHERE processlist_id = *//*M!100100 \
         information_schema.processlist WHERE id = */",
    );
}

#[test]
fn server_timeout_ends_an_idle_transaction() {
    behaviour::idle_sessions::server_timeout_ends_an_idle_transaction::<Mysql>(
        "SET SESSION /*!80000 wait_timeout *//*M!100100 idle_transaction_timeout */ = 1",
    );
}

/// `innodb_lock_wait_timeout` is not the end of a wait without limit.
#[test]
fn unlimited_wait_outlasts_innodb_lock_wait_timeout() {
    wait_outlasts_innodb_lock_wait_timeout(&Arc::new(Mysql::new()));
}

fn wait_outlasts_innodb_lock_wait_timeout(database: &Arc<Mysql>) {
    for retention in [Retention::Transient, Retention::Kept] {
        let lock = LockRequest::new("a").retention(retention);
        let holder = Holder::acquire(database, lock.clone());
        let waiter = {
            let database = Arc::clone(database);
            spawn(move || {
                let mut conn = database.connect();
                Mysql::sql(&mut conn, "SET SESSION innodb_lock_wait_timeout = 1");
                let started = Instant::now();
                conn.with_object_lock(lock, |_| Ok::<_, Error>(started.elapsed()))
            })
        };
        database.await_waiting(1);
        // Three times as long, by the waiter's own clock below.
        std::thread::sleep(Duration::from_millis(3100));
        holder.release();
        let took = result_of(&waiter).expect("the lock comes free");
        assert!(took > Duration::from_secs(3), "{took:?}");
    }
}

/// A purge reads all rows first, and a limit of the session may end that statement. If it were sent again, it would
/// wait forever.
#[test]
fn purge_does_not_hang_after_a_statement_timeout() {
    let database = Mysql::new();
    let mut conn = database.connect();
    let many = Semaphore::new("many", 20_000);
    conn.register_semaphores([&many]).expect("registered");
    let limit = |millis: u32| {
        format!(
            "SET SESSION /*!80000 max_execution_time = {millis} */\
             /*M!100100 max_statement_time = {millis} / 1000 */"
        )
    };
    // Prepares the statement.
    assert_eq!(conn.purge_slots(Duration::ZERO).expect("purged"), 0);
    conn.batch_execute(&limit(1)).expect("a limit");
    let ended = (0..1000).find_map(|_| conn.purge_slots(Duration::ZERO).err());
    let error = ended.expect("too much for a millisecond");
    assert!(error.is_timeout(), "{error:?}");
    conn.batch_execute(&limit(0)).expect("no limit");
    let again = spawn(move || conn.purge_slots(Duration::ZERO));
    assert_eq!(result_of(&again).expect("purged"), 0);
}

/// The closure's own statement goes through the rows, and is cached by Diesel: sent again after an error in
/// place of its rows, it would wait for ever.
#[test]
fn retried_transaction_does_not_hang_after_a_failed_statement() {
    diesel::table! {
        counters (id) {
            id -> Integer,
            n -> BigInt,
        }
    }

    let database = Arc::new(Mysql::new());
    let mut holder = database.connect();
    AnsiTransactionManager::begin_transaction(&mut holder).expect("begin");
    Mysql::count_up(&mut holder, 5);
    let (third, reached) = std::sync::mpsc::channel();
    let theirs = {
        let database = Arc::clone(&database);
        spawn(move || {
            let mut conn = database.connect();
            Mysql::set_short_lock_timeout(&mut conn);
            let retry = RetryPolicy::max_attempts(u32::MAX)
                .max_elapsed(LONGEST_RETRIES)
                .retry_lock_timeouts();
            let transaction = TransactionOptions::new().retry(retry);
            let mut attempts = 0;
            conn.run_transaction(transaction, |conn| {
                attempts += 1;
                if attempts == 3 {
                    third.send(()).expect("the test waits for it");
                }
                counters::table
                    .filter(counters::n.ge(0))
                    .order(counters::id)
                    .select(counters::n)
                    .for_update()
                    .load::<i64>(conn)
            })
        })
    };
    let third = reached.recv_timeout(LONG);
    third.expect("the second attempt comes back");
    AnsiTransactionManager::commit_transaction(&mut holder).expect("commit");
    let rows = result_of(&theirs).expect("in the end");
    assert_eq!((rows.len(), rows[5]), (10, 1));
}

/// With an index that is not unique InnoDB looks for the object's row after it has announced the columns, so that an
/// error comes in place of the row, as that of an abort does on Galera.
fn with_rows_found_late() -> Arc<Mysql> {
    let database = Mysql::new();
    let mut conn = database.connect();
    let kept = LockRequest::new("a").retention(Retention::Kept);
    conn.with_object_lock(kept, |_| Ok::<_, Error>(()))
        .expect("free");
    conn.batch_execute(
        "ALTER TABLE diesel_locks_objects DROP PRIMARY KEY; \
         CREATE INDEX by_id ON diesel_locks_objects (id)",
    )
    .expect("another index");
    Arc::new(database)
}

#[test]
fn wait_without_limit_outlasts_errors_in_place_of_the_row() {
    wait_outlasts_innodb_lock_wait_timeout(&with_rows_found_late());
}

#[test]
fn connection_is_usable_after_errors_in_place_of_rows() {
    let database = with_rows_found_late();
    for retention in [Retention::Transient, Retention::Kept] {
        let lock = LockRequest::new("a").retention(retention);
        let holder = Holder::acquire(&database, lock.clone());
        let mut conn = database.connect();
        let session = Mysql::number(&mut conn, "SELECT CONNECTION_ID()");
        let ends = {
            let lock = lock.clone();
            spawn(move || {
                let killed = conn.with_object_lock(&lock, |_| Ok::<_, Error>(()));
                // The time's end comes in place of the row too, twice.
                let wait = Wait::AtMost(Duration::from_millis(100));
                let in_time = lock.wait(wait);
                let ended =
                    [(); 2].map(|()| conn.with_object_lock(&in_time, |_| Ok::<_, Error>(())));
                (conn, killed, ended)
            })
        };
        database.await_waiting(1);
        Mysql::sql(&mut database.connect(), &format!("KILL QUERY {session}"));
        let (mut conn, killed, ended) = result_of(&ends);
        assert!(matches!(killed, Err(Error::Database(_))), "{killed:?}");
        for ended in ended {
            assert!(ended.expect_err("held").is_timeout());
        }
        holder.release();
        let after = spawn(move || conn.with_object_lock(&lock, |_| Ok::<_, Error>(())));
        result_of(&after).expect("free");
    }
}

/// With `innodb_rollback_on_timeout`, MariaDB ends the transaction of a statement with NOWAIT that does not get its lock.
#[test]
fn transaction_that_ended_with_a_refused_try_is_not_continued() {
    let database = Arc::new(Mysql::new());
    let holder = Holder::acquire(&database, "held");
    let mut conn = database.connect();
    Mysql::sql(
        &mut conn,
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    );
    let option = "SELECT @@GLOBAL.innodb_rollback_on_timeout = 1 /*!80000 AND FALSE */";
    let ends = Mysql::number(&mut conn, option) == 1;
    for (lock, nested) in [
        ("held", false),
        ("held", true),
        ("free", false),
        ("free", true),
    ] {
        let before = Mysql::counter(&mut conn, 1);
        let tried = conn.transaction(|conn| {
            Mysql::count_up(conn, 1);
            let acquired = if nested {
                let tried = conn.try_with_object_lock(lock, |_| Ok::<_, Error>(()));
                tried?.is_some()
            } else {
                conn.try_lock_object(lock)?.is_acquired()
            };
            Mysql::count_up(conn, 1);
            Ok::<_, Error>(acquired)
        });
        let expected = if ends && lock == "held" { 0 } else { 2 };
        assert_eq!(Mysql::counter(&mut conn, 1) - before, expected, "{tried:?}");
        match tried {
            Ok(acquired) => assert_eq!(acquired, lock == "free"),
            Err(error) => assert!(error.is_transaction_aborted() && expected == 0, "{error:?}"),
        }
    }
    holder.release();
}
