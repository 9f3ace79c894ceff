//! MySQL or MariaDB, whichever `MYSQL_DATABASE_URL` names: what is true of them only.

use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::connection::{AnsiTransactionManager, TransactionManager};
use diesel::prelude::*;
use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, IsolationLevel, Retention, RetryPolicy};

use crate::behaviour::slots::slots_of;
use crate::behaviour::{self, self as bodies};
use crate::support::Backend;
use crate::support::mysql::{Mysql, words};
use crate::support::threads::{Holder, LONG, result_of, spawn};

mod async_drops;
mod async_round_trips;
mod backups;
mod held_locks;
mod kills;
mod limits_of_the_server;
mod migrations;
mod round_trips;
mod row_locks;
mod settings;
mod timeouts;

// The others run as an application's user: see `least_privilege/mysql.rs`.
crate::owner_tests!(Mysql);
crate::held_locks_tests!(Mysql);
crate::silent_server_tests!(Mysql);

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
    let held = other.held_slots(&slots_of(&one)).expect("rows");
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
        conn.transaction(|conn| {
            for wait in [Wait::Forever, Wait::AtMost(LONG), Wait::No] {
                let lock = LockRequest::new("b").retention(retention).wait(wait);
                let error = conn.lock_object(lock).expect_err("REPEATABLE READ");
                assert!(
                    matches!(error, Error::UnsuitableIsolation { .. }),
                    "{error:?}"
                );
                assert!(error.to_string().contains("REPEATABLE-READ"), "{error}");
                assert!(database.is_free("b"), "what was refused is locked");
            }
            Ok::<_, Error>(())
        })
        .expect("the transaction goes on");
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

/// The cycle contains a wait for a named lock, which InnoDB does not see: t1 holds a and requests b, t2 holds b and
/// requests a, and t3 requests b too and holds its named lock.
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

/// The rollback of the nested transaction hides why.
#[test]
fn nested_transaction_shows_that_the_server_has_ended_the_outer_one() {
    let database = Mysql::new();
    let mut conn = database.connect();
    let result = conn.with_object_lock("a", |conn| {
        conn.transaction(|conn| {
            Mysql::sql(conn, "ROLLBACK");
            Err::<(), Error>(Error::from(diesel::result::Error::NotFound))
        })
    });
    let error = result.expect_err("it failed");
    assert!(error.is_transaction_aborted(), "{error:?}");
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

#[test]
fn session_settings_do_not_change_ids() {
    behaviour::ids::settings_do_not_change_ids::<Mysql>(&[
        "SET SESSION sql_mode = 'ANSI_QUOTES'",
        "SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES'",
        "SET NAMES latin1",
        "SET NAMES gbk",
        "SET NAMES swe7",
        "SET SESSION collation_connection = 'utf16_general_ci'",
    ]);
}

/// A session that truncates too long values silently does not truncate ids.
#[test]
fn ids_are_not_truncated_without_strict_mode() {
    let database = Mysql::new();
    let mut conn = database.connect();
    Mysql::sql(&mut conn, "SET SESSION sql_mode = ''");
    let [one, other] = ["x", "y"].map(|end| "🔒".repeat(254) + end);
    let lock = LockRequest::all([one, other]).retention(Retention::Kept);
    conn.with_object_lock(lock, |_| Ok::<_, Error>(()))
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
    let mut attempts = 0;
    let done = conn.run_transaction(transaction, |conn| {
        attempts += 1;
        let n = Mysql::counter(conn, 0);
        if attempts == 1 {
            Mysql::count_up(&mut other, 0);
        }
        let sql = format!("UPDATE counters SET n = {} WHERE id = 0", n + 1);
        let updated = Mysql::try_sql(conn, &sql);
        if let Err(error) = &updated {
            assert!(error.is_serialization_failure(), "{error:?}");
        }
        updated
    });
    done.expect("the second time");
    assert_eq!(attempts, 2);
    assert_eq!(Mysql::counter(&mut conn, 0), 2);
}
