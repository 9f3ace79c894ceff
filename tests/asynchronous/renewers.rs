//! Slots that are renewed by a task, with the pools bb8 and deadpool, on runtimes with several threads and with one.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use diesel_locks::prelude::*;
use diesel_locks::{Async, InspectExt, ListOptions, SlotGuard, SlotInfo, SlotRenewer};
use tokio::time::sleep;

use crate::support::dropped::LONG;
use crate::support::engine::Engine;
use crate::support::pools::Kind;
use crate::support::proxy::Proxy;
use crate::support::watch::{HOUR, Watch};

pub(crate) mod dropped;
pub(crate) mod guards;
pub(crate) mod loops;
pub(crate) mod runtimes;
pub(crate) mod waits;

/// Of a guard whose loss a test waits for.
pub(crate) const LEASE: Duration = Duration::from_millis(400);

/// Of a guard that has to stay held, also while the machine is busy. Renewals come after a third of it.
pub(crate) const RENEWED_LEASE: Duration = Duration::from_secs(9);

pub(crate) const ONE: Semaphore = Semaphore::from_static("one", 1);

pub(crate) fn one_hour() -> LeaseOptions {
    LeaseOptions::new(HOUR)
}

pub(crate) fn renewed() -> LeaseOptions {
    LeaseOptions::new(RENEWED_LEASE)
}

/// Returns when the condition is true.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !condition().await {
        assert!(started.elapsed() < LONG, "not after {LONG:?}: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// A database with a renewer.
pub(crate) struct Fixture<E: Engine, K: Kind> {
    pub(crate) watch: Watch<E>,
    /// Its pool has two connections.
    pub(crate) renewer: SlotRenewer<K::Pool<E>>,
    /// Those of the pool.
    pub(crate) statements: Arc<AtomicUsize>,
    pub(crate) database: E,
}

impl<E: Engine, K: Kind> Fixture<E, K> {
    pub(crate) async fn new() -> Self {
        let (database, statements) = (E::new(), Arc::<AtomicUsize>::default());
        let watch = Watch::new(&database);
        let pool = K::counted(&database, 2, Arc::clone(&statements)).await;
        Self {
            watch,
            renewer: SlotRenewer::new(pool),
            statements,
            database,
        }
    }

    /// Another renewer of two connections, whose messages the proxy may keep from the server.
    pub(crate) async fn renewer_behind_a_proxy(&self) -> (Proxy, SlotRenewer<K::Pool<E>>) {
        let proxy = Proxy::to(&self.database.address().expect("a server"));
        let database = self.database.by_way_of(proxy.port).expect("a server");
        let renewer = SlotRenewer::new(K::pool(&*database, 2).await);
        (proxy, renewer)
    }

    /// A guard of a slot that is free.
    pub(crate) async fn guard(
        &self,
        semaphore: &Semaphore,
        lease: &LeaseOptions,
    ) -> SlotGuard<Async> {
        let guard = self.renewer.try_acquire(semaphore, lease).await;
        guard.expect("an answer").expect("a free slot")
    }

    pub(crate) async fn held(&self, semaphore: &Semaphore) -> Vec<SlotInfo> {
        held(&self.watch, semaphore).await
    }

    /// Returns when all slots are released, other than by the end of their leases, which leaves their tokens.
    pub(crate) async fn until_released(&self) {
        until_released(&self.watch).await;
    }

    /// Returns when each held slot has a lease that ends later than now.
    pub(crate) async fn until_renewed(&self, semaphore: &Semaphore) {
        until_renewed(&self.watch, semaphore).await;
    }
}

/// Another session, which has the rows of the semaphore locked until it is dropped. On SQLite it has locked all.
pub(crate) async fn lock_rows<E: Engine>(database: &E, semaphore: &str) -> Watch<E> {
    let sql = if E::ONE_WRITER {
        "BEGIN IMMEDIATE".to_owned()
    } else {
        format!(
            "BEGIN; SELECT number FROM diesel_locks_slots WHERE name = '{semaphore}' FOR UPDATE"
        )
    };
    let session = Watch::new(database);
    session.with(move |conn| E::sql(conn, &sql)).await;
    session
}

pub(crate) async fn held<E: Engine>(watch: &Watch<E>, semaphore: &Semaphore) -> Vec<SlotInfo> {
    let options = ListOptions::new().name(semaphore);
    watch
        .with(move |conn| conn.held_slots(&options).expect("rows"))
        .await
}

pub(crate) async fn until_released<E: Engine>(watch: &Watch<E>) {
    let with_token = "(SELECT count(*) FROM diesel_locks_slots WHERE token IS NOT NULL)";
    until("all slots are released", async || {
        watch.number(with_token).await == 0
    })
    .await;
}

pub(crate) async fn until_renewed<E: Engine>(watch: &Watch<E>, semaphore: &Semaphore) {
    let ends = async || -> Vec<_> {
        let held = held(watch, semaphore).await;
        held.iter().map(|slot| slot.expires_at).collect()
    };
    let first = ends().await;
    assert!(!first.is_empty(), "a slot is held");
    until("all slots are renewed", async || {
        let now = ends().await;
        assert_eq!(now.len(), first.len(), "all slots are held");
        now.iter().zip(&first).all(|(now, first)| now > first)
    })
    .await;
}
