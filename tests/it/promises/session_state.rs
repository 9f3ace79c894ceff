//! What an application finds in its session after our statements.

use std::time::Duration;

use diesel_locks::Error;
use diesel_locks::prelude::*;

use super::sequences::fresh;
use super::slots::{acquire, hour, one};
use crate::support::Backend;
use crate::support::threads::{begin, commit};

/// The id that the application's own INSERT has just drawn.
const OWN_ID: i64 = 123_456;

/// Inserts a row, calls `work`, and reads the row's id as the application does.
fn keeps_id<B: Backend, T: std::fmt::Debug>(
    conn: &mut B::Conn,
    call: &str,
    work: impl FnOnce(&mut B::Conn) -> T,
) -> T {
    B::sql(conn, "DELETE FROM own_ids");
    B::sql(conn, "INSERT INTO own_ids (n) VALUES (1)");
    let own = B::number(conn, "SELECT id FROM own_ids");
    assert!(own >= OWN_ID);
    let result = work(conn);
    let last = B::number(conn, &format!("SELECT {}", B::LAST_INSERTED_ID));
    assert_eq!(last, own, "after {call}, which returned {result:?}");
    result
}

/// Sequences that are new, known and at their end.
pub(crate) fn drawing_a_number_keeps_the_last_inserted_id<B: Backend>() {
    let database = B::new();
    B::sql(&mut database.connect(), &B::own_ids(OWN_ID));
    // The statement of a connection's first draw differs from that of the others.
    for _ in 0..2 {
        let mut conn = database.connect();
        let sequence = Sequence::named(fresh("invoice"));
        let end = Sequence::named(fresh("end")).starting_at(i64::MAX);
        begin(&mut conn);
        for expected in 1..=3 {
            let number =
                keeps_id::<B, _>(&mut conn, "next_number", |conn| conn.next_number(&sequence));
            assert_eq!(number.expect("free"), expected);
        }
        let numbers = keeps_id::<B, _>(&mut conn, "next_numbers", |conn| {
            conn.next_numbers(&sequence, 10)
        });
        assert_eq!(numbers.expect("free"), 4..=13);
        conn.next_number(&end).expect("the last number");
        let error = keeps_id::<B, _>(&mut conn, "a draw of nothing", |conn| {
            conn.next_number(&end)
        });
        let error = error.expect_err("none left");
        assert!(
            matches!(error, Error::SequenceExhausted { .. }),
            "{error:?}"
        );
        commit(&mut conn);
        keeps_id::<B, _>(&mut conn, "last_number", |conn| conn.last_number(&sequence))
            .expect("rows");
    }
}

/// New, known, tried, waited for, several.
pub(crate) fn locking_an_object_keeps_the_last_inserted_id<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    B::sql(&mut conn, &B::own_ids(OWN_ID));
    let waits = [
        Wait::Forever,
        Wait::AtMost(Duration::from_millis(500)),
        Wait::No,
    ];
    for (n, wait) in waits.into_iter().enumerate() {
        for retention in [Retention::Transient, Retention::Kept] {
            let known = ObjectLock::on(format!("known {n}"))
                .retention(retention)
                .wait(wait);
            // `lastval()` on PostgreSQL: the documentation says so.
            if retention == Retention::Transient || !B::NEW_KEPT_ROW_CHANGES_LAST_INSERTED_ID {
                keeps_id::<B, _>(&mut conn, "a new lock", |conn| {
                    conn.with_object_lock(&known, |_| Ok::<_, Error>(()))
                })
                .expect("free");
            }
            conn.with_object_lock(&known, |_| Ok::<_, Error>(()))
                .expect("free");
            keeps_id::<B, _>(&mut conn, "with_object_lock", |conn| {
                conn.with_object_lock(&known, |_| Ok::<_, Error>(()))
            })
            .expect("free");
            B::in_transaction(&mut conn, |conn| {
                keeps_id::<B, _>(conn, "lock_object", |conn| conn.lock_object(&known))?;
                let tried =
                    keeps_id::<B, _>(conn, "try_lock_object", |conn| conn.try_lock_object(&known));
                assert!(tried?);
                Ok(())
            })
            .expect("free");
        }
    }
    keeps_id::<B, _>(&mut conn, "purge_object_locks", |conn| {
        conn.purge_object_locks()
    })
    .expect("removed");
}

/// The rows of a semaphore that is new, that has more permits, and that is purged, too.
pub(crate) fn semaphores_keep_the_last_inserted_id<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    B::sql(&mut conn, &B::own_ids(OWN_ID));
    keeps_id::<B, _>(&mut conn, "register_semaphores", |conn| {
        conn.register_semaphores([&Semaphore::new("registered", 2)])
    })
    .expect("new");
    for permits in [1, 3] {
        let many = Semaphore::new("many", permits);
        let mut slot = keeps_id::<B, _>(&mut conn, "try_acquire_slot", |conn| {
            acquire::<B>(conn, &many)
        });
        keeps_id::<B, _>(&mut conn, "refresh_slot", |conn| {
            conn.refresh_slot(&mut slot, Duration::from_secs(60))
        })
        .expect("ours");
        B::in_transaction(&mut conn, |conn| {
            keeps_id::<B, _>(conn, "ensure_slot", |conn| conn.ensure_slot(&slot))
        })
        .expect("ours");
        keeps_id::<B, _>(&mut conn, "held_slots", |conn| conn.held_slots(&many)).expect("rows");
        keeps_id::<B, _>(&mut conn, "release_slot", |conn| conn.release_slot(slot)).expect("ours");
        keeps_id::<B, _>(&mut conn, "with_slot", |conn| {
            conn.with_slot(&many, Wait::No, |_| Ok::<_, Error>(()))
        })
        .expect("free");
    }
    let _slot = keeps_id::<B, _>(&mut conn, "acquire_slot", |conn| {
        conn.acquire_slot(&one(), hour(), Wait::Forever)
    })
    .expect("free");
    keeps_id::<B, _>(&mut conn, "release_all_slots", |conn| {
        conn.release_all_slots(&one())
    })
    .expect("one");
    keeps_id::<B, _>(&mut conn, "purge_slots", |conn| {
        conn.purge_slots(Duration::ZERO)
    })
    .expect("removed");
}
