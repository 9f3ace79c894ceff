//! Futures that are dropped while others hold what their statements read.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, bb8, deadpool};
use diesel_async::{AsyncConnection, AsyncMysqlConnection};
use diesel_locks::prelude::*;
use diesel_locks::{Async, AsyncSemaphoreExt, Error, InspectExt, Pool, SlotRenewer};
use tokio::runtime::Builder;

use crate::behaviour::slots::{is_full, one_hour, single_slot, slots_of};
use crate::support::Backend;
use crate::support::mysql::Mysql;
use crate::support::threads::LONG;

/// Drops the future when it would be polled once more.
async fn polled<T>(mut times: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| {
        if times == 0 {
            return Poll::Ready(None);
        }
        times -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

/// Drops acquisitions after each number of polls, and their connections, until one ends. As many slots stay held as before.
fn drop_acquisitions(database: &Mysql, semaphore: &Semaphore) {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let mut watcher = database.connect();
    let sessions = "SELECT COUNT(*) FROM /*!80000 performance_schema.threads WHERE processlist_db *//*M!100100 \
                    information_schema.processlist WHERE db */ = DATABASE()";
    let before = Mysql::number(&mut watcher, sessions);
    let held_before = watcher.held_slots(&slots_of(semaphore)).expect("rows");
    for polls in 1.. {
        let ended = runtime.block_on(async {
            let conn = AsyncMysqlConnection::establish(&database.url()).await;
            let mut conn = conn.expect("a connection");
            polled(polls, conn.acquire_slot(semaphore, one_hour(), Wait::No)).await
        });
        if let Some(ended) = ended {
            let _held = ended.expect("a slot is free");
            return;
        }
        let started = Instant::now();
        while Mysql::number(&mut watcher, sessions) != before {
            assert!(started.elapsed() < LONG, "the session does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        let held = watcher.held_slots(&slots_of(semaphore)).expect("rows");
        assert_eq!(
            held.len(),
            held_before.len(),
            "after {polls} polls: {held:?}"
        );
    }
}

/// The slot of a dropped acquisition is free at once, although another slot of the semaphore is pinned.
#[test]
fn a_pinned_slot_does_not_keep_the_slot_of_a_dropped_future() {
    let database = Mysql::new();
    let two = Semaphore::new("two", 2);
    let mut holder = database.connect();
    let pinned = holder.acquire_slot(&two, one_hour(), Wait::No);
    let pinned = pinned.expect("free");
    let pin_and_drop = |conn: &mut MysqlConnection| {
        conn.pin_slot(&pinned)?;
        drop_acquisitions(&database, &two);
        Ok::<_, Error>(())
    };
    holder.transaction(pin_and_drop).expect("pinned");
}

/// Drops an acquisition while the server runs the statement that acquires the slot.
async fn drop_while_acquiring(database: &Mysql, pool: impl Pool<Style = Async>) {
    let semaphore = single_slot();
    let mut watcher = database.connect();
    assert!(!is_full::<Mysql>(&mut watcher, &semaphore));
    let slow = "CREATE TRIGGER slow BEFORE UPDATE ON diesel_locks_slots FOR EACH ROW \
                IF NEW.token IS NOT NULL THEN DO SLEEP(0.03); END IF";
    watcher.batch_execute(slow).expect("a trigger");
    let renewer = SlotRenewer::new(pool);
    let lease = one_hour();
    let started = Instant::now();
    loop {
        let mut acquired = Box::pin(renewer.try_acquire(&semaphore, &lease));
        let mut ended = None;
        while ended.is_none() && sleeping(&mut watcher) == 0 {
            assert!(started.elapsed() < LONG, "the slot is not acquired");
            let soon = tokio::time::timeout(Duration::from_millis(1), &mut acquired);
            ended = soon.await.ok();
        }
        let Some(ended) = ended else {
            break;
        };
        // Before it was seen.
        let guard = ended.expect("an answer").expect("a free slot");
        guard.release().await.expect("its own slot");
    }
    while sleeping(&mut watcher) > 0 {
        assert!(started.elapsed() < LONG, "the statement does not end");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Acquired by now, if the statement was not cancelled, and released again.
    while is_full::<Mysql>(&mut watcher, &semaphore) {
        assert!(started.elapsed() < LONG, "the slot is not released");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    watcher.batch_execute("DROP TRIGGER slow").expect("dropped");
}

/// The number of sessions of the database that run SLEEP.
fn sleeping(conn: &mut MysqlConnection) -> i64 {
    let sleeping = "SELECT COUNT(*) FROM /*!80000 performance_schema.threads WHERE processlist_state = 'User sleep' \
                    AND processlist_db *//*M!100100 information_schema.processlist WHERE state = 'User sleep' AND db */ \
                    = DATABASE()";
    Mysql::number(conn, sleeping)
}

/// On a Unix socket the server can't send the answer of the statement when the client has closed the connection, and ends the
/// session without releasing the slot. A pool keeps the connection until then.
#[test]
fn slot_is_released_when_its_acquisition_on_a_pool_is_dropped() {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async {
        for _ in 0..3 {
            let database = Mysql::new();
            let manager = AsyncDieselConnectionManager::new(database.url());
            let pool = bb8::Pool::<AsyncMysqlConnection>::builder().build(manager);
            drop_while_acquiring(&database, pool.await.expect("a pool")).await;
            let manager = AsyncDieselConnectionManager::new(database.url());
            let pool = deadpool::Pool::<AsyncMysqlConnection>::builder(manager).build();
            drop_while_acquiring(&database, pool.expect("a pool")).await;
        }
    });
}
