//! What the feature `testing` does with connections of diesel-async.

use diesel_async::AsyncConnection;
use diesel_locks::prelude::*;
use diesel_locks::testing::{self, Failure};
use diesel_locks::{Error, LockPool};
use tokio::time::timeout;

use crate::locked::WAIT;
use crate::renewers::{Fixture, one_hour, until};
use crate::support::dropped::LONG;
use crate::support::engine::Engine;
use crate::support::pools::Kind;
use crate::support::urls::fresh_name;
use crate::support::watch::HOUR;

pub(crate) async fn guard_of_a_moved_lease_is_lost<E: Engine, K: Kind>() {
    let test = Fixture::<E, K>::new().await;
    let one = Semaphore::new(fresh_name(), 1);
    let guard = test.guard(&one, &one_hour()).await;
    let mut conn = connect(&test).await;
    let moved = testing::expire_leases_async(&mut conn, &one, HOUR).await;
    assert_eq!(moved.expect("moved"), 1);
    timeout(LONG, guard.lost()).await.expect("it is lost");
    let next = test.guard(&one, &one_hour()).await;
    let _failures = testing::fail_slot(&one, Failure::SlotLost, 1);
    timeout(LONG, next.lost()).await.expect("it is lost");
}

async fn connect<E: Engine, K: Kind>(test: &Fixture<E, K>) -> E::Conn {
    let conn = E::Conn::establish(&test.database.url()).await;
    conn.expect("a connection")
}

pub(crate) async fn another_holder_is_released_or_dropped<E: Engine, K: Kind>() {
    let test = Fixture::<E, K>::new().await;
    let (id, two) = (fresh_name(), Semaphore::new(fresh_name(), 2));
    let is_free = async || {
        let id = id.clone();
        let tried = test
            .watch
            .with(move |conn| conn.try_with_object_lock(&id, |_| Ok::<_, Error>(())));
        tried.await.expect("an answer").is_some()
    };

    let other = testing::hold_object_lock_async(connect(&test).await, &id).await;
    let other = other.expect("free");
    assert!(!is_free().await);
    let conn = other.release().await.expect("released");
    assert!(is_free().await);
    let other = testing::hold_object_lock_async(conn, &id).await;
    drop(other.expect("free"));
    until("the lock is free", is_free).await;

    let other = testing::hold_slots_async(connect(&test).await, &two, None).await;
    let other = other.expect("free");
    assert_eq!(test.held(&two).await.len(), 2);
    let conn = other.release().await.expect("released");
    assert_eq!(test.held(&two).await.len(), 0);
    let other = testing::hold_slots_async(conn, &two, 2).await;
    let other = other.expect("free");
    assert_eq!(test.held(&two).await.len(), 2);
    drop(other);
    until("the slots are free", async || {
        test.held(&two).await.is_empty()
    })
    .await;
}

pub(crate) async fn attempts_fail_as_chosen<E: Engine, K: Kind>() {
    let test = Fixture::<E, K>::new().await;
    let locks = LockPool::new(test.renewer.pool().clone());
    let id = fresh_name();
    let run = || locks.with_object_lock(LockRequest::new(&id).wait(WAIT), async |_| Ok(()));
    let failures = testing::fail_object_lock(&id, Failure::Refused, 3);
    let ran: Result<(), Error> = run().await;
    ran.expect("it waits");
    assert_eq!(failures.left(), 0);
    let failures = testing::fail_object_lock(&id, Failure::TimedOut, 1);
    let late: Result<(), Error> = run().await;
    assert!(late.expect_err("too late").is_timeout());
    drop(failures);
    // On a connection the request makes the next attempt in the pauses of its runtime.
    let failures = testing::fail_object_lock(&id, Failure::Refused, 2);
    let mut conn = connect(&test).await;
    let ran = conn.with_object_lock(&id, async |_| Ok::<_, Error>(()));
    ran.await.expect("it waits");
    assert_eq!(failures.left(), 0);
}
