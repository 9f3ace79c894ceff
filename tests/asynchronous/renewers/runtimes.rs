//! Guards and the runtimes on which they are acquired.

use std::sync::mpsc::channel;

use diesel_locks::prelude::*;
use diesel_locks::{Async, Pool, SlotGuard, SlotRenewer};

use super::{LEASE, ONE, one_hour, renewed, until_released, until_renewed};
use crate::support::dropped::LONG;
use crate::support::engine::Engine;
use crate::support::pools::Kind;
use crate::support::runtime::{with_one_thread, with_threads};
use crate::support::watch::Watch;

/// A guard of the slot, acquired on a runtime with this pool.
async fn guard<P: Pool<Style = Async>>(
    pool: impl Future<Output = P>,
    lease: LeaseOptions,
) -> (SlotRenewer<P>, SlotGuard<Async>) {
    let renewer = SlotRenewer::new(pool.await);
    let guard = renewer.try_acquire(&ONE, &lease).await;
    let guard = guard.expect("an answer").expect("a free slot");
    (renewer, guard)
}

/// The runtime of the first guard is shut down. Its slot is renewed and released nevertheless, and so are those of other
/// runtimes.
pub(crate) fn guard_outlives_its_runtime<E: Engine, K: Kind>() {
    let database = E::new();
    let pool = K::pool(&database, 2);
    let first = with_threads();
    let (renewer, held) = first.block_on(guard(pool, renewed()));
    drop(first);
    let second = with_one_thread();
    second.block_on(async {
        let watch = Watch::new(&database);
        for _ in 0..3 {
            until_renewed(&watch, &ONE).await;
        }
        assert!(held.is_held());
    });
    drop(second);
    // Outside a runtime.
    drop(held);
    let third = with_threads();
    third.block_on(async {
        until_released(&Watch::new(&database)).await;
        let next = renewer.try_acquire(&ONE, &one_hour()).await;
        let next = next.expect("an answer").expect("a free slot");
        next.release().await.expect("ours");
    });
}

/// The guard is dropped by the runtime that is shut down, or just before.
pub(crate) fn guard_is_released_although_its_runtime_ends<E: Engine, K: Kind>() {
    let database = E::new();
    let pool = K::pool(&database, 2);
    let runtime = with_one_thread();
    let renewer = runtime.block_on(async {
        let (renewer, guard) = guard(pool, one_hour()).await;
        tokio::spawn(async move {
            guard.lost().await;
        });
        tokio::task::yield_now().await;
        renewer
    });
    drop(runtime);
    let watch = Watch::new(&database);
    with_threads().block_on(until_released(&watch));
    let runtime = with_one_thread();
    let held = runtime.block_on(renewer.try_acquire(&ONE, &one_hour()));
    drop(held.expect("an answer").expect("a free slot"));
    drop(runtime);
    with_threads().block_on(until_released(&watch));
}

/// A runtime with one thread runs while `block_on` does. The guard knows that it is lost, and tells so at once.
pub(crate) fn guard_is_lost_while_its_runtime_does_not_run<E: Engine, K: Kind>() {
    let database = E::new();
    let pool = K::pool(&database, 2);
    let runtime = with_one_thread();
    let (renewer, held) = runtime.block_on(guard(pool, LeaseOptions::new(LEASE)));
    let (lost, is_lost) = channel();
    held.on_lost(move || lost.send(()).expect("the test waits for it"));
    is_lost.recv_timeout(LONG).expect("it is lost");
    assert!(!held.is_held());
    let mut conn = database.connect();
    let next = conn.acquire_slot(&ONE, one_hour(), Wait::AtMost(LONG));
    let next = next.expect("its lease has ended");
    // The task runs again, and does not renew it.
    runtime.block_on(async {
        held.lost().await;
        let error = held.release().await.expect_err("another's");
        assert!(error.is_slot_lost(), "{error:?}");
        let refused = renewer.try_acquire(&ONE, &one_hour()).await;
        assert!(refused.expect("an answer").is_none());
    });
    conn.release_slot(next)
        .expect("the next holder is not touched");
}
