//! `kill -9` of the server while a lock is held.
//!
//! The servers are others than those of the other tests, which would not like it. `cargo xtask test`
//! starts them, durable, with a program that kills one; they start again by themselves.

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, Retention};

use crate::behaviour::exclusion::begin_for_locks;
use crate::behaviour::slots::slots_of;
use crate::support::threads::LONG;
use crate::support::{Backend, mysql::Mysql, postgres::Postgres};

/// One test at a time uses these servers.
static IN_USE: Mutex<()> = Mutex::new(());

/// A server whose state a test may change for all sessions.
pub(crate) struct OwnServer {
    pub(crate) url: String,
    /// Kills the server.
    command: String,
    _in_use: MutexGuard<'static, ()>,
}

/// The URL of the server, and the program: by the variables `<name>_CRASH_URL`, `<name>_CRASH_COMMAND`.
/// Without such servers set `DIESEL_LOCKS_TEST_WITHOUT_CRASHES`.
pub(crate) fn own_server(name: &str) -> Option<OwnServer> {
    if std::env::var_os("DIESEL_LOCKS_TEST_WITHOUT_CRASHES").is_some() {
        return None;
    }
    let variable = |what: &str| {
        let variable = format!("{name}_CRASH_{what}");
        std::env::var(&variable).unwrap_or_else(|_| {
            panic!(
                "{variable} is not set: run the tests with `cargo xtask test`, or set \
                 DIESEL_LOCKS_TEST_WITHOUT_CRASHES=1 to leave this one out"
            )
        })
    };
    Some(OwnServer {
        url: variable("URL"),
        command: variable("COMMAND"),
        _in_use: IN_USE.lock().unwrap_or_else(PoisonError::into_inner),
    })
}

fn nothing_is_left<B: Backend>(name: &str, on: impl FnOnce(&str) -> B) {
    let Some(server) = own_server(name) else {
        return;
    };
    let (url, command) = (&server.url, &server.command);
    let database = on(url);
    let mut conn = database.connect();
    diesel_locks::migrate(&mut conn).expect("migrate");
    B::sql(
        &mut conn,
        "CREATE TABLE counters (id INTEGER NOT NULL PRIMARY KEY, n BIGINT NOT NULL)",
    );
    B::sql(&mut conn, "INSERT INTO counters VALUES (0, 0)");
    conn.with_object_lock("counter", |conn| {
        B::count_up(conn, 0);
        Ok::<_, Error>(())
    })
    .expect("free");

    let two = Semaphore::new("two", 2);
    let one_hour = || LeaseOptions::new(Duration::from_secs(3600));
    let slot = conn.acquire_slot(&two, one_hour(), Wait::No).expect("free");

    begin_for_locks::<B>(&mut conn);
    let uncommitted = conn.acquire_slot(&two, one_hour(), Wait::No).expect("free");
    conn.lock_object("counter").expect("free");
    conn.lock_object(LockRequest::new("kept").retention(Retention::Kept))
        .expect("free");
    B::count_up(&mut conn, 0);
    let status = Command::new(command).status().expect(command);
    assert!(status.success(), "{command}: {status}");

    let lost = conn
        .lock_object("other")
        .expect_err("the server is another one");
    assert!(!lost.is_retryable() && !lost.is_timeout(), "{lost:?}");
    drop(conn);
    let started = Instant::now();
    while !B::is_reachable(url) {
        assert!(started.elapsed() < LONG, "the server does not come back");
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut conn = database.connect();
    assert_eq!(database.rows(), 0);
    assert_eq!(
        B::counter(&mut conn, 0),
        1,
        "what was committed, and no more"
    );
    // Leases and fences are durable, other than locks.
    let held = conn.held_slots(&slots_of(&two)).expect("rows");
    assert_eq!(held.len(), 1);
    assert_eq!(held[0].token, Some(slot.token()));
    let next = conn.acquire_slot(&two, one_hour(), Wait::No).expect("free");
    assert!(next.fence() > slot.fence() && next.fence() > uncommitted.fence());
    assert!(
        conn.release_slot(uncommitted)
            .expect_err("undone")
            .is_slot_lost()
    );
    conn.release_slot(slot).expect("ours");
    for id in ["counter", "kept"] {
        let tried = conn
            .try_with_object_lock(id, |_| Ok::<_, Error>(()))
            .expect("the table is there");
        assert_eq!(tried, Some(()), "{id}");
    }
}

#[test]
fn postgres_leaves_nothing_locked_after_a_crash() {
    nothing_is_left("PG", Postgres::empty_on);
}

#[test]
fn mysql_leaves_nothing_locked_after_a_crash() {
    nothing_is_left("MYSQL", Mysql::empty_on);
}
