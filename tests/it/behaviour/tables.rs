//! The migrations.

use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};

use diesel::Connection;
use diesel::connection::InstrumentationEvent;
use diesel::migration::CREATE_MIGRATIONS_TABLE;
use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt};

use super::slots::{one_hour, single_slot, slots_of};
use crate::support::Backend;
use crate::support::backend::MIGRATIONS;
use crate::support::threads::{result_of, spawn};

pub(crate) fn eight_servers_migrate_at_once<B: Backend>() {
    eight_servers_migrate::<B>(|_| ());
    eight_servers_migrate::<B>(B::serializable);
}

/// Each after it has prepared its session.
fn eight_servers_migrate<B: Backend>(prepare: fn(&mut B::Conn)) {
    let database = Arc::new(B::empty());
    let together = Arc::new(Barrier::new(8));
    let servers: Vec<_> = (0..8)
        .map(|_| {
            let (database, together) = (Arc::clone(&database), Arc::clone(&together));
            std::thread::spawn(move || {
                together.wait();
                let mut conn = database.connect();
                prepare(&mut conn);
                let ran = diesel_locks::migrate(&mut conn).expect("migrate");
                conn.with_object_lock("a", |_| Ok::<_, Error>(()))
                    .expect("the table is there");
                ran.len()
            })
        })
        .collect();
    let ran: usize = servers
        .into_iter()
        .map(|server| server.join().expect("no error"))
        .sum();
    assert_eq!(ran, MIGRATIONS, "each migration once");
}

/// Another session migrates when the first one has looked at the tables, and not yet at the records.
pub(crate) fn migrations_that_run_between_two_looks_are_seen<B: Backend>() {
    let database = B::empty();
    let mut conn = database.connect();
    // Those of the application have run.
    B::sql(&mut conn, CREATE_MIGRATIONS_TABLE);
    let mut other = Some(database.connect());
    let (migrated, has_migrated) = channel();
    conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
        if let InstrumentationEvent::StartQuery { query, .. } = event {
            let query = query.to_string();
            let reads_records = query.starts_with("SELECT")
                && query.contains("__diesel_schema_migrations")
                && query.contains("version")
                && !query.contains("LIKE");
            if reads_records && let Some(mut other) = other.take() {
                let ran = diesel_locks::migrate(&mut other).expect("migrate");
                migrated.send(ran.len()).expect("the test waits");
            }
        }
    });
    let ran = diesel_locks::migrate(&mut conn).expect("nothing is left to do");
    assert!(ran.is_empty(), "{ran:?}");
    assert_eq!(has_migrated.try_recv(), Ok(MIGRATIONS));
}

/// The second one, as another table has the name of one of its tables.
pub(crate) fn failed_migration_leaves_no_lock_and_no_transaction<B: Backend>() {
    let database = B::empty();
    let mut conn = database.connect();
    B::sql(
        &mut conn,
        "CREATE TABLE diesel_locks_fences (other INTEGER)",
    );
    for _ in 0..2 {
        let error = diesel_locks::migrate(&mut conn).expect_err("another table");
        let Error::Migration(cause) = error else {
            panic!("{error:?}");
        };
        let failed = "Failed to run 00000000000000-diesellocks-0002_semaphores with: ";
        assert!(cause.to_string().starts_with(failed), "{cause}");
    }
    B::sql(&mut conn, "DROP TABLE diesel_locks_fences");
    let mut other = database.connect();
    let migrating = spawn(move || diesel_locks::migrate(&mut other));
    let ran = result_of(&migrating).expect("migrate");
    let last = ran.last().map(String::as_str);
    assert_eq!(last, Some("00000000000000diesellocks0003"));
    let recorded = "SELECT count(*) FROM __diesel_schema_migrations";
    let recorded = B::number(&mut conn, recorded);
    assert_eq!(usize::try_from(recorded), Ok(MIGRATIONS));
}

pub(crate) fn down_migrations_leave_nothing<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    B::revert_all_migrations(&mut conn);
    let error = conn
        .with_object_lock("a", |_| Ok::<_, Error>(()))
        .expect_err("no table");
    assert!(error.is_missing_tables(), "{error:?}");
    assert_eq!(
        diesel_locks::migrate(&mut conn).expect("up again").len(),
        MIGRATIONS
    );
    assert_eq!(database.rows(), 0);
}

pub(crate) fn our_migration_sorts_before_the_applications<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let ours = B::number(
        &mut conn,
        "SELECT count(*) FROM __diesel_schema_migrations WHERE version LIKE '00000000000000diesellocks%'",
    );
    assert_eq!(usize::try_from(ours), Ok(MIGRATIONS));
    let before = B::number(
        &mut conn,
        "SELECT count(*) FROM __diesel_schema_migrations WHERE version < '00000000000001'",
    );
    assert_eq!(before, ours);
}

pub(crate) fn a_missing_table_of_slots_names_migrate<B: Backend>() {
    let database = B::empty();
    let mut conn = database.connect();
    let error = conn
        .try_acquire_slot(&single_slot(), one_hour())
        .expect_err("no table");
    assert!(error.is_missing_tables(), "{error:?}");
    let error = conn.held_slots(&slots_of("one")).expect_err("no table");
    assert!(error.is_missing_tables(), "{error:?}");
}

pub(crate) fn a_missing_table_of_sequences_names_migrate<B: Backend>() {
    let database = B::empty();
    let mut conn = database.connect();
    let sequence = Sequence::new("invoice");
    let drawn = conn.transaction(|conn| conn.next_number(&sequence).map(drop));
    let read: Result<(), Error> = conn.last_number(&sequence).map(drop);
    for result in [drawn, read] {
        let error = result.expect_err("no table");
        assert!(error.is_missing_tables(), "{error:?}");
    }
}

/// With nothing to create it needs no privilege. Otherwise the error says what is missing.
pub(crate) fn migrate_writes_only_what_is_missing<B: Backend>() {
    let migrated = B::new();
    let mut conn = B::read_only_to(&migrated.url());
    let ran = diesel_locks::migrate(&mut conn).expect("nothing to create");
    assert!(ran.is_empty(), "{ran:?}");

    let empty = B::empty();
    let mut conn = B::read_only_to(&empty.url());
    let error = diesel_locks::migrate(&mut conn).expect_err("a read-only session");
    assert!(error.is_read_only(), "{error:?}");
    let ran = diesel_locks::migrate(&mut empty.connect()).expect("migrate");
    assert_eq!(ran.len(), MIGRATIONS);
}

/// Also without the records, as for a user who may not read them.
pub(crate) fn migrate_names_what_tables_of_another_version_lack<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    B::sql(
        &mut conn,
        "ALTER TABLE diesel_locks_sequences RENAME COLUMN last TO final",
    );
    let error = diesel_locks::migrate(&mut conn).expect_err("another column");
    let Error::DifferentTables { missing } = error else {
        panic!("{error:?}");
    };
    let column = missing.to_ascii_lowercase();
    assert_eq!(column, "diesel_locks_sequences.last bigint");
    B::sql(&mut conn, "DROP TABLE diesel_locks_sequences");
    let error = diesel_locks::migrate(&mut conn).expect_err("no table");
    assert!(
        error.to_string().contains("diesel_locks_sequences.name"),
        "{error}"
    );
}
