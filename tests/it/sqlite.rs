//! SQLite.

use std::sync::Arc;

use diesel::connection::{AnsiTransactionManager, SimpleConnection};
use diesel::prelude::*;
use diesel_locks::Error;
use diesel_locks::prelude::*;

use crate::support::Backend;
use crate::support::sqlite::Sqlite;
use crate::support::threads::{meanwhile, result_of};

crate::all_promises!(Sqlite);

#[test]
fn locks_work_in_memory() {
    let mut conn = SqliteConnection::establish(":memory:").expect("open");
    diesel_locks::migrate(&mut conn).expect("migrate");
    conn.with_object_lock("a", |conn| conn.lock_object("b"))
        .expect("free");
}

/// A refusal needs no right to write.
#[test]
fn a_full_semaphore_refuses_while_another_writes() {
    let database = Sqlite::new();
    let mut conn = database.connect();
    let one = Semaphore::new("one", 1);
    let hour = || Lease::new(std::time::Duration::from_secs(3600));
    let slot = conn.acquire_slot(&one, hour(), Wait::No).expect("free");
    let mut writer = database.connect();
    AnsiTransactionManager::begin_transaction_sql(&mut writer, "BEGIN IMMEDIATE").expect("begin");
    let refused = conn.try_acquire_slot(&one, hour()).expect("an answer");
    assert_eq!(refused, None);
    assert_eq!(conn.held_slots(&one).expect("rows").len(), 1);
    writer.batch_execute("COMMIT").expect("commit");
    conn.release_slot(slot).expect("ours");
}

/// A transaction that has not read yet waits for the writer, and then sees what that committed.
#[test]
fn a_deferred_transaction_that_locks_first_reads_fresh() {
    let database = Arc::new(Sqlite::new());
    let mut writer = database.connect();
    AnsiTransactionManager::begin_transaction_sql(&mut writer, "BEGIN IMMEDIATE").expect("begin");
    Sqlite::sql(&mut writer, "UPDATE counters SET n = 7 WHERE id = 0");
    let waiter = {
        let database = Arc::clone(&database);
        meanwhile(move || {
            database.connect().transaction(|conn| {
                conn.lock_object("a")?;
                Ok::<_, Error>(Sqlite::counter(conn, 0))
            })
        })
    };
    assert!(
        waiter
            .recv_timeout(std::time::Duration::from_millis(100))
            .is_err()
    );
    writer.batch_execute("COMMIT").expect("commit");
    assert_eq!(result_of(&waiter).expect("the lock comes free"), 7);
}

#[test]
fn a_rollback_journal_works_too() {
    let database = Arc::new(Sqlite::new());
    Sqlite::sql(&mut database.connect(), "PRAGMA journal_mode = DELETE");
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let database = Arc::clone(&database);
            meanwhile(move || {
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
