//! Settings of a session that change what its statements do.

use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel_locks::prelude::*;
use diesel_locks::{Error, Retention, SlotRenewer};

use crate::behaviour::slots::{one_hour, single_slot};
use crate::subprocess::RENEWED_LEASE;
use crate::support::Backend;
use crate::support::mysql::Mysql;
use crate::support::threads::LONG;

fn refused<T>(result: Result<T, Error>) {
    let error = result.err().expect("an error");
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
    assert!(error.to_string().contains("autocommit"), "{error}");
}

/// A lease that is not committed would exclude nobody.
#[test]
fn sessions_without_autocommit_are_refused_leases() {
    let database = Mysql::new();
    let mut conn = database.connect();
    let mut without = database.connect();
    Mysql::sql(&mut without, "SET SESSION autocommit = 0");
    let many = Semaphore::new("many", 200);
    // With and without rows.
    for _ in 0..2 {
        for semaphore in [&single_slot(), &many] {
            refused(without.try_acquire_slot(semaphore, one_hour()));
            refused(without.acquire_slot(semaphore, one_hour(), Wait::Forever));
            let slot = conn.try_acquire_slot(semaphore, one_hour());
            let slot = slot.expect("an answer").expect("free");
            refused(without.try_acquire_slot(semaphore, one_hour()));
            refused(without.renew_slot(&mut slot.clone(), Duration::from_secs(60)));
            refused(without.release_slot(slot.clone()));
            refused(without.force_release_all(semaphore.name()));
            Mysql::sql(&mut without, "ROLLBACK");
            conn.release_slot(slot).expect("nothing has changed");
        }
    }
    let slot = conn.acquire_slot(&single_slot(), one_hour(), Wait::No);
    let slot = slot.expect("free");
    without
        .transaction(|conn| {
            conn.renew_slot(&mut slot.clone(), Duration::from_secs(60))?;
            conn.release_slot(slot)
        })
        .expect("a transaction is committed");
    without
        .with_slot(&single_slot(), Wait::No, |_| Ok::<_, Error>(()))
        .expect("so is one of this crate");
    without
        .with_object_lock("a", |_| Ok::<_, Error>(()))
        .expect("so is one of this crate");
    assert_eq!(Mysql::number(&mut without, "SELECT @@autocommit"), 0);
}

/// A renewer whose sessions lose `autocommit` after the grant neither renews nor releases.
#[test]
fn batches_without_autocommit_change_nothing() {
    let database = Mysql::new();
    let pool = Mysql::pool_to(&database.url(), 1);
    let renewer = SlotRenewer::new(pool.clone());
    let guard = renewer
        .acquire(&single_slot(), &LeaseOptions::new(RENEWED_LEASE), Wait::No)
        .expect("free");
    let mut conn = pool.get().expect("a connection");
    Mysql::sql(&mut conn, "SET SESSION autocommit = 0");
    drop(conn);
    let started = Instant::now();
    while guard.is_held() {
        assert!(started.elapsed() < LONG, "it seems to be renewed");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut conn = database.connect();
    let slot = conn.acquire_slot(&single_slot(), one_hour(), Wait::AtMost(LONG));
    let _held = slot.expect("the lease has expired");
}

/// `sql_safe_updates` refuses joins without a key, and `sql_select_limit` cuts off results.
#[test]
fn safe_updates_and_a_limit_of_rows_change_nothing() {
    let database = Mysql::new();
    let set = |conn: &mut MysqlConnection| {
        Mysql::sql(
            conn,
            "SET SESSION sql_safe_updates = 1, SESSION sql_select_limit = 1",
        );
    };
    let mut conn = database.connect();
    set(&mut conn);
    let conn = &mut conn;
    for permits in [3, 200] {
        let semaphore = Semaphore::new(format!("of {permits}"), permits);
        let slots = [(); 3].map(|()| {
            let slot = conn.try_acquire_slot(&semaphore, one_hour());
            slot.expect("an answer").expect("free")
        });
        assert_eq!(conn.held_slots(&semaphore).expect("rows").len(), 3);
        let fewer = Semaphore::new(semaphore.name(), 2);
        assert_eq!(
            conn.try_acquire_slot(&fewer, one_hour())
                .expect("an answer"),
            None
        );
        assert_eq!(conn.force_release_all(semaphore.name()).expect("rows"), 3);
        let slot = conn.try_acquire_slot(&fewer, one_hour());
        conn.release_slot(slot.expect("an answer").expect("free"))
            .expect("ours");
        drop(slots);
    }
    for key in 0..3 {
        let kept = LockRequest::new(ObjectId::new("Bond", key)).retention(Retention::Kept);
        conn.with_object_lock(kept, |_| Ok::<_, Error>(()))
            .expect("free");
    }
    assert_eq!(conn.purge_object_locks().expect("purge"), 3);
    while conn.purge_slots(Duration::ZERO).expect("purge") > 0 {}

    let renewer = SlotRenewer::new(Mysql::pool_of(&database.url(), 2, set));
    let short = LeaseOptions::new(RENEWED_LEASE / 2);
    let guards = ["a", "b", "c"].map(|name| {
        let slot = renewer.acquire(&Semaphore::new(name, 1), &short, Wait::No);
        slot.expect("free")
    });
    let started = Instant::now();
    while started.elapsed() < RENEWED_LEASE {
        assert!(guards.iter().all(diesel_locks::SlotGuard::is_held));
        std::thread::sleep(Duration::from_millis(20));
    }
    for guard in guards {
        guard.release().expect("ours");
    }
}
