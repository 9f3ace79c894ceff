//! A hot standby of PostgreSQL.

use std::time::Duration;

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool};
use diesel_locks::prelude::*;
use diesel_locks::{Error, IsolationLevel, Retention};

use crate::nodes::{Nodes, Tests, await_that};

pub(crate) const TESTS: Tests = &[
    (
        "lock_on_a_standby_is_read_only",
        lock_on_a_standby_is_read_only,
    ),
    // The last one: afterwards there is no standby.
    (
        "fences_and_numbers_go_on_after_a_promotion",
        fences_and_numbers_go_on_after_a_promotion,
    ),
];

fn lock_on_a_standby_is_read_only(nodes: &Nodes) {
    let mut primary = PgConnection::establish(&nodes.url(0, "postgres")).expect("the primary");
    diesel_locks::migrate(&mut primary).expect("migrate");
    let kept = LockRequest::new("a").retention(Retention::Kept);
    primary
        .with_object_lock(&kept, |_| Ok::<_, Error>(()))
        .expect("free");
    let mut standby = PgConnection::establish(&nodes.url(1, "postgres")).expect("the standby");
    await_that(|| {
        diesel::sql_query("SELECT 'diesel_locks_sequences'::regclass")
            .execute(&mut standby)
            .is_ok()
    });
    assert_eq!(
        diesel_locks::migrate(&mut standby).expect("nothing to do"),
        [""; 0]
    );
    for retention in [Retention::Transient, Retention::Kept] {
        let lock = LockRequest::new("a").retention(retention);
        let read_only = |result: Result<(), Error>| {
            let error = result.expect_err("a standby");
            assert!(error.is_read_only(), "{error:?}");
        };
        read_only(standby.with_object_lock(&lock, |_| Ok(())));
        read_only(standby.try_with_object_lock(&lock, |_| Ok(())).map(|_| ()));
        read_only(standby.transaction(|conn| conn.lock_object(&lock)));
    }
    for transaction in [
        TransactionOptions::new().isolation(IsolationLevel::Serializable),
        TransactionOptions::new().read_write(),
    ] {
        let error = standby
            .run_transaction(transaction, |_| Ok::<_, Error>(()))
            .expect_err("a standby");
        assert!(error.is_read_only(), "{error:?}");
    }
}

/// The clock of the promoted standby is an hour behind, as far as fences show: those of the primary are moved ahead.
fn fences_and_numbers_go_on_after_a_promotion(nodes: &Nodes) {
    const SEMAPHORE: Semaphore = Semaphore::from_static("promotion", 2);
    const HOUR: Duration = Duration::from_secs(3600);
    const AN_HOUR_AHEAD: &str =
        "UPDATE diesel_locks_slots SET fence = fence + (3600000000 / 64 << 17)";

    let mut primary = PgConnection::establish(&nodes.url(0, "postgres")).expect("the primary");
    diesel_locks::migrate(&mut primary).expect("migrate");
    let lease = || LeaseOptions::new(HOUR);
    let held = primary
        .try_acquire_slot(&SEMAPHORE, lease())
        .expect("the primary")
        .expect("a free slot");
    diesel::sql_query(AN_HOUR_AHEAD)
        .execute(&mut primary)
        .expect("a clock that is ahead");
    let last = primary
        .try_acquire_slot(&SEMAPHORE, lease())
        .expect("the primary")
        .expect("a free slot");
    assert_ne!(held.number(), last.number());
    let invoices = Sequence::new("invoice");
    let drawn = primary
        .transaction(|conn| conn.next_number(&invoices))
        .expect("a number");
    primary.release_slot(last.clone()).expect("released");

    let mut standby = PgConnection::establish(&nodes.url(1, "postgres")).expect("the standby");
    // The release came last.
    let replayed = format!(
        "SELECT 1 FROM diesel_locks_slots WHERE name = 'promotion' AND fence = {} AND token IS NULL",
        last.fence()
    );
    await_that(|| {
        diesel::sql_query(&replayed)
            .execute(&mut standby)
            .is_ok_and(|rows| rows == 1)
    });
    assert!(
        diesel::select(diesel::dsl::sql::<Bool>("pg_promote()"))
            .get_result::<bool>(&mut standby)
            .expect("promoted")
    );

    let mut conn = standby;
    let first = conn
        .try_acquire_slot(&SEMAPHORE, lease())
        .expect("the new primary")
        .expect("the slot that was released");
    assert_eq!(first.number(), last.number());
    assert!(
        first.fence() > last.fence(),
        "{} after {}",
        first.fence(),
        last.fence()
    );
    // The old primary does not know that there is another.
    let stale = primary
        .try_acquire_slot(&SEMAPHORE, lease())
        .expect("the old primary")
        .expect("the slot that was released");
    assert!(
        first.fence() > stale.fence(),
        "{} after {}",
        first.fence(),
        stale.fence()
    );
    drop(primary);
    let full = conn.try_acquire_slot(&SEMAPHORE, lease());
    assert!(full.expect("the new primary").is_none());
    let next = conn.transaction(|conn| conn.next_number(&invoices));
    assert_eq!(next.expect("a number"), drawn + 1);

    // As an operator does where grants may have been lost.
    let floor = conn.raise_fences(HOUR).expect("raised");
    conn.release_slot(first).expect("released");
    let second = conn
        .try_acquire_slot(&SEMAPHORE, lease())
        .expect("the new primary")
        .expect("a free slot");
    assert!(second.fence() > floor, "{} after {floor}", second.fence());

    // The table of locks is not replicated: it is empty, and is used again.
    let rows = diesel::select(diesel::dsl::sql::<BigInt>(
        "(SELECT count(*) FROM diesel_locks_objects)",
    ));
    assert_eq!(rows.get_result::<i64>(&mut conn), Ok(0));
    for retention in [Retention::Transient, Retention::Kept] {
        let lock = LockRequest::new("a").retention(retention);
        let locked = conn.with_object_lock(&lock, |_| Ok::<_, Error>(()));
        locked.expect("free");
    }
}
