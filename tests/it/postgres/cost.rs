//! Round trips, pages read and log written.

use std::time::Duration;

use diesel::prelude::*;
use diesel_locks::prelude::*;
use diesel_locks::{Error, Retention};

use super::read;
use crate::support::Backend;
use crate::support::postgres::{Postgres, words};
use crate::support::proxy::{
    CountingProxy, round_trips_of_a_sequence, round_trips_of_a_slot, round_trips_of_a_transaction,
};

/// At top level the lock rides with BEGIN, time-out included; inside a transaction it is one statement.
#[test]
fn object_lock_costs_no_round_trip_at_top_level_and_one_inside() {
    let database = Postgres::new();
    let (proxy, url) = CountingProxy::url(&database.url());
    let mut conn = Postgres::connect_to(&url);
    let bare = proxy.count(|| conn.transaction(read).expect("commit"));
    for retention in [Retention::Transient, Retention::Kept] {
        for wait in [Wait::Forever, Wait::AtMost(Duration::from_millis(500))] {
            let lock = LockRequest::new("a").wait(wait).retention(retention);
            for _ in 0..3 {
                let locked = proxy.count(|| conn.with_object_lock(&lock, read).expect("free"));
                assert_eq!(locked, bare, "{lock:?}");
            }
            let many = LockRequest::all(["a", "b", "c"])
                .wait(wait)
                .retention(retention);
            let locked = proxy.count(|| conn.with_object_lock(many, read).expect("free"));
            assert_eq!(locked, bare, "three in one");
        }
        let lock = LockRequest::new("a").retention(retention);
        conn.transaction(|conn| {
            // The first time prepares the statement.
            conn.lock_object(&lock)?;
            let inside = proxy.count(|| conn.lock_object(&lock).expect("ours"));
            assert_eq!(inside, 1, "{retention:?}");
            Ok::<_, Error>(())
        })
        .expect("commit");
        let tried = proxy.count(|| conn.try_with_object_lock(&lock, read).expect("free"));
        let tried_again = proxy.count(|| conn.try_with_object_lock(&lock, read).expect("free"));
        assert_eq!(
            tried_again,
            bare + 1,
            "an answer to read ({tried} when not yet prepared)"
        );
    }
}

/// Granted, refused, refreshed or released: each is one statement.
#[test]
fn round_trips_of_a_slot_are_one_each() {
    assert_eq!(round_trips_of_a_slot::<Postgres>(), [1, 1, 1, 1]);
}

#[test]
fn round_trips_of_a_sequence_are_one_each() {
    assert_eq!(round_trips_of_a_sequence::<Postgres>(), [1, 1]);
}

#[test]
fn round_trips_of_a_transaction_are_diesels() {
    assert_eq!(round_trips_of_a_transaction::<Postgres>(), [2, 2]);
}

/// For the release alone: neither for the session nor for a transaction around it.
#[test]
fn a_release_leaves_synchronous_commit_alone() {
    let database = Postgres::new();
    let mut conn = database.connect();
    let one = Semaphore::new("one", 1);
    let lease = || LeaseOptions::new(Duration::from_secs(60));
    let synchronous = "current_setting('synchronous_commit')";
    let slot = conn.acquire_slot(&one, lease(), Wait::No).expect("free");
    conn.release_slot(slot).expect("ours");
    assert_eq!(words(&mut conn, synchronous), "on");
    let slot = conn.acquire_slot(&one, lease(), Wait::No).expect("free");
    conn.transaction(|conn| {
        conn.release_slot(slot)?;
        assert_eq!(words(conn, synchronous), "on");
        Ok::<_, Error>(())
    })
    .expect("commit");
}

/// Pages of the table and its indexes that the session has read. Counted until a transaction ends.
fn pages_read(conn: &mut PgConnection) -> i64 {
    Postgres::number(
        conn,
        "SELECT sum(pg_stat_get_xact_blocks_fetched(oid)) FROM pg_class \
         WHERE oid = 'diesel_locks_slots'::regclass \
         OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'diesel_locks_slots'::regclass)",
    )
}

/// What rows were before can't be cleared away then, and is not to be read either.
#[test]
fn slots_take_no_more_pages_beside_an_old_snapshot() {
    const PERMITS: u32 = 2;
    let database = Postgres::new();
    let mut conn = database.connect();
    // It may come at any moment, and analyse two rows beside a thousand old versions: the plans then change.
    Postgres::sql(
        &mut conn,
        "ALTER TABLE diesel_locks_slots SET (autovacuum_enabled = off)",
    );
    let semaphore = Semaphore::new("few", PERMITS);
    let lease = || LeaseOptions::new(Duration::from_secs(60));
    let cycles = |conn: &mut PgConnection, many: u32| {
        for _ in 0..many {
            let held: Vec<_> = (0..PERMITS)
                .map(|_| conn.acquire_slot(&semaphore, lease(), Wait::No))
                .map(|slot| slot.expect("free"))
                .collect();
            for slot in held {
                conn.release_slot(slot).expect("ours");
            }
        }
    };
    let pages = |conn: &mut PgConnection| {
        conn.transaction(|conn| {
            let mut last = pages_read(conn);
            let mut since = |conn: &mut PgConnection| {
                let now = pages_read(conn);
                now - std::mem::replace(&mut last, now)
            };
            let mut slot = conn.acquire_slot(&semaphore, lease(), Wait::No)?;
            let other = conn.acquire_slot(&semaphore, lease(), Wait::No)?;
            let acquired = since(conn);
            assert!(conn.try_acquire_slot(&semaphore, lease())?.is_none());
            let refused = since(conn);
            conn.pin_slot(&slot)?;
            let ensured = since(conn);
            conn.renew_slot(&mut slot, Duration::from_secs(60))?;
            let refreshed = since(conn);
            conn.release_slot(slot)?;
            conn.release_slot(other)?;
            let released = since(conn);
            Ok::<_, Error>([acquired, refused, ensured, refreshed, released])
        })
        .expect("commit")
    };
    let mut old = database.connect();
    Postgres::sql(
        &mut old,
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT fence FROM diesel_locks_fences",
    );
    // The server plans a statement anew the first five times, and reads what the session keeps of the indexes.
    for _ in 0..10 {
        cycles(&mut conn, 2);
        pages(&mut conn);
    }
    let first = pages(&mut conn);
    cycles(&mut conn, 500);
    let last = pages(&mut conn);
    let grown = first
        .iter()
        .zip(&last)
        .any(|(first, last)| *last > 2 * first);
    assert!(!grown && !first.contains(&0), "{first:?} {last:?}");
}

/// A lock writes to an unlogged table only: a closure that only reads pays no flush of the log.
#[test]
fn lock_alone_writes_no_wal() {
    let database = Postgres::new();
    let mut conn = database.connect();
    let persistence = words(
        &mut conn,
        "SELECT relpersistence FROM pg_class WHERE relname = 'diesel_locks_objects'",
    );
    assert_eq!(persistence, "u");
}

/// A kept lock on a row that is there only reads: no transaction number, no row lock, no commit record.
#[test]
fn kept_lock_on_an_existing_row_writes_nothing() {
    let database = Postgres::new();
    let mut conn = database.connect();
    let kept = LockRequest::new("a").retention(Retention::Kept);
    conn.with_object_lock(&kept, read).expect("free");
    let assigned = |conn: &mut PgConnection| {
        words(
            conn,
            "coalesce(pg_current_xact_id_if_assigned()::text, 'none')",
        )
    };
    // A transient lock on its id takes the same lock.
    for lock in [
        kept.clone(),
        kept.clone().wait(Wait::AtMost(Duration::from_secs(1))),
        kept.clone().wait(Wait::No),
        LockRequest::new("a"),
    ] {
        let number = conn.with_object_lock(&lock, |conn| Ok::<_, Error>(assigned(conn)));
        assert_eq!(number.expect("free"), "none", "{lock:?}");
        let number = conn.transaction(|conn| {
            conn.lock_object(&lock)?;
            Ok::<_, Error>(assigned(conn))
        });
        assert_eq!(number.expect("free"), "none", "{lock:?}");
    }
    let mut reader = database.connect();
    Postgres::sql(&mut reader, "SET default_transaction_read_only = on");
    // A hot standby is one, and would grant an advisory lock of its own.
    let error = reader.with_object_lock(&kept, read).expect_err("read only");
    assert!(Error::from(error).is_read_only());
}
