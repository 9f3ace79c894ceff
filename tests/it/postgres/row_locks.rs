//! The rows that the transaction of a slot locks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;

use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_locks::Error;
use diesel_locks::prelude::*;

use crate::behaviour::slots::one_hour;
use crate::support::Backend;
use crate::support::postgres::Postgres;

const GRANTS: usize = 1500;

/// A lock of a row that a statement of another session has for a moment is waited for. One of a transaction that is open
/// meanwhile fails.
const LOCK_TIMEOUT: &str = "SET lock_timeout = '20s'";

/// The number of rows that this transaction has locked and not changed.
fn locked_rows(conn: &mut PgConnection) -> i64 {
    let locked = "SELECT COUNT(*) FROM diesel_locks_slots WHERE xmax = pg_current_xact_id()::xid";
    Postgres::number(conn, locked)
}

/// Others are granted the free rows meanwhile, once they may be.
#[test]
fn refusal_after_lowering_locks_no_slot() {
    let database = Postgres::new();
    let mut conn = database.connect();
    conn.register_semaphores([&Semaphore::new("lowered", 10)])
        .expect("registered");
    let held = "UPDATE diesel_locks_slots SET expires_us = 1::bigint << 60 WHERE number > 8";
    Postgres::sql(&mut conn, held);
    let lowered = Semaphore::new("lowered", 2);
    let refused = conn.try_acquire_slot(&lowered, one_hour());
    assert!(refused.expect("an answer").is_none());
    let refused = conn.try_with_slot(&lowered, |_| Ok::<_, Error>(()));
    assert!(refused.expect("an answer").is_none());
    // The mark of a lock stays in the row.
    let once_locked = "SELECT COUNT(*) FROM diesel_locks_slots WHERE number <= 8 AND xmax <> 0";
    assert_eq!(Postgres::number(&mut conn, once_locked), 0);
}

/// Has `watcher` lock the rows of the slots, except for this one.
fn lock_others(watcher: &mut PgConnection, slot: u32) -> QueryResult<usize> {
    let others = format!("SELECT 1 FROM diesel_locks_slots WHERE number <> {slot} FOR UPDATE");
    diesel::sql_query(others).execute(watcher)
}

/// Calls `acquire`, with another session, until it has acquired a slot many times, while others lease and release the slots.
///
/// Two slots are free, with few permits or with many, of which those above 100 are searched in another way.
fn beside_leases(
    mut acquire: impl FnMut(&mut PgConnection, &Semaphore, &mut PgConnection) -> bool,
) {
    for permits in [2, 200] {
        beside_leases_of(&Semaphore::new("two are free", permits), &mut acquire);
    }
}

fn beside_leases_of(
    two: &Semaphore,
    acquire: &mut impl FnMut(&mut PgConnection, &Semaphore, &mut PgConnection) -> bool,
) {
    let database = Postgres::new();
    let mut conn = database.connect();
    conn.register_semaphores([two]).expect("registered");
    let holds = format!(
        "UPDATE diesel_locks_slots SET expires_us = 1::bigint << 60 WHERE number <= {} - 2",
        two.permits().expect("its own")
    );
    Postgres::sql(&mut conn, &holds);
    let mut watcher = database.connect();
    Postgres::sql(&mut watcher, LOCK_TIMEOUT);
    let others: Vec<_> = (0..6).map(|_| database.connect()).collect();
    let is_done = AtomicBool::new(false);
    scope(|scope| {
        for mut conn in others {
            let is_done = &is_done;
            scope.spawn(move || {
                while !is_done.load(Ordering::SeqCst) {
                    let slot = conn.try_acquire_slot(two, one_hour());
                    if let Some(slot) = slot.expect("an answer") {
                        conn.release_slot(slot).expect("ours");
                    }
                }
            });
        }
        // Also if it panics.
        let _end = End(&is_done);
        let mut acquired = 0;
        while acquired < GRANTS {
            acquired += usize::from(acquire(&mut conn, two, &mut watcher));
        }
    });
}

/// Ends the others.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The holder of another slot can renew and release it.
#[test]
fn slot_of_a_transaction_locks_no_other_slot() {
    beside_leases(|conn, two, _| {
        let locked = conn.try_with_slot(two, |conn| Ok::<_, Error>(locked_rows(conn)));
        let locked = locked.expect("a commit");
        assert!(locked.is_none_or(|rows| rows == 1), "{locked:?} rows");
        locked.is_some()
    });
}

/// The function that leases in an open transaction unlocks them otherwise.
#[test]
fn lease_in_a_transaction_locks_no_other_slot() {
    beside_leases(|conn, two, watcher| {
        let (mut granted, mut locked) = (false, Ok(0));
        let rolled_back = conn.transaction(|conn| {
            let slot = conn.try_acquire_slot(two, one_hour())?;
            granted = slot.is_some();
            locked = lock_others(watcher, slot.map_or(0, |slot| slot.number()));
            Err::<(), _>(DieselError::RollbackTransaction)
        });
        assert_eq!(rolled_back, Err(DieselError::RollbackTransaction));
        // When it has ended: the others wait for it.
        locked.expect("no row of another slot is locked");
        granted
    });
}
