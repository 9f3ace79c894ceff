//! `migrate`, and the application's own changes of the schema.

use diesel_locks::prelude::*;
use diesel_locks::{Error, LockPool};

use crate::behaviour::application_migrations::{Step, Steps};
use crate::support::Backend;
use crate::support::backend::MIGRATIONS;
use crate::support::postgres::Postgres;
use crate::support::privileges::Role;
use crate::support::threads::{begin, result_of, roll_back, spawn, until};
use crate::support::wrapped_backend::Wrapper;

#[test]
fn user_without_create_is_told_so() {
    let mut roles = Vec::new(); // dropped after the database, in which they have privileges
    let database = Postgres::empty();
    let grant = "GRANT USAGE ON SCHEMA public TO app".to_owned();
    roles.push(Role::with(&database, &[grant]));
    let role = &roles[0];
    let mut conn = Postgres::connect_to(&role.url());
    for language in ["C", "de_DE.UTF-8"] {
        let mut owner = database.connect();
        let set = format!("ALTER ROLE {} SET lc_messages = '{language}'", role.name);
        let _ = Postgres::try_sql(&mut owner, &set);
        let error = diesel_locks::migrate(&mut conn).expect_err("no CREATE");
        assert!(error.is_insufficient_privilege(), "{error:?}");
        assert!(error.to_string().contains("CREATE"), "{error}");
        conn = Postgres::connect_to(&role.url());
    }
}

/// As `"$user", public` does when somebody creates a schema of the role's name.
#[test]
fn another_schema_in_the_search_path_makes_no_second_set_of_tables() {
    let database = Postgres::new();
    let mut conn = database.connect();
    let draw = |conn: &mut diesel::PgConnection| {
        let invoice = Sequence::new("invoice");
        conn.run_transaction(TransactionOptions::new(), |conn| conn.next_number(&invoice))
            .expect("a number")
    };
    assert_eq!(draw(&mut conn), 1);
    Postgres::sql(
        &mut conn,
        "CREATE SCHEMA nearer; SET search_path = nearer, public",
    );
    // Diesel's own `run_pending_migrations` creates its table there.
    let records = "CREATE TABLE __diesel_schema_migrations (LIKE public.__diesel_schema_migrations INCLUDING ALL)";
    for records in ["SELECT 1", records] {
        Postgres::sql(&mut conn, records);
        let ran = diesel_locks::migrate(&mut conn).expect("found in public");
        assert!(ran.is_empty(), "{ran:?}");
    }
    assert_eq!(draw(&mut conn), 2);

    // What is missing is created where the rest is.
    Postgres::sql(
        &mut conn,
        "DROP TABLE diesel_locks_sequences; DELETE FROM public.__diesel_schema_migrations WHERE version LIKE '%0003'",
    );
    let ran = diesel_locks::migrate(&mut conn).expect("migrate");
    assert_eq!(ran.len(), 1);
    let path = Postgres::number(
        &mut conn,
        "SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tablename = 'diesel_locks_sequences' \
         AND current_setting('search_path') = 'nearer, public'",
    );
    assert_eq!(path, 1);

    // A second set is asked for by a path without the first one.
    Postgres::sql(&mut conn, "SET search_path = nearer");
    let ran = diesel_locks::migrate(&mut conn).expect("migrate");
    assert_eq!(ran.len(), MIGRATIONS);
    assert_eq!(draw(&mut conn), 1);
}

/// `CREATE INDEX CONCURRENTLY` waits for every session that has a snapshot, and a session that waits in a function has one.
#[test]
fn waiters_of_a_lock_pool_do_not_block_concurrent_indexes() {
    let database = Postgres::new();
    let mut holder = database.connect();
    let mut other = database.connect();
    let pool = Postgres::pool_of(&database.url(), 2, |conn| {
        Postgres::sql(conn, "SET application_name = 'waiter'");
    });
    let waiter = holder
        .with_object_lock("a", |_| {
            let waiter = spawn(move || LockPool::new(pool).with_object_lock("a", |_| Ok::<_, Error>(())));
            let mut watcher = database.connect();
            let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                           AND application_name = 'waiter' AND query LIKE '%diesel_locks%'";
            let watcher = std::cell::RefCell::new(&mut watcher);
            until(|| Postgres::number(&mut watcher.borrow_mut(), waiting) > 0);
            Postgres::sql(&mut other, "SET statement_timeout = '30s'");
            for index in 0..3 {
                let create = format!("CREATE INDEX CONCURRENTLY counters_{index} ON counters (n)");
                Postgres::sql(&mut other, &create);
            }
            Ok::<_, Error>(waiter)
        })
        .expect("free");
    result_of(&waiter).expect("released");
}

/// `CREATE INDEX CONCURRENTLY` has failed or was interrupted, and `IF NOT EXISTS` is content with what it has left.
#[test]
fn invalid_index_of_an_interrupted_migration_is_built_again() {
    let unique = || {
        let sql = "CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS \"Counters_n\" ON counters (n)";
        Steps(vec![Step("1_unique", sql, false)])
    };
    let database = Postgres::new();
    let mut conn = database.connect();
    let valid = "SELECT count(*) FROM pg_index WHERE indexrelid = to_regclass('\"Counters_n\"') AND indisvalid";
    let error = diesel_locks::run_migrations(&mut conn, unique()).expect_err("all are 0");
    assert!(matches!(error, Error::Migration(_)), "{error:?}");
    assert_eq!(Postgres::number(&mut conn, valid), 0);
    let error = diesel_locks::run_migrations(&mut conn, unique()).expect_err("all are 0");
    let is_interrupted = matches!(
        &error,
        Error::InterruptedMigration { migration, source: Some(_) } if migration == "1_unique"
    );
    assert!(is_interrupted, "{error:?}");
    Postgres::sql(&mut conn, "UPDATE counters SET n = id");
    let ran = diesel_locks::run_migrations(&mut conn, unique()).expect("each n once");
    assert_eq!(ran, ["1"]);
    assert_eq!(Postgres::number(&mut conn, valid), 1);
}

/// Its session ends while it waits for a writer, and another replica waits for the lock.
#[test]
fn index_of_a_terminated_session_is_built_by_the_next() {
    let database = Postgres::new();
    let mut writer = database.connect();
    begin(&mut writer);
    Postgres::sql(&mut writer, "UPDATE counters SET n = 1");
    let replica = || {
        let mut conn = database.connect();
        spawn(move || {
            let sql = "CREATE INDEX CONCURRENTLY counters_n ON counters (n)";
            diesel_locks::run_migrations(&mut conn, Steps(vec![Step("1_index", sql, false)]))
        })
    };
    let mut watcher = database.connect();
    let mut is_one = |count| until(|| Postgres::number(&mut watcher, count) == 1);
    let first = replica();
    let invalid = "SELECT count(*) FROM pg_index WHERE indexrelid = to_regclass('counters_n') AND NOT indisvalid";
    is_one(invalid);
    let next = replica();
    is_one(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
         AND query LIKE 'SELECT%pg_try_advisory_lock%' AND pid <> pg_backend_pid()",
    );
    is_one(
        "SELECT count(pg_terminate_backend(pid, 30000)) FROM pg_stat_activity \
         WHERE datname = current_database() AND query LIKE 'CREATE INDEX%'",
    );
    let error = result_of(&first).expect_err("its session has ended");
    assert!(matches!(error, Error::Migration(_)), "{error:?}");
    is_one(invalid);
    roll_back(&mut writer);
    let ran = result_of(&next).expect("the lock is free");
    assert_eq!(ran, ["1"]);
    is_one(
        "SELECT count(*) FROM pg_index WHERE indexrelid = to_regclass('counters_n') AND indisvalid",
    );
}
