//! `migrate`.

use std::sync::Arc;

use diesel::MysqlConnection;
use diesel::connection::SimpleConnection;
use diesel_locks::Error;

use crate::behaviour::application_migrations::{Step, Steps};
use crate::support::Backend;
use crate::support::backend::MIGRATIONS;
use crate::support::mysql::{Mysql, words};
use crate::support::privileges::User;
use crate::support::threads::{result_of, spawn, until};
use crate::support::wrapped_backend::Wrapper;

#[test]
fn user_without_create_is_told_so() {
    let database = Mysql::empty();
    for grant in [
        "GRANT SELECT, INSERT ON * TO 'app'@'%'",
        "GRANT CREATE ROUTINE ON * TO 'app'@'%'",
    ] {
        let user = User::with(&database, &[grant.to_owned()]);
        let mut conn = Mysql::connect_to(&user.url());
        for language in ["en_US", "de_DE"] {
            Mysql::sql(&mut conn, &format!("SET lc_messages = '{language}'"));
            let error = diesel_locks::migrate(&mut conn).expect_err("no CREATE");
            assert!(error.is_insufficient_privilege(), "{error:?}");
            assert!(error.to_string().contains("CREATE"), "{error}");
        }
    }
}

/// With `innodb_default_row_format` COMPACT or REDUNDANT, keys have at most 767 bytes.
#[test]
fn tables_name_their_row_format() {
    let database = Mysql::new();
    let mut conn = database.connect();
    let named = words(
        &mut conn,
        "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() \
         AND table_name LIKE 'diesel%' AND create_options LIKE '%row_format=DYNAMIC%'",
    );
    assert_eq!(named, "6");
}

/// MariaDB, which has no indexes on expressions, has two. On MySQL there is none: MariaDB's `mysqldump` writes their values,
/// which MySQL then refuses (error 3105).
#[test]
fn generated_columns_exist_on_mariadb_only() {
    let database = Mysql::new();
    let mut conn = database.connect();
    let as_expected = words(
        &mut conn,
        "SELECT COUNT(*) = IF(version() LIKE '%MariaDB%', 2, 0) FROM information_schema.columns \
         WHERE table_schema = DATABASE() AND table_name LIKE 'diesel%' AND generation_expression <> ''",
    );
    assert_eq!(as_expected, "1");
}

/// A search in large semaphores reads a few entries of the index, also where MySQL has an index on an expression.
#[test]
fn large_semaphores_are_searched_by_index() {
    use std::time::Duration;

    use diesel_locks::LeaseOptions;
    use diesel_locks::prelude::*;

    let database = Mysql::new();
    let mut conn = database.connect();
    let large = Semaphore::new("large", 2000);
    conn.register_semaphores([&large]).expect("registered");
    Mysql::sql(
        &mut conn,
        "UPDATE diesel_locks_slots SET expires_us = 4000000000000000 WHERE number < 1990",
    );
    let read = |conn: &mut MysqlConnection| {
        Mysql::number(
            conn,
            "SELECT SUM(variable_value) FROM /*!80000 performance_schema.session_status */\
             /*M!100100 information_schema.session_status */ WHERE variable_name LIKE 'Handler_read%' \
             AND variable_name NOT LIKE '%rnd%'",
        )
    };
    let lease = || LeaseOptions::new(Duration::from_secs(60));
    let slot = conn.try_acquire_slot(&large, lease());
    assert!(slot.expect("an answer").is_some(), "one is free");
    let before = read(&mut conn);
    let slot = conn.try_acquire_slot(&large, lease());
    assert!(slot.expect("an answer").is_some(), "one is free");
    let rows = read(&mut conn) - before;
    assert!(rows < 1000, "{rows} rows and index entries");
}

/// The record of the last migration too.
#[test]
fn session_without_autocommit_commits_each_migration() {
    let database = Mysql::empty();
    let mut conn = database.connect();
    Mysql::sql(&mut conn, "SET SESSION autocommit = 0");
    let ran = diesel_locks::migrate(&mut conn).expect("migrated");
    assert_eq!(ran.len(), MIGRATIONS);
    let records = "SELECT COUNT(*) FROM __diesel_schema_migrations";
    let committed = Mysql::number(&mut database.connect(), records);
    assert_eq!(usize::try_from(committed).expect("a count"), MIGRATIONS);
    let ran = diesel_locks::migrate(&mut database.connect()).expect("nothing to do");
    assert_eq!(ran, [""; 0]);
}

/// In place of an error that the table exists.
#[test]
fn interrupted_migration_is_named() {
    let half = || {
        let sql = "CREATE TABLE half (id INTEGER PRIMARY KEY); INSERT INTO missing VALUES (1)";
        Steps(vec![Step("1_half", sql, true)])
    };
    let database = Mysql::new();
    let mut conn = database.connect();
    let error = diesel_locks::run_migrations(&mut conn, half()).expect_err("no such table");
    assert!(matches!(error, Error::Migration(_)), "{error:?}");
    for _ in 0..2 {
        let error = diesel_locks::run_migrations(&mut conn, half()).expect_err("half of it");
        let Error::InterruptedMigration { migration, source } = &error else {
            panic!("{error:?}");
        };
        assert_eq!((migration.as_str(), source), ("1_half", &None));
        assert!(error.to_string().contains("1_half"), "{error}");
    }
    // Completed by hand.
    Mysql::sql(
        &mut conn,
        "INSERT INTO __diesel_schema_migrations (version) VALUES ('1')",
    );
    let ran = diesel_locks::run_migrations(&mut conn, half()).expect("recorded");
    assert!(ran.is_empty(), "{ran:?}");

    // Outside of a transaction it is run again.
    let outside = || {
        Steps(vec![Step(
            "2_half",
            "CREATE TABLE half (id INTEGER)",
            false,
        )])
    };
    let error = diesel_locks::run_migrations(&mut conn, outside()).expect_err("it exists");
    assert!(matches!(error, Error::Migration(_)), "{error:?}");
    let error = diesel_locks::run_migrations(&mut conn, outside()).expect_err("it exists");
    assert!(
        matches!(
            error,
            Error::InterruptedMigration {
                source: Some(_),
                ..
            }
        ),
        "{error:?}"
    );
    Mysql::sql(&mut conn, "DROP TABLE half");
    let ran = diesel_locks::run_migrations(&mut conn, outside()).expect("undone");
    assert_eq!(ran, ["2"]);
}

/// A single statement that fails has changed nothing, although it has committed what was before it.
#[test]
fn failed_statement_is_no_interruption() {
    let add = || {
        let sql = "-- Adds a column.\n\nALTER TABLE absent ADD COLUMN b INTEGER;\n";
        Steps(vec![Step("1_add", sql, true)])
    };
    let database = Mysql::new();
    let mut conn = database.connect();
    for _ in 0..2 {
        let error = diesel_locks::run_migrations(&mut conn, add()).expect_err("no such table");
        assert!(matches!(error, Error::Migration(_)), "{error:?}");
    }
    Mysql::sql(&mut conn, "CREATE TABLE absent (a INTEGER)");
    let ran = diesel_locks::run_migrations(&mut conn, add()).expect("it exists now");
    assert_eq!(ran, ["1"]);

    // Not one that may have changed something: MariaDB has dropped one of the tables, the procedure has created one.
    let procedure = "CREATE PROCEDURE fails() BEGIN CREATE TABLE half (a INTEGER); INSERT INTO missing VALUES (1); END";
    conn.batch_execute(procedure).expect("created");
    let mut halves = vec![
        ("2_drop", "DROP TABLE absent, missing"),
        ("3_call", "CALL fails()"),
    ];
    if Mysql::number(&mut conn, "VERSION() LIKE '%MariaDB%'") == 1 {
        halves.push((
            "4_replace",
            "CREATE\n OR REPLACE TABLE half SELECT * FROM missing",
        ));
    }
    for (name, sql) in halves {
        let step = || Steps(vec![Step(name, sql, true)]);
        let error = diesel_locks::run_migrations(&mut conn, step()).expect_err("no such table");
        assert!(matches!(error, Error::Migration(_)), "{error:?}");
        let error = diesel_locks::run_migrations(&mut conn, step()).expect_err("half of it");
        let interrupted = matches!(error, Error::InterruptedMigration { .. });
        assert!(interrupted, "{error:?}");
    }
}

/// Settings of the session, and of the database when each of the two tables of records was created.
#[test]
fn settings_do_not_change_migrations_of_the_application() {
    let database = Mysql::empty();
    let mut conn = database.connect();
    for collation in ["general", "unicode"] {
        // Not as a prepared statement, which MySQL refuses.
        let alter = format!("ALTER DATABASE COLLATE utf8mb4_{collation}_ci");
        conn.batch_execute(&alter).expect("altered");
        diesel_locks::migrate(&mut conn).expect("migrated");
    }
    let mut steps = Vec::new();
    for (version, sql, setting) in [
        ("1", "CREATE TABLE a (id INTEGER)", "sql_safe_updates = 1"),
        ("2", "CREATE TABLE b (id INTEGER)", "sql_select_limit = 1"),
        ("3", "CREATE TABLE c (id INTEGER)", "sql_mode = 'ANSI'"),
        (
            "4",
            "CREATE TABLE d (id INTEGER)",
            "sql_mode = /*!80000 'ANSI' *//*M!100100 'ORACLE' */",
        ),
        ("5", "CREATE TABLE e (id INTEGER)", "autocommit = 0"),
    ] {
        steps.push(Step(version, sql, true));
        let mut conn = database.connect();
        Mysql::sql(&mut conn, &format!("SET SESSION {setting}"));
        for expected in [&[version][..], &[]] {
            let ran = diesel_locks::run_migrations(&mut conn, Steps(steps.clone()));
            assert_eq!(ran.expect(setting), expected, "{setting}");
        }
    }
}

/// Of a process that ended between the record and the end of the mark. It could be reverted and run again.
#[test]
fn mark_of_a_recorded_migration_is_removed() {
    let database = Mysql::new();
    let mut conn = database.connect();
    let mut steps = vec![Step("1", "CREATE TABLE a (id INTEGER)", true)];
    diesel_locks::run_migrations(&mut conn, Steps(steps.clone())).expect("ran");
    let begun = "__diesel_locks_begun_migrations";
    Mysql::sql(&mut conn, &format!("INSERT INTO {begun} VALUES ('1')"));
    steps.push(Step("2", "CREATE TABLE b (id INTEGER)", true));
    diesel_locks::run_migrations(&mut conn, Steps(steps)).expect("ran");
    assert_eq!(
        Mysql::number(&mut conn, &format!("SELECT COUNT(*) FROM {begun}")),
        0
    );
    let engine = format!(
        "SELECT engine FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = '{begun}'"
    );
    assert_eq!(words(&mut conn, &engine), "InnoDB");
}

/// The default of a server may be a time limit for each SELECT, by which MySQL ends a wait for the lock.
#[test]
fn statement_timeout_does_not_end_the_wait_for_another_replica() {
    const LOCK: &str = "CONCAT('diesel:', SHA2(COALESCE(DATABASE(), ''), 224))";
    let database = Arc::new(Mysql::empty());
    let mut holder = database.connect();
    let taken = format!("SELECT GET_LOCK({LOCK}, 0)");
    assert_eq!(Mysql::number(&mut holder, &taken), 1);
    let mut conn = database.connect();
    let id = Mysql::number(&mut conn, "SELECT CONNECTION_ID()");
    Mysql::sql(
        &mut conn,
        "SET SESSION /*!80000 max_execution_time = 100 *//*M!100100 max_statement_time = 0.1 */",
    );
    let migrating = spawn(move || {
        let ran = diesel_locks::migrate(&mut conn);
        (ran, conn)
    });
    let mut observer = database.connect();
    // Of waits that have ended. MariaDB does not count them for each session.
    let ended = format!(
        "SELECT /*!80000 (SELECT variable_value FROM performance_schema.status_by_thread \
         JOIN performance_schema.threads USING (thread_id) \
         WHERE processlist_id = {id} AND variable_name = 'Max_execution_time_exceeded') + 0 \
         *//*M!100100 (SELECT COUNT(*) FROM information_schema.processlist WHERE id = {id} AND state = 'User lock') */"
    );
    until(|| Mysql::number(&mut observer, &ended) > 0);
    Mysql::sql(&mut holder, &format!("DO RELEASE_LOCK({LOCK})"));
    let (ran, mut conn): (_, MysqlConnection) = result_of(&migrating);
    assert_eq!(ran.expect("the wait goes on").len(), MIGRATIONS);
    // Not even once more.
    let held = format!("SELECT COALESCE(RELEASE_LOCK({LOCK}), 2)");
    assert_eq!(Mysql::number(&mut conn, &held), 2);
}
