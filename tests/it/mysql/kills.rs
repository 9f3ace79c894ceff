//! Statements and migrations that are killed half-way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use diesel::migration::CREATE_MIGRATIONS_TABLE;
use diesel::prelude::*;
use diesel::r2d2::R2D2Connection;
use diesel_locks::prelude::*;
use diesel_locks::{Error, IsolationLevel, Retention, RetryPolicy};

use crate::support::Backend;
use crate::support::backend::MIGRATIONS;
use crate::support::failing_proxy::{connect_failing, connect_killing};
use crate::support::mysql::{Mysql, words};
use crate::support::threads::Holder;

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

/// The statement that restores the session fails for ever, after an error: that error is returned.
#[test]
fn error_of_restoring_the_session_does_not_hide_the_first() {
    let database = Arc::new(Mysql::new());
    for (text, retention) in [
        ("@diesel_locks_limit = NULL", Retention::Kept),
        ("DO RELEASE_LOCK", Retention::Transient),
    ] {
        let left = Arc::new(AtomicUsize::new(0));
        let mut conn = connect_failing(&database, text, &left);
        let wait = Wait::AtMost(Duration::from_millis(100));
        let lock = LockRequest::new("a").retention(retention).wait(wait);
        // Prepares the statements.
        Mysql::in_transaction(&mut conn, |conn| conn.lock_object(&lock)).expect("free");
        let holder = Holder::acquire(&database, "a");
        let level = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
        Mysql::sql(&mut conn, level);
        left.store(usize::MAX, Ordering::SeqCst);
        let locked = conn.transaction(|conn| conn.lock_object(&lock));
        let error = locked.expect_err("held");
        let timed_out = matches!(error, Error::LockTimeout { .. });
        assert!(timed_out, "{text}, {retention:?}: {error:?}");
        assert!(conn.is_broken(), "a pool discards it");
        holder.release();
    }
}

/// `KILL QUERY`, or the loss of the connection, while the message of COMMIT runs: what is committed is not called an
/// error that leaves nothing behind.
#[test]
fn killed_commit_has_an_unknown_outcome() {
    let database = Mysql::new();
    for (target, cut, known, committed) in [
        ("SET SESSION autocommit = CAST(", false, false, 1),
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

macro_rules! script {
    ($name:literal, $way:literal) => {
        include_str!(concat!(
            "../../../migrations/mysql/00000000000000-diesellocks-",
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

/// All columns and indexes of the tables of this crate.
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
    assert_eq!((up.len(), down.len()), (7, 6));
    for ran in 0..=up.len() {
        let database = Mysql::empty();
        let mut conn = database.connect();
        // `migrate` creates it first. Without it, complete tables leave nothing to do.
        Mysql::sql(&mut conn, CREATE_MIGRATIONS_TABLE);
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

/// The number of a draw is read by a second statement on MySQL, and by a connection's first draw on MariaDB. If that fails
/// and the closure ignores it, the draw is taken back, or nothing is committed.
#[test]
fn a_draw_whose_number_is_not_read_leaves_no_gap() {
    // The text is also in the statement that subtracts.
    let text = "`diesel_locks_sequences`.`last`";
    let sequence = Sequence::new("invoice");
    for (before, refusals) in [(0, 1), (1, 1), (1, 2)] {
        for ours in [true, false] {
            let database = Mysql::new();
            let draw = |conn: &mut MysqlConnection| conn.next_number(&sequence);
            for _ in 0..before {
                database.connect().transaction(draw).expect("a number");
            }
            let left = Arc::new(AtomicUsize::new(0));
            let mut conn = connect_failing(&database, text, &left);
            let ignored = |conn: &mut MysqlConnection| {
                left.store(refusals, Ordering::SeqCst);
                draw(conn).expect_err("the number is not read");
                assert_eq!(left.load(Ordering::SeqCst), 0);
                Ok::<_, Error>(())
            };
            let ended = if ours {
                conn.run_transaction(TransactionOptions::new(), ignored)
            } else {
                conn.transaction(ignored)
            };
            assert_eq!(ended.is_ok(), refusals == 1, "{ended:?}");
            drop(conn);
            let next = database.connect().transaction(draw).expect("a number");
            assert_eq!(next, before + 1, "{refusals} {ours}");
        }
    }
}

/// If the DELETE of a transient lock fails and the closure ignores it, the row that it leaves is purged.
#[test]
fn a_transient_row_that_is_not_deleted_is_purged() {
    let database = Mysql::new();
    let left = Arc::new(AtomicUsize::new(0));
    let mut conn = connect_failing(&database, "DELETE FROM `diesel_locks_objects`", &left);
    conn.run_transaction(
        TransactionOptions::new().isolation(IsolationLevel::ReadCommitted),
        |conn| {
            left.store(1, Ordering::SeqCst);
            let limited = LockRequest::new("a").wait(Wait::AtMost(Duration::from_secs(5)));
            let _ = conn.lock_object(limited);
            Ok::<_, Error>(())
        },
    )
    .expect("commit");
    let refused = left.load(Ordering::SeqCst) == 0;
    assert!(refused, "the DELETE is a statement of its own");
    assert_eq!(database.rows(), 1);
    let mut other = database.connect();
    assert_eq!(other.purge_object_locks().expect("purge"), 1);
    assert_eq!(database.rows(), 0);
}
