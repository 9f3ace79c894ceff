//! Backups of MariaDB, which let no session commit for a moment. MySQL has no such statement.

use std::time::Duration;

use diesel::MysqlConnection;
use diesel::r2d2::R2D2Connection;
use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, RetryPolicy};

use crate::behaviour::slots::{one_hour, slots_of};
use crate::crash::own_server;
use crate::support::Backend;
use crate::support::mysql::Mysql;
use crate::support::threads::{result_of, spawn};

/// Runs the test on a server that no other uses meanwhile, if there is one and it is MariaDB.
fn with_database(test: impl FnOnce(&Mysql)) {
    let Some(server) = own_server("MYSQL") else {
        return;
    };
    let database = Mysql::empty_on(&server.url).with_tables();
    if Mysql::number(&mut database.connect(), "VERSION() LIKE '%MariaDB%'") == 1 {
        test(&database);
    }
}

fn block_commits(conn: &mut MysqlConnection) {
    for stage in ["START", "FLUSH", "BLOCK_DDL", "BLOCK_COMMIT"] {
        Mysql::sql(conn, &format!("BACKUP STAGE {stage}"));
    }
}

fn allow_commits(conn: &mut MysqlConnection) {
    Mysql::sql(conn, "BACKUP STAGE END");
}

fn timed_out<T: std::fmt::Debug>(result: Result<T, Error>) {
    let error = result.expect_err("nothing is committed");
    let by_the_server = matches!(
        error,
        Error::LockTimeout {
            source: Some(_),
            ..
        }
    );
    assert!(by_the_server, "{error:?}");
}

/// A free slot is not called held.
#[test]
fn lease_that_a_backup_delays_is_a_time_out_and_no_refusal() {
    with_database(|database| {
        for permits in [2, 200] {
            let semaphore = Semaphore::new(format!("of {permits}"), permits);
            let (mut conn, mut backup) = (database.connect(), database.connect());
            let slot = conn.acquire_slot(&semaphore, one_hour(), Wait::No);
            conn.release_slot(slot.expect("free")).expect("ours");
            block_commits(&mut backup);
            let tried = conn.try_acquire_slot(&semaphore, one_hour());
            let short = Wait::AtMost(Duration::from_millis(50));
            let waited = conn.acquire_slot(&semaphore, one_hour(), short);
            let held = conn.try_with_slot(&semaphore, |_| Ok::<_, Error>(()));
            let without_limit = {
                let (semaphore, mut conn) = (semaphore.clone(), database.connect());
                spawn(move || conn.acquire_slot(&semaphore, one_hour(), Wait::Forever))
            };
            let early = without_limit.recv_timeout(Duration::from_millis(50));
            allow_commits(&mut backup);
            timed_out(tried);
            timed_out(waited);
            assert_eq!(held.expect("it commits nothing"), Some(()));
            assert!(early.is_err(), "{early:?}");
            let slot = result_of(&without_limit).expect("the wait goes on");
            conn.release_slot(slot).expect("granted once");
            assert!(
                conn.held_slots(&slots_of(&semaphore))
                    .expect("rows")
                    .is_empty()
            );
        }
    });
}

/// Every slot that is locked is still called held during a backup.
#[test]
fn slots_held_during_a_backup_are_refused() {
    with_database(|database| {
        let one = Semaphore::new("one", 1);
        let (mut conn, mut backup) = (database.connect(), database.connect());
        let slot = conn.acquire_slot(&one, one_hour(), Wait::No);
        block_commits(&mut backup);
        let tried = conn.try_acquire_slot(&one, one_hour());
        allow_commits(&mut backup);
        assert_eq!(tried.expect("an answer"), None);
        conn.release_slot(slot.expect("free")).expect("ours");
        let tried = conn
            .with_slot(&one, Wait::No, |_| {
                block_commits(&mut backup);
                let tried = database.connect().try_acquire_slot(&one, one_hour());
                allow_commits(&mut backup);
                Ok::<_, Error>(tried)
            })
            .expect("free");
        assert_eq!(tried.expect("an answer"), None);
    });
}

/// The server has rolled back: that is known, and the transaction may be run again.
#[test]
fn commit_that_a_backup_delays_too_long_is_rolled_back() {
    with_database(|database| {
        let (mut conn, mut backup) = (database.connect(), database.connect());
        Mysql::sql(&mut conn, "SET SESSION lock_wait_timeout = 0");
        let session = Mysql::session(&mut conn);
        let result = conn.with_object_lock("a", |conn| {
            Mysql::count_up(conn, 0);
            block_commits(&mut backup);
            Ok::<_, Error>(())
        });
        allow_commits(&mut backup);
        let error = result.expect_err("nothing is committed");
        assert!(matches!(error, Error::StatementTimeout { .. }), "{error:?}");
        assert_eq!(Mysql::counter(&mut conn, 0), 0);
        assert!(!conn.is_broken());
        assert_eq!(Mysql::session(&mut conn), session);

        let retry =
            TransactionOptions::new().retry(RetryPolicy::max_attempts(2).retry_lock_timeouts());
        let attempts = conn.run_transaction_attempts(retry, |conn, attempt| {
            if attempt == 2 {
                allow_commits(&mut backup);
            }
            Mysql::count_up(conn, 0);
            if attempt == 1 {
                block_commits(&mut backup);
            }
            Ok::<_, Error>(attempt)
        });
        assert_eq!(attempts.expect("the second time"), 2);
        assert_eq!(Mysql::counter(&mut conn, 0), 1);
    });
}
