//! MySQL or MariaDB, whichever `MYSQL_DATABASE_URL` names.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use diesel::connection::{AnsiTransactionManager, SimpleConnection, TransactionManager};
use diesel::prelude::*;
use diesel::r2d2::R2D2Connection;
use diesel_locks::Error;
use diesel_locks::prelude::*;

use crate::behaviour;
use crate::support::Backend;
use crate::support::backend::MIGRATIONS;
use crate::support::failing_proxy::{connect_failing, connect_killing};
use crate::support::mysql::{Mysql, words};
use crate::support::proxy::{
    CountingProxy, round_trips_of, round_trips_of_a_sequence, round_trips_of_a_slot,
    round_trips_of_a_transaction,
};
use crate::support::threads::{Holder, result_of, spawn};

crate::all_tests!(Mysql);
crate::many_writers_tests!(Mysql);

fn read(conn: &mut MysqlConnection) -> QueryResult<()> {
    // Cached, other than a query made of text.
    diesel_locks::schema::mysql::diesel_locks_objects::table
        .count()
        .execute(conn)?;
    Ok(())
}

/// Another session has locked the table, which is not a row's lock.
#[test]
fn waits_and_tries_end_while_the_table_is_locked() {
    let database = Arc::new(Mysql::new());
    let limit = Duration::from_millis(300);
    for hold in [
        "LOCK TABLES diesel_locks_objects WRITE",
        "FLUSH TABLES diesel_locks_objects WITH READ LOCK",
    ] {
        for (ids, retention) in [
            (1, Retention::Transient),
            (1, Retention::Kept),
            // More than one message locks.
            (101, Retention::Transient),
        ] {
            for (warm, inside) in [(false, false), (true, false), (true, true)] {
                let lock = LockRequest::all((0..ids).map(|id| format!("a {id}")))
                    .retention(retention)
                    .wait(Wait::AtMost(limit));
                let mut conn = database.connect();
                if warm {
                    conn.with_object_lock(&lock, |_| Ok::<_, Error>(()))
                        .expect("free");
                }
                let mut holder = database.connect();
                // When it returns, the table is locked.
                holder.batch_execute(hold).expect(hold);
                let waiter = {
                    let lock = lock.clone();
                    spawn(move || {
                        Mysql::set_session_limits(&mut conn);
                        let before = Mysql::session_limits(&mut conn);
                        let started = Instant::now();
                        let result = if inside {
                            Mysql::in_transaction(&mut conn, |conn| conn.lock_object(&lock))
                        } else {
                            conn.with_object_lock(&lock, |_| Ok::<_, Error>(()))
                        };
                        let took = started.elapsed();
                        assert_eq!(Mysql::session_limits(&mut conn), before);
                        (conn, result, took)
                    })
                };
                let (mut conn, result, took) = result_of(&waiter);
                let wanted = lock.clone();
                let attempt = spawn(move || {
                    let result = if inside {
                        let lock = |conn: &mut MysqlConnection| conn.try_lock_object(&wanted);
                        Mysql::in_transaction(&mut conn, lock)
                    } else {
                        let tried = conn.try_with_object_lock(&wanted, |_| Ok::<_, Error>(()));
                        tried.map(|done| done.is_some())
                    };
                    (conn, result)
                });
                let (mut conn, tried) = result_of(&attempt);
                assert!(!tried.expect("an answer"));
                let error = result.expect_err("the table is locked");
                assert!(
                    error.is_timeout(),
                    "{hold}, {ids}, {retention:?}: {error:?}"
                );
                assert!(took >= limit, "{took:?} is too early");
                // One who waits for ever is noticed by `result_of`; this is one second more than is promised.
                let most = limit + Duration::from_secs(4);
                assert!(
                    took <= most,
                    "{took:?} is too late: {hold}, {ids}, {retention:?}"
                );
                holder.batch_execute("UNLOCK TABLES").expect("unlock");
                conn.with_object_lock(&lock, |_| Ok::<_, Error>(()))
                    .expect("free again");
            }
        }
    }
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
                let ended = behaviour::waiting::slot_tries_and_waits_end_while_a_table_is_locked::<
                    Mysql,
                >(&mut conn, &semaphore, limit, inside);
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

/// `KILL QUERY` ends the statement that sets a limit back, or that releases a named lock, once or always: the
/// session is as before and holds nothing, or a pool discards the connection.
#[test]
fn a_killed_statement_leaves_neither_limit_nor_named_lock() {
    let database = Mysql::new();
    let a = |retention| {
        LockRequest::new("a")
            .retention(retention)
            .wait(Wait::AtMost(Duration::from_secs(5)))
    };
    let locked = |conn: &mut MysqlConnection, lock: &LockRequest| {
        let transaction = TransactionOptions::new().isolation(IsolationLevel::ReadCommitted);
        conn.run_transaction(transaction, |conn| conn.lock_object(lock))
    };
    for (text, lock) in [
        ("@diesel_locks_limit = NULL", a(Retention::Kept)),
        ("@diesel_locks_limit = NULL", a(Retention::Transient)),
        ("DO RELEASE_LOCK", a(Retention::Transient)),
    ] {
        for refusals in [0, 1, 5, usize::MAX] {
            let left = Arc::new(AtomicUsize::new(0));
            let mut conn = connect_failing(&database, text, &left);
            Mysql::set_session_limits(&mut conn);
            let before = Mysql::session_limits(&mut conn);
            // Prepares the statements.
            locked(&mut conn, &lock).expect("free");
            left.store(refusals, Ordering::SeqCst);
            let result = locked(&mut conn, &lock);
            let refused = refusals - left.swap(0, Ordering::SeqCst);
            if refusals == usize::MAX {
                assert!(refused > 5, "{refused} of {text}");
                assert!(conn.is_broken(), "a pool discards it: {result:?}");
                drop(conn);
                // The server notices.
                let again = a(Retention::Transient);
                database
                    .connect()
                    .with_object_lock(again, |_| Ok::<_, Error>(()))
                    .expect("the session has ended");
                continue;
            }
            assert_eq!(refused, refusals, "{text}");
            result.expect("free");
            assert!(!conn.is_broken());
            assert_eq!(Mysql::session_limits(&mut conn), before, "{text}");
            database
                .connect()
                .with_object_lock(a(Retention::Transient).wait(Wait::No), |_| {
                    Ok::<_, Error>(())
                })
                .expect("nothing of the lock is left");
        }
    }
}

/// `KILL QUERY`, or the loss of the connection, while the message of COMMIT runs: what is committed is not called an
/// error that leaves nothing behind.
#[test]
fn killed_commit_has_an_unknown_outcome() {
    let database = Mysql::new();
    for (target, cut, known, committed) in [
        ("SET SESSION autocommit = COALESCE(", false, false, 1),
        ("COMMIT; SET SESSION autocommit", false, false, 0),
        ("RELEASE SAVEPOINT diesel_locks_started", false, true, 0),
        ("RELEASE SAVEPOINT diesel_locks_started", true, false, 0),
    ] {
        let armed = Arc::new(AtomicBool::new(false));
        let mut conn = connect_killing(&database, target, cut, &armed);
        let session = Mysql::session(&mut conn);
        let before = Mysql::counter(&mut database.connect(), 0);
        let mut runs = 0;
        let retry =
            TransactionOptions::new().retry(RetryPolicy::max_attempts(3).retry_lock_timeouts());
        let result = conn.run_transaction(retry, |conn| {
            runs += 1;
            Mysql::count_up(conn, 0);
            armed.store(true, Ordering::SeqCst);
            Ok::<_, Error>(())
        });
        let error = result.expect_err("it did not end well");
        let unknown = matches!(error, Error::OutcomeUnknown { .. });
        assert_eq!(unknown, !known, "{target}, {cut}: {error:?}");
        assert_eq!(runs, 1, "{target}");
        let after = Mysql::counter(&mut database.connect(), 0);
        assert_eq!(after - before, committed, "{target}");
        assert_eq!(conn.is_broken(), cut, "{target}");
        if !cut {
            assert_eq!(Mysql::session(&mut conn), session, "{target}");
            Mysql::count_up(&mut conn, 1);
        }
    }
    assert_eq!(Mysql::counter(&mut database.connect(), 1), 3);
}

#[test]
fn server_timeout_ends_an_idle_transaction() {
    behaviour::idle_sessions::server_timeout_ends_an_idle_transaction::<Mysql>(
        "SET SESSION /*!80000 wait_timeout *//*M!100100 idle_transaction_timeout */ = 1",
    );
}

#[test]
fn guard_is_lost_in_time_while_its_renewal_hangs() {
    behaviour::slots::renewers::guard_is_lost_in_time_while_its_renewal_hangs::<Mysql>();
}

#[test]
fn unresponsive_database_does_not_delay_other_renewers() {
    behaviour::slots::renewers::unresponsive_database_does_not_delay_other_renewers::<Mysql>();
}

#[test]
fn round_trips_are_none_for_a_free_transient_lock_and_one_for_a_kept() {
    let database = Mysql::new();
    let (proxy, url) = CountingProxy::url(&database.url());
    let mut conn = Mysql::connect_to(&url);
    let lock = LockRequest::new("a").retention(Retention::Kept);
    // Prepares the statements, and makes the row.
    conn.transaction(read).expect("commit");
    conn.with_object_lock(&lock, read).expect("free");
    let bare = proxy.count(|| conn.transaction(read).expect("commit"));
    let locked = proxy.count(|| conn.with_object_lock(&lock, read).expect("free"));
    assert_eq!(locked, bare + 1);
    for wait in [Wait::Forever, Wait::AtMost(Duration::from_millis(500))] {
        let transient = LockRequest::all(["b", "c"]).wait(wait);
        let locked = proxy.count(|| conn.with_object_locks(transient, read).expect("free"));
        assert_eq!(locked, bare);
    }
    let transaction = TransactionOptions::new().isolation(IsolationLevel::ReadCommitted);
    conn.run_transaction(transaction, |conn| {
        let inside = proxy.count(|| conn.lock_object(&lock).expect("ours"));
        assert_eq!(inside, 1);
        Ok::<_, Error>(())
    })
    .expect("commit");
    Mysql::in_transaction(&mut conn, |conn| {
        let inside = proxy.count(|| conn.lock_object(&lock).expect("ours"));
        assert_eq!(inside, 1 + open_transaction_count(conn));
        Ok(())
    })
    .expect("commit");
}

/// Round trips by which MySQL is asked whether a transaction of Diesel's is open; MariaDB tells it with the lock.
fn open_transaction_count(conn: &mut MysqlConnection) -> u32 {
    if words(conn, "VERSION()").contains("MariaDB") {
        0
    } else {
        3
    }
}

#[test]
fn round_trips_of_a_slot_are_two_to_grant_and_one_for_the_rest() {
    assert_eq!(round_trips_of_a_slot::<Mysql>(), [2, 1, 1, 1]);
}

/// Only MariaDB's INSERT returns what it has written.
#[test]
fn round_trips_of_a_draw_are_one_on_mariadb_and_two_on_mysql() {
    let draw = match open_transaction_count(&mut Mysql::new().connect()) {
        0 => 1,
        asked => 2 + asked,
    };
    assert_eq!(round_trips_of_a_sequence::<Mysql>(), [draw, 1]);
    // A row that was there before this process, and a start that came later.
    let database = Mysql::new();
    let started = "INSERT INTO diesel_locks_sequences (name, scope, last) VALUES ('late round trips', '', 10)";
    Mysql::sql(&mut database.connect(), started);
    let late = Sequence::new("late round trips").start_with(1000);
    assert_eq!(round_trips_of(&database, &late), [draw, 1]);
}

/// What a transaction at REPEATABLE READ reads after a draw is as new as its first read, not as the draw.
#[test]
fn a_draw_begins_no_snapshot() {
    let database = Mysql::new();
    let mut conn = database.connect();
    // The statement of a connection's first draw differs from that of the others on MariaDB.
    for expected in 1..=2 {
        conn.transaction(|conn| {
            assert_eq!(conn.next_number(&Sequence::new("invoice"))?, expected);
            Mysql::count_up(&mut database.connect(), 0);
            assert_eq!(Mysql::counter(conn, 0), expected);
            Ok::<_, Error>(())
        })
        .expect("commit");
    }
}

/// A number too large is an error in a session that cuts off what does not fit, too.
#[test]
fn exhausted_sequence_is_an_error_without_strict_mode() {
    let database = Mysql::new();
    let mut conn = database.connect();
    Mysql::sql(&mut conn, "SET SESSION sql_mode = ''");
    let end = Sequence::new("end").start_with(i64::MAX - 1);
    conn.transaction(|conn| {
        assert_eq!(conn.next_number(&end)?, i64::MAX - 1);
        for _ in 0..2 {
            let error = conn.next_numbers(&end, 2).expect_err("one is left");
            assert!(
                matches!(error, Error::SequenceExhausted { .. }),
                "{error:?}"
            );
        }
        assert_eq!(conn.next_number(&end)?, i64::MAX);
        Ok::<_, Error>(())
    })
    .expect("usable");
}

/// Each is three, since Diesel switches several statements in one message on and off again.
#[test]
fn round_trips_of_a_transaction_are_diesels() {
    assert_eq!(round_trips_of_a_transaction::<Mysql>(), [6, 6]);
}

/// Neither the time zone of a session nor its change of the clocks moves a lease.
#[test]
fn session_time_zone_does_not_matter() {
    let database = Mysql::new();
    let mut conn = database.connect();
    let mut other = database.connect();
    Mysql::sql(&mut conn, "SET time_zone = '+13:00'");
    Mysql::sql(&mut other, "SET time_zone = '-12:00'");
    let one = Semaphore::new("one", 1);
    let slot = conn
        .try_acquire_slot(&one, LeaseOptions::new(Duration::from_secs(60)))
        .expect("an answer")
        .expect("free");
    let held = other.held_slots(&one).expect("rows");
    assert_eq!(held.len(), 1);
    assert!(held[0].remaining > Duration::from_secs(30), "{held:?}");
    assert!(held[0].remaining <= Duration::from_secs(60), "{held:?}");
    other.release_slot(slot).expect("ours");
}

/// Locks are taken in the transaction that `with_object_lock` began at READ COMMITTED, although the
/// session's level is another.
#[test]
fn lock_object_works_inside_with_object_lock_at_the_default_level() {
    let database = Mysql::new();
    let mut conn = database.connect();
    assert_eq!(
        words(
            &mut conn,
            "/*!80000 @@SESSION.transaction_isolation *//*M!100100 @@SESSION.tx_isolation */"
        ),
        "REPEATABLE-READ"
    );
    for retention in [Retention::Transient, Retention::Kept] {
        conn.with_object_lock("a", |conn| {
            Mysql::counter(conn, 0);
            conn.lock_object(LockRequest::new("b").retention(retention))?;
            Mysql::count_up(&mut database.connect(), 0);
            let fresh = Mysql::counter(&mut database.connect(), 0);
            assert_eq!(Mysql::counter(conn, 0), fresh, "not a snapshot of before");
            Ok::<_, Error>(())
        })
        .expect("both free");
        // Afterwards the session's level counts again.
        let error = conn
            .transaction(|conn| conn.lock_object(LockRequest::new("b").retention(retention)))
            .expect_err("REPEATABLE READ");
        assert!(
            matches!(error, Error::UnsuitableIsolation { .. }),
            "{error:?}"
        );
        assert!(error.to_string().contains("REPEATABLE-READ"), "{error}");
    }
    assert_eq!(
        words(
            &mut conn,
            "/*!80000 @@SESSION.transaction_isolation *//*M!100100 @@SESSION.tx_isolation */"
        ),
        "REPEATABLE-READ",
        "nothing leaks into the session"
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

/// One who waits at the gate, where InnoDB does not see it, is part of the cycle: t1 holds a and wants
/// b; t2 holds b and wants a; t3 wants b as well and has its gate.
#[test]
fn deadlock_through_the_named_lock_is_detected() {
    let database = Arc::new(Mysql::new());
    let open = |id: &str| {
        let mut conn = database.connect();
        Mysql::sql(
            &mut conn,
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        );
        AnsiTransactionManager::begin_transaction(&mut conn).expect("begin");
        conn.lock_object(id).expect("free");
        conn
    };
    let (mut t1, mut t2) = (open("a"), open("b"));
    let t3 = {
        let database = Arc::clone(&database);
        spawn(move || {
            database
                .connect()
                .with_object_lock("b", |_| Ok::<_, Error>(()))
        })
    };
    database.await_waiting(1);
    let t1 = spawn(move || {
        let result = t1.lock_object("b");
        let _ = AnsiTransactionManager::rollback_transaction(&mut t1);
        result
    });
    database.await_waiting(2);
    let started = Instant::now();
    let t2 = spawn(move || {
        let result = t2.lock_object("a");
        let _ = AnsiTransactionManager::rollback_transaction(&mut t2);
        result
    });
    let results = [result_of(&t1), result_of(&t2)];
    result_of(&t3).expect("it is not part of the cycle");
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
    let victims: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    assert_eq!(victims.len(), 1, "{victims:?}");
    assert!(victims[0].is_deadlock(), "{victims:?}");
}

#[test]
fn german_error_messages_are_classified() {
    let database = Arc::new(Mysql::new());
    let german = |database: &Mysql| {
        let mut conn = database.connect();
        Mysql::sql(&mut conn, "SET lc_messages = 'de_DE'");
        conn
    };
    let mut conn = german(&database);
    let error = diesel::sql_query("SELECT 1 FROM nowhere")
        .execute(&mut conn)
        .expect_err("no table");
    assert!(error.to_string().contains("existiert nicht"), "{error}");
    let holder = Holder::acquire(&database, "a");
    for retention in [Retention::Transient, Retention::Kept] {
        let lock = LockRequest::new("a").retention(retention);
        let tried = conn
            .try_with_object_lock(&lock, |_| Ok::<_, Error>(()))
            .expect("an answer");
        assert_eq!(tried, None);
        let lock = lock.wait(Wait::AtMost(Duration::from_millis(100)));
        let error = conn
            .with_object_lock(&lock, |_| Ok::<_, Error>(()))
            .expect_err("held");
        assert!(error.is_timeout(), "{error:?}");
    }
    holder.release();
    Mysql::revert_all_migrations(&mut conn);
    let error = conn
        .with_object_lock("a", |_| Ok::<_, Error>(()))
        .expect_err("no table");
    assert!(error.is_missing_tables(), "{error:?}");
}

/// A session that truncates too long values silently does not truncate ids.
#[test]
fn ids_are_not_truncated_without_strict_mode() {
    let database = Mysql::new();
    let mut conn = database.connect();
    Mysql::sql(&mut conn, "SET SESSION sql_mode = ''");
    let [one, other] = ["x", "y"].map(|end| "🔒".repeat(254) + end);
    let lock = LockRequest::all([one, other]).retention(Retention::Kept);
    conn.with_object_locks(lock, |_| Ok::<_, Error>(()))
        .expect("free");
    assert_eq!(database.rows(), 2);
}

/// Newer versions do so by default; servers that can't are left out.
#[test]
fn old_snapshot_refused_by_mariadb_is_retried() {
    let database = Mysql::new();
    let mut conn = database.connect();
    if Mysql::try_sql(&mut conn, "SET SESSION innodb_snapshot_isolation = ON").is_err() {
        return;
    }
    assert!(Mysql::refuses_old_snapshots(&mut conn));
    let mut other = database.connect();
    let transaction = TransactionOptions::new()
        .isolation(IsolationLevel::RepeatableRead)
        .retry(RetryPolicy::max_attempts(2));
    let attempts = conn.run_transaction_attempts(transaction, |conn, attempt| {
        let n = Mysql::counter(conn, 0);
        if attempt == 1 {
            Mysql::count_up(&mut other, 0);
        }
        let sql = format!("UPDATE counters SET n = {} WHERE id = 0", n + 1);
        let updated = Mysql::try_sql(conn, &sql);
        if let Err(error) = &updated {
            assert!(error.is_serialization_failure(), "{error:?}");
        }
        updated.map(|()| attempt)
    });
    assert_eq!(attempts.expect("the second time"), 2);
    assert_eq!(Mysql::counter(&mut conn, 0), 2);
}

/// A purge reads all rows first, and a limit of the session's may end that in the middle. The statement, sent again, would
/// wait for ever.
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
            let retry = RetryPolicy::max_attempts(100).retry_lock_timeouts();
            let transaction = TransactionOptions::new().retry(retry);
            conn.run_transaction_attempts(transaction, |conn, attempt| {
                if attempt == 3 {
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
    let third = reached.recv_timeout(crate::support::threads::LONG);
    third.expect("the second attempt comes back");
    AnsiTransactionManager::commit_transaction(&mut holder).expect("commit");
    let rows = result_of(&theirs).expect("in the end");
    assert_eq!((rows.len(), rows[5]), (10, 1));
}

macro_rules! script {
    ($name:literal, $way:literal) => {
        include_str!(concat!(
            "../../migrations/mysql/00000000000000-diesellocks-",
            $name,
            "/",
            $way,
            ".sql"
        ))
    };
}

macro_rules! scripts {
    ($name:literal) => {
        (script!($name, "up"), script!($name, "down"))
    };
}

/// The migrations, what makes and what removes the tables.
const SCRIPTS: [(&str, &str); MIGRATIONS] = [
    scripts!("0001_object_locks"),
    scripts!("0002_semaphores"),
    scripts!("0003_sequences"),
];

/// The statements of a script, without comments.
fn statements(script: &str) -> Vec<String> {
    let lines = script
        .lines()
        .map(|line| line.split("--").next().unwrap_or_default());
    let script = lines.collect::<Vec<_>>().join("\n");
    let statements = script
        .split(';')
        .map(str::trim)
        .filter(|statement| !statement.is_empty());
    statements.map(str::to_owned).collect()
}

/// All columns and indices of the crate's tables.
fn tables(conn: &mut MysqlConnection) -> String {
    Mysql::sql(conn, "SET SESSION group_concat_max_len = 100000");
    let columns = words(
        conn,
        "SELECT COALESCE(GROUP_CONCAT(CONCAT_WS(' ', table_name, column_name, column_type, is_nullable) \
         ORDER BY table_name, ordinal_position SEPARATOR '; '), '') FROM information_schema.columns \
         WHERE table_schema = DATABASE() AND table_name LIKE 'diesel%'",
    );
    let indices = words(
        conn,
        "SELECT COALESCE(GROUP_CONCAT(CONCAT_WS(' ', table_name, index_name, column_name) \
         ORDER BY table_name, index_name, seq_in_index SEPARATOR '; '), '') FROM information_schema.statistics \
         WHERE table_schema = DATABASE() AND table_name LIKE 'diesel%'",
    );
    format!("{columns} {indices}")
}

/// Each statement commits by itself there, so that a killed server leaves those that it has run.
#[test]
fn migrate_resumes_after_a_kill_at_any_statement() {
    let complete = tables(&mut Mysql::new().connect());
    let up: Vec<String> = SCRIPTS.iter().flat_map(|(up, _)| statements(up)).collect();
    let down: Vec<String> = SCRIPTS
        .iter()
        .rev()
        .flat_map(|(_, down)| statements(down))
        .collect();
    assert_eq!((up.len(), down.len()), (6, 5));
    for ran in 0..=up.len() {
        let database = Mysql::empty();
        let mut conn = database.connect();
        for statement in &up[..ran] {
            Mysql::sql(&mut conn, statement);
        }
        let versions = diesel_locks::migrate(&mut conn).expect("migrate");
        assert_eq!(versions.len(), MIGRATIONS, "after {ran} statements");
        assert_eq!(tables(&mut conn), complete, "after {ran} statements");
        let fences = Mysql::number(&mut conn, "SELECT COUNT(*) FROM diesel_locks_fences");
        assert_eq!(fences, 1, "after {ran} statements");
    }
    for ran in 0..=up.len() {
        let database = Mysql::empty();
        let mut conn = database.connect();
        for statement in up[..ran].iter().chain(&down) {
            Mysql::sql(&mut conn, statement);
        }
        assert_eq!(tables(&mut conn), " ", "after {ran} statements");
    }
    for ran in 0..=down.len() {
        let database = Mysql::new();
        let mut conn = database.connect();
        for statement in &down[..ran] {
            Mysql::sql(&mut conn, statement);
        }
        Mysql::revert_all_migrations(&mut conn);
        assert_eq!(tables(&mut conn), " ", "after {ran} statements");
        diesel_locks::migrate(&mut conn).expect("migrate again");
        assert_eq!(tables(&mut conn), complete, "after {ran} statements");
    }
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
