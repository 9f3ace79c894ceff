//! What MySQL and MariaDB show of object locks.

use std::sync::Arc;

use diesel::mysql::MysqlConnection;
use diesel_locks::prelude::*;
use diesel_locks::{Error, HeldObjectLock, InspectExt, Retention};

use crate::behaviour::held_locks::{alone, pause};
use crate::support::Backend;
use crate::support::mysql::Mysql;
use crate::support::privileges::{User, documented_grants};
use crate::support::threads::{Holder, LONG, result_of, spawn};
use crate::support::wrapped_backend::Wrapper;

/// Asks until this number of sessions is shown to wait, and returns the locks. MariaDB may return what another session has read
/// before, and a statement that waits soon.
fn await_waiters(conn: &mut MysqlConnection, waiters: usize) -> Vec<HeldObjectLock> {
    let started = std::time::Instant::now();
    loop {
        let locks = conn.held_object_locks(9).expect("locks");
        if locks.iter().map(|lock| lock.waiters.len()).sum::<usize>() == waiters {
            return locks;
        }
        assert!(started.elapsed() < LONG, "{waiters}: {locks:?}");
        pause();
    }
}

#[test]
fn privilege_of_an_operator_is_named() {
    let _alone = alone();
    let mut users = Vec::new();
    let database = Arc::new(Mysql::new());
    let mysql = Mysql::lock_view(&mut database.connect()).without_waiters;
    let (privilege, grant) = if mysql {
        (
            "SELECT",
            "GRANT SELECT ON performance_schema.* TO 'app'@'%'",
        )
    } else {
        ("PROCESS", "GRANT PROCESS ON *.* TO 'app'@'%'")
    };
    let [_, mut grants] = documented_grants();
    let kept = || LockRequest::new("a").retention(Retention::Kept);
    let lock =
        move |conn: &mut MysqlConnection| conn.with_object_lock(kept(), |_| Ok::<_, Error>(()));
    lock(&mut database.connect()).expect("free");
    let holder = Holder::acquire(&database, kept());
    let waiting = {
        let database = Arc::clone(&database);
        spawn(move || lock(&mut database.connect()))
    };
    database.await_waiting(1);
    let user = User::with(&database, &grants);
    let error = Mysql::connect_to(&user.url())
        .held_object_locks(9)
        .expect_err(privilege);
    users.push(user);
    assert!(error.is_insufficient_privilege(), "{error:?}");
    let Error::InsufficientPrivilege {
        object, privileges, ..
    } = &error
    else {
        unreachable!("it is");
    };
    assert_eq!(*privileges, privilege, "{error}");
    assert!(object.contains("_schema"), "{error}");

    grants.push(grant.to_owned());
    let user = User::with(&database, &grants);
    let mut conn = Mysql::connect_to(&user.url());
    users.push(user);
    let locks = await_waiters(&mut conn, 1);
    assert_eq!(locks.len(), 1, "{locks:?}");
    assert_eq!(locks[0].id.as_deref(), Some("a"));
    assert_eq!(locks[0].waiters.len(), 1, "{locks:?}");
    assert!(
        locks[0].holder.started_at.is_some() && locks[0].holder.user.is_some(),
        "{locks:?}"
    );
    holder.release();
    result_of(&waiting).expect("the lock");
    drop(users);
}

/// Whatever the time zone of the session.
#[test]
fn times_of_locks_do_not_depend_on_the_time_zone() {
    let _alone = alone();
    let database = Arc::new(Mysql::new());
    let kept = || LockRequest::new("a").retention(Retention::Kept);
    let free = database
        .connect()
        .with_object_lock(kept(), |_| Ok::<_, Error>(()));
    free.expect("free");
    let holder = Holder::acquire(&database, kept());
    let waiting = {
        let database = Arc::clone(&database);
        spawn(move || {
            database
                .connect()
                .with_object_lock(kept(), |_| Ok::<_, Error>(()))
        })
    };
    database.await_waiting(1);
    let mut times = Vec::new();
    for zone in ["+13:00", "-12:00", "SYSTEM"] {
        let mut conn = database.connect();
        Mysql::sql(&mut conn, &format!("SET time_zone = '{zone}'"));
        let lock = await_waiters(&mut conn, 1).remove(0);
        let waited = lock.waiters[0].waited.expect("a time");
        assert!(waited.as_secs() < 30, "{lock:?}");
        let started = lock.holder.started_at.expect("a time");
        let since = lock.waiters[0].waiting_since.expect("a time");
        times.push([started, since].map(|time| time.timestamp_millis()));
    }
    for time in &times {
        for (time, first) in time.iter().zip(times[0]) {
            assert!((time - first).abs() < 1_000, "{times:?}");
        }
    }
    holder.release();
    result_of(&waiting).expect("the lock");
}

/// MariaDB quotes the names of tables by them.
#[test]
fn locks_are_shown_with_any_quotes_of_the_session() {
    let _alone = alone();
    let database = Arc::new(Mysql::new());
    let kept = || LockRequest::new("a").retention(Retention::Kept);
    let lock =
        move |conn: &mut MysqlConnection| conn.with_object_lock(kept(), |_| Ok::<_, Error>(()));
    lock(&mut database.connect()).expect("free");
    let holder = Holder::acquire(&database, kept());
    let waiting = {
        let database = Arc::clone(&database);
        spawn(move || lock(&mut database.connect()))
    };
    database.await_waiting(1);
    for settings in [
        "SET SESSION sql_quote_show_create = 1",
        "SET SESSION sql_quote_show_create = 0",
        "SET SESSION sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')",
        "SET SESSION sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES'), sql_quote_show_create = 0",
    ] {
        let mut conn = database.connect();
        Mysql::sql(&mut conn, settings);
        // The first call may return what another session has read, with its quotes.
        for _ in 0..2 {
            pause();
            let locks = await_waiters(&mut conn, 1);
            assert_eq!(locks.len(), 1, "{settings}: {locks:?}");
            assert_eq!(locks[0].id.as_deref(), Some("a"), "{settings}");
        }
    }
    holder.release();
    result_of(&waiting).expect("the lock");
}

/// `sql_select_limit` cuts off results, and a small `max_join_size` refuses joins.
#[test]
fn limits_of_rows_do_not_shorten_the_list_of_locks() {
    let _alone = alone();
    let database = Arc::new(Mysql::new());
    let mut conn = database.connect();
    Mysql::sql(
        &mut conn,
        "SET SESSION sql_select_limit = 1, SESSION max_join_size = 1",
    );
    let holders = ["a", "b"].map(|id| Holder::acquire(&database, id));
    let waiters = ["a", "a", "b", "b"].map(|id| {
        let mut conn = database.connect();
        spawn(move || conn.with_object_lock(id, |_| Ok::<_, Error>(())))
    });
    // MariaDB shows the first one that waits for each transient lock.
    let shown = if Mysql::lock_view(&mut conn).all_waiters {
        4
    } else {
        2
    };
    let locks = await_waiters(&mut conn, shown);
    assert_eq!(locks.len(), 2, "{locks:?}");
    for holder in holders {
        holder.release();
    }
    for waiter in waiters {
        result_of(&waiter).expect("free");
    }
}
