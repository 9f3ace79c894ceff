//! `run_migrations`.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};

use diesel::Connection;
use diesel::backend::Backend as DieselBackend;
use diesel::connection::{BoxableConnection, InstrumentationEvent};
use diesel::migration::{
    Migration, MigrationMetadata, MigrationName, MigrationSource, MigrationVersion, Result,
};
use diesel::sqlite::Sqlite as DieselSqlite;
use diesel_locks::Error;

use crate::subprocess::Subprocess;
use crate::support::Backend;
use crate::support::backend::MIGRATIONS;
use crate::support::mysql::Mysql;
use crate::support::postgres::Postgres;
use crate::support::sqlite::Sqlite;
use crate::support::threads::{begin, roll_back};

/// A migration: name, SQL, and whether it runs in a transaction.
#[derive(Clone, Debug)]
pub(crate) struct Step(
    pub(crate) &'static str,
    pub(crate) &'static str,
    pub(crate) bool,
);

pub(crate) struct Steps(pub(crate) Vec<Step>);

impl<DB: DieselBackend> MigrationSource<DB> for Steps {
    fn migrations(&self) -> Result<Vec<Box<dyn Migration<DB>>>> {
        let boxed = |step: &Step| Box::new(step.clone()) as Box<dyn Migration<DB>>;
        // The order is that of the versions.
        Ok(self.0.iter().rev().map(boxed).collect())
    }
}

impl<DB: DieselBackend> Migration<DB> for Step {
    fn run(&self, conn: &mut dyn BoxableConnection<DB>) -> Result<()> {
        Ok(conn.batch_execute(self.1)?)
    }

    fn revert(&self, _: &mut dyn BoxableConnection<DB>) -> Result<()> {
        Err("not asked for".into())
    }

    fn metadata(&self) -> &dyn MigrationMetadata {
        self
    }

    fn name(&self) -> &dyn MigrationName {
        self
    }
}

impl MigrationMetadata for Step {
    fn run_in_transaction(&self) -> bool {
        self.2
    }
}

impl MigrationName for Step {
    fn version(&self) -> MigrationVersion<'_> {
        self.0.split('_').next().expect("a version").into()
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

const CREATE: Step = Step(
    "1_create",
    "CREATE TABLE app_rows (id INTEGER PRIMARY KEY, n INTEGER NOT NULL); INSERT INTO app_rows VALUES (1, 0)",
    true,
);
const COUNT: Step = Step("2_count", "UPDATE app_rows SET n = n + 1", true);
const COUNT_AGAIN: Step = Step("4_count", "UPDATE app_rows SET n = n + 10", true);

/// Which can't run in a transaction, on MySQL and MariaDB by its metadata.
fn outside<B: Backend>() -> Step {
    let sql = match B::ENGINE {
        Postgres::NAME => "CREATE INDEX CONCURRENTLY IF NOT EXISTS app_rows_n ON app_rows (n)",
        Sqlite::NAME => "VACUUM; CREATE TABLE IF NOT EXISTS app_more (id INTEGER PRIMARY KEY)",
        _ => "CREATE TABLE IF NOT EXISTS app_more (id INTEGER PRIMARY KEY)",
    };
    Step("3_outside", sql, false)
}

pub(crate) fn steps<B: Backend>() -> Steps {
    Steps(vec![CREATE, COUNT, outside::<B>(), COUNT_AGAIN])
}

/// Each has run once, is recorded, and is not taken for interrupted.
pub(crate) fn assert_ran_once<B: Backend>(conn: &mut B::Conn) {
    assert_eq!(B::number(conn, "SELECT n FROM app_rows"), 11);
    let recorded =
        "SELECT count(*) FROM __diesel_schema_migrations WHERE version IN ('1', '2', '3', '4')";
    assert_eq!(B::number(conn, recorded), 4);
    let begun = "SELECT count(*) FROM __diesel_locks_begun_migrations";
    assert_eq!(B::number(conn, begun), 0);
}

pub(crate) fn four_replicas_run_each_migration_once<B: Backend>() {
    let database = Arc::new(B::empty());
    let together = Arc::new(Barrier::new(4));
    let replicas: Vec<_> = (0..4)
        .map(|_| {
            let (database, together) = (Arc::clone(&database), Arc::clone(&together));
            std::thread::spawn(move || {
                let mut conn = database.connect();
                together.wait();
                diesel_locks::run_migrations(&mut conn, steps::<B>()).expect("it waits")
            })
        })
        .collect();
    let ran = replicas
        .into_iter()
        .flat_map(|replica| replica.join().expect("no panic"));
    assert_eq!(ran.count(), MIGRATIONS + 4, "each migration once");
    let mut conn = database.connect();
    assert_ran_once::<B>(&mut conn);
    let ran = diesel_locks::migrate(&mut conn).expect("the tables are those of this crate");
    assert!(ran.is_empty(), "{ran:?}");
}

/// Another replica runs all before this one has the lock.
pub(crate) fn list_is_read_again_under_the_lock<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut other = Some(database.connect());
    conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
        if let InstrumentationEvent::StartQuery { query, .. } = event {
            let query = query.to_string();
            let locks = ["pg_try_advisory_lock", "GET_LOCK", "BEGIN IMMEDIATE"];
            if locks.iter().any(|lock| query.contains(lock))
                && let Some(mut other) = other.take()
            {
                let ran = diesel_locks::run_migrations(&mut other, steps::<B>());
                assert_eq!(ran.expect("the lock is free").len(), 4);
            }
        }
    });
    let ran = diesel_locks::run_migrations(&mut conn, steps::<B>()).expect("nothing to do");
    assert!(ran.is_empty(), "{ran:?}");
    assert_ran_once::<B>(&mut conn);
}

/// What ran is returned in the order of the versions. With nothing to do it writes nothing.
pub(crate) fn migrations_run_in_order_and_only_if_pending<B: Backend>() {
    let database = B::empty();
    let mut conn = database.connect();
    let first = Steps(vec![CREATE]);
    let ran = diesel_locks::run_migrations(&mut conn, first).expect("one");
    assert_eq!(ran.len(), MIGRATIONS + 1);
    let ran = diesel_locks::run_migrations(&mut conn, steps::<B>()).expect("the others");
    assert_eq!(ran, ["2", "3", "4"]);
    let mut reader = B::read_only_to(&database.url());
    let ran = diesel_locks::run_migrations(&mut reader, steps::<B>()).expect("nothing to do");
    assert!(ran.is_empty(), "{ran:?}");
    assert_ran_once::<B>(&mut conn);
}

pub(crate) fn migrations_in_an_open_transaction_are_refused<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    begin(&mut conn);
    let error = diesel_locks::run_migrations(&mut conn, steps::<B>()).expect_err("a transaction");
    let method = match error {
        Error::AlreadyInTransaction { method, .. } => method,
        error => panic!("{error:?}"),
    };
    assert_eq!(method, "run_migrations");
    roll_back(&mut conn);
    let ran = diesel_locks::run_migrations(&mut conn, steps::<B>()).expect("none is open");
    assert_eq!(ran.len(), 4);
}

/// The lock is free after an error, and the migrations before it are recorded.
pub(crate) fn failed_migration_of_the_application_leaves_no_lock<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let failing = Step("2_failing", "INSERT INTO missing VALUES (1)", true);
    let begins_itself = "BEGIN; INSERT INTO missing VALUES (1); COMMIT";
    let begins_itself = Step("2_failing", begins_itself, false);
    let mut steps_that_fail = vec![failing, begins_itself];
    // On MySQL and MariaDB the second is taken for interrupted.
    steps_that_fail.truncate(if [Postgres::NAME, Sqlite::NAME].contains(&B::ENGINE) {
        2
    } else {
        1
    });
    for failing in steps_that_fail {
        let failing = Steps(vec![CREATE, failing]);
        let error = diesel_locks::run_migrations(&mut conn, failing).expect_err("no such table");
        let Error::Migration(cause) = error else {
            panic!("{error:?}");
        };
        let failed = "Failed to run 2_failing with: ";
        assert!(cause.to_string().starts_with(failed), "{cause}");
    }
    let mut other = database.connect();
    let ran = diesel_locks::run_migrations(&mut other, steps::<B>()).expect("free");
    assert_eq!(ran, ["2", "3", "4"]);
    assert_ran_once::<B>(&mut other);
}

/// A migration that asks for the connection.
struct InRust;

impl Migration<DieselSqlite> for InRust {
    fn run(&self, conn: &mut dyn BoxableConnection<DieselSqlite>) -> Result<()> {
        let conn = conn.downcast_mut::<diesel::SqliteConnection>();
        conn.map(drop).ok_or("another connection".into())
    }

    fn revert(&self, _: &mut dyn BoxableConnection<DieselSqlite>) -> Result<()> {
        Err("not asked for".into())
    }

    fn metadata(&self) -> &dyn MigrationMetadata {
        &CREATE
    }

    fn name(&self) -> &dyn MigrationName {
        &CREATE
    }
}

struct SourceInRust;

impl MigrationSource<DieselSqlite> for SourceInRust {
    fn migrations(&self) -> Result<Vec<Box<dyn Migration<DieselSqlite>>>> {
        Ok(vec![Box::new(InRust)])
    }
}

/// Before anything has run.
#[test]
fn migration_in_rust_is_refused() {
    let database = Sqlite::empty();
    let mut conn = database.connect();
    let error = diesel_locks::run_migrations(&mut conn, SourceInRust).expect_err("no SQL");
    let Error::Migration(cause) = error else {
        panic!("{error:?}");
    };
    assert_eq!(cause.to_string(), "another connection");
    let ran = diesel_locks::migrate(&mut conn).expect("nothing has run");
    assert_eq!(ran.len(), MIGRATIONS);
}

/// In a subprocess: ends it at the event of this number, before or after a statement of [`run_migrations`], as `kill -9` does.
pub(crate) fn migrate_and_die<B: Backend>(url: &str, at: &str) {
    let mut conn = B::connect_to(url);
    let last: u32 = at.parse().expect("a number");
    let seen = AtomicU32::new(0);
    println!("held");
    conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
        let counts = matches!(
            event,
            InstrumentationEvent::StartQuery { .. } | InstrumentationEvent::FinishQuery { .. }
        );
        if counts && seen.fetch_add(1, Ordering::Relaxed) == last {
            let this = rustix::process::getpid();
            rustix::process::kill_process(this, rustix::process::Signal::KILL).expect("it runs");
        }
    });
    diesel_locks::run_migrations(&mut conn, steps::<B>()).expect("no error");
}

/// A process is killed before and after each of its statements. MySQL and MariaDB have then committed a part of the first migration,
/// which is undone by hand.
pub(crate) fn replicas_killed_at_each_statement_get_to_the_end<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut interrupted = 0;
    for at in 0.. {
        let was_killed = Subprocess::migrating::<B>(&database.url(), at).was_killed();
        let ran = match diesel_locks::run_migrations(&mut conn, steps::<B>()) {
            Err(Error::InterruptedMigration { migration, source }) => {
                assert_eq!((migration.as_str(), source.is_none()), ("1_create", true));
                interrupted += 1;
                B::sql(&mut conn, "DROP TABLE IF EXISTS app_rows");
                B::sql(&mut conn, "DELETE FROM __diesel_locks_begun_migrations");
                diesel_locks::run_migrations(&mut conn, steps::<B>())
            }
            ran => ran,
        };
        let ran = ran.expect("the lock is free, and nothing is left");
        assert_ran_once::<B>(&mut conn);
        if !was_killed {
            assert!(ran.is_empty(), "{ran:?}");
            assert!(at > 20, "{at}");
            break;
        }
        B::sql(&mut conn, "DROP TABLE app_rows");
        let forget = "DELETE FROM __diesel_schema_migrations WHERE version IN ('1', '2', '3', '4')";
        B::sql(&mut conn, forget);
        let _ = B::try_sql(&mut conn, "DROP TABLE app_more");
    }
    assert_eq!(interrupted > 0, B::ENGINE == Mysql::NAME, "{interrupted}");
}
