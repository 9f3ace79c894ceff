//! `migrate`.

use diesel_locks::Error;

use crate::behaviour::application_migrations::{Step, Steps};
use crate::support::Backend;
use crate::support::backend::MIGRATIONS;
use crate::support::mysql::{Mysql, words};
use crate::support::privileges::User;
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
    let read = |conn: &mut diesel::MysqlConnection| {
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
