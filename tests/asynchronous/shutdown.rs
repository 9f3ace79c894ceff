//! The end of a process that uses pools of asynchronous connections.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use diesel_async::SimpleAsyncConnection;
use diesel_locks::prelude::*;
use diesel_locks::{Async, Error, LockPool, Shutdown, SlotRenewer};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::locked::{Locked, WAIT, Work, await_waiters, nothing, result_of};
use crate::renewers::{Fixture, ONE, one_hour, until};
use crate::support::dropped::{End, LONG, poll_then_drop};
use crate::support::engine::{BoxFuture, Engine};
use crate::support::pools::Kind;
use crate::support::proxy::Proxy;
use crate::support::watch::Watch;

/// Work that tells when it runs, and ends when the test says so.
fn work<C>() -> (Work<C>, oneshot::Receiver<()>, oneshot::Sender<()>) {
    let (running, runs) = oneshot::channel();
    let (end, may_end) = oneshot::channel();
    let work: Work<C> = Box::new(move |_| {
        Box::pin(async move {
            running.send(()).expect("the test waits");
            may_end.await.expect("the test says when");
            Ok(())
        })
    });
    (work, runs, end)
}

/// Waits end at once; transactions and guards end by themselves, and are waited for.
pub(crate) async fn shutdown_waits_until_all_has_ended<E: Engine, K: Kind>() {
    for locked in Locked::all() {
        let fixture = Fixture::<E, K>::new().await;
        let shutdown = Shutdown::<Async>::new();
        let renewer = shutdown.add_renewer(&fixture.renewer);
        let locks = LockPool::new(K::pool(&fixture.database, 3).await);
        let locks = shutdown.add_lock_pool(&locks);

        let guard = renewer.try_acquire(&ONE, &one_hour()).await;
        let guard = guard.expect("an answer").expect("a free slot");
        let node = renewer.clone();
        let slot_waiter =
            tokio::spawn(async move { node.acquire(&ONE, &one_hour(), Wait::Forever).await });
        let (work, runs, end) = work();
        let transaction = tokio::spawn(locked.with(&locks, WAIT, work));
        runs.await.expect("it is free");
        let lock_waiter = tokio::spawn(locked.with(&locks, WAIT, nothing()));
        await_waiters(&locks, 1).await;

        let process = shutdown.clone();
        let ended = tokio::spawn(async move { process.shut_down(LONG).await });
        let error = result_of(slot_waiter).await.expect_err("stopped");
        assert!(matches!(error, Error::Stopped { .. }), "{error:?}");
        let error = result_of(lock_waiter).await.expect_err("stopped");
        assert!(matches!(error, Error::Stopped { .. }), "{error:?}");
        assert!(shutdown.stop_token().is_stopped());
        let error = locked.with(&locks, WAIT, nothing()).await;
        let error = error.expect_err("the process ends");
        assert!(matches!(error, Error::Stopped { .. }), "{error:?}");

        assert!(!ended.is_finished(), "the transaction runs");
        end.send(()).expect("it waits");
        result_of(transaction).await.expect("committed");
        assert!(guard.is_held(), "it is not cut off");
        assert!(!ended.is_finished(), "the guard lives");
        guard.release().await.expect("released");
        let left = result_of(ended).await;
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(fixture.held(&ONE).await, []);
    }
}

/// Without guards, for which it would wait too.
pub(crate) async fn shutdown_waits_for_transactions_of_each_kind<E: Engine, K: Kind>() {
    let database = E::new();
    for locked in Locked::with_free() {
        let shutdown = Shutdown::<Async>::new();
        let locks = LockPool::new(K::pool(&database, 1).await);
        let locks = shutdown.add_lock_pool(&locks);
        let (work, runs, end) = work();
        let transaction = tokio::spawn(locked.with(&locks, WAIT, work));
        runs.await.expect("it is free");
        let left = shutdown.shut_down(Duration::ZERO).await;
        assert_eq!((left.guards, left.transactions), (0, 1), "{locked:?}");
        let process = shutdown.clone();
        let ended = tokio::spawn(async move { process.shut_down(LONG).await });
        end.send(()).expect("it waits");
        result_of(transaction).await.expect("committed");
        let left = result_of(ended).await;
        assert!(left.is_empty(), "{locked:?}: {left:?}");
    }
}

/// What has not ended by the deadline is returned, and slots are released.
pub(crate) async fn shutdown_cuts_off_what_does_not_end<E: Engine, K: Kind>() {
    for locked in Locked::with_free() {
        let mut tries = 1;
        while !is_cut_off::<E, K>(locked).await {
            assert!(tries < 10, "{locked:?}: no slot was released in time");
            tries += 1;
        }
    }
}

/// Whether the slot was released in time. Otherwise it is released in the background, as when the database is slow.
async fn is_cut_off<E: Engine, K: Kind>(locked: Locked) -> bool {
    let fixture = Fixture::<E, K>::new().await;
    let shutdown = Shutdown::<Async>::new();
    let renewer = shutdown.add_renewer(&fixture.renewer);
    // A clone is the same renewer.
    drop(shutdown.add_renewer(&renewer));
    let guard = renewer.try_acquire(&ONE, &one_hour()).await;
    let guard = guard.expect("an answer").expect("a free slot");
    let left = if E::ONE_WRITER {
        // A transaction would keep the slot from being released.
        let left = shutdown.shut_down(Duration::ZERO).await;
        assert_eq!((left.guards, left.transactions), (1, 0));
        left
    } else {
        let locks = LockPool::new(K::pool(&fixture.database, 2).await);
        let locks = shutdown.add_lock_pool(&locks);
        let (work, runs, end) = work();
        let transaction = tokio::spawn(locked.with(&locks, WAIT, work));
        runs.await.expect("it is free");
        let left = shutdown.shut_down(Duration::ZERO).await;
        assert_eq!((left.guards, left.transactions), (1, 1), "{locked:?}");
        end.send(()).expect("it waits");
        result_of(transaction).await.expect("committed");
        left
    };
    assert!(!guard.is_held());
    let is_released = left.slots == [guard.slot().clone()];
    if !is_released {
        assert_eq!(left.slots, []);
        fixture.until_released().await;
    }
    assert_eq!(fixture.held(&ONE).await, []);
    drop(guard);
    let left = shutdown.shut_down(LONG).await;
    assert!(left.is_empty(), "{left:?}");
    is_released
}

/// What keeps the slots from being released delays it no longer, however many renewers there are.
pub(crate) async fn shutdown_ends_while_slots_are_locked<E: Engine, K: Kind>() {
    // Less than any limit of the database.
    let soon = Duration::from_secs(if E::ONE_WRITER { 4 } else { 20 });
    let fixture = Fixture::<E, K>::new().await;
    let (shutdown, many) = (Shutdown::<Async>::new(), Semaphore::new("many", 5));
    let mut guards = Vec::new();
    for _ in 0..3 {
        let renewer = SlotRenewer::new(K::pool(&fixture.database, 2).await);
        let renewer = shutdown.add_renewer(&renewer);
        let guard = renewer.try_acquire(&many, &one_hour()).await;
        guards.push(guard.expect("an answer").expect("a free slot"));
    }
    let other = Watch::new(&fixture.database);
    other.with(|conn| E::sql(conn, E::LOCK_SLOTS)).await;
    let ended = timeout(soon, shutdown.shut_down(Duration::ZERO)).await;
    let left = ended.expect("it has a limit");
    assert_eq!((left.slots, left.guards), (Vec::new(), 3));
    assert!(guards.iter().all(|guard| !guard.is_held()));
    drop((guards, other));
    // The renewers retry the release in the background.
    fixture.until_released().await;
    let left = shutdown.shut_down(LONG).await;
    assert!(left.is_empty(), "{left:?}");
}

/// A proxy that can be stalled, and a renewer of the process that connects through it.
async fn through_a_proxy<E: Engine, K: Kind>(
    fixture: &Fixture<E, K>,
) -> (Proxy, Shutdown<Async>, SlotRenewer<K::Pool<E>>) {
    let proxy = Proxy::to(&fixture.database.address().expect("a server"));
    let stalling = fixture.database.by_way_of(proxy.port).expect("a server");
    let shutdown = Shutdown::<Async>::new();
    let renewer = SlotRenewer::new(K::pool(&*stalling, 2).await);
    let renewer = shutdown.add_renewer(&renewer);
    (proxy, shutdown, renewer)
}

/// A connection that stays open, and does not answer, delays it no longer either.
pub(crate) async fn shutdown_ends_although_its_connection_does_not_answer<E: Engine, K: Kind>() {
    let fixture = Fixture::<E, K>::new().await;
    let (proxy, shutdown, renewer) = through_a_proxy(&fixture).await;
    let guard = renewer.try_acquire(&ONE, &one_hour()).await;
    let guard = guard.expect("an answer").expect("a free slot");
    proxy.stall_at(1);
    let ended = timeout(LONG, shutdown.shut_down(Duration::ZERO)).await;
    let left = ended.expect("it has a limit");
    assert!(proxy.has_stalled());
    assert_eq!((left.slots, left.guards), (Vec::new(), 1));
    assert!(!guard.is_held());
    drop(guard);
    // In the background, by another connection.
    fixture.until_released().await;
    let left = shutdown.shut_down(LONG).await;
    assert!(left.is_empty(), "{left:?}");
}

/// The process must not exit before the slot that the server may have granted is released.
pub(crate) async fn shutdown_waits_for_what_an_unanswered_acquisition_has_left<
    E: Engine,
    K: Kind,
>() {
    let mut left = 0;
    // One of these messages acquires; before it the pool checks the connection.
    for message in 1..=3 {
        let fixture = Fixture::<E, K>::new().await;
        let (proxy, shutdown, renewer) = through_a_proxy(&fixture).await;
        let guard = renewer.try_acquire(&ONE, &one_hour()).await;
        let released = guard.expect("an answer").expect("a free slot").release();
        released.await.expect("ours");
        proxy.stall_at(message);
        let limit = Wait::AtMost(Duration::from_millis(500));
        let acquired = timeout(LONG, renewer.acquire(&ONE, &one_hour(), limit)).await;
        match acquired.expect("it has a limit") {
            Ok(guard) => drop(guard),
            Err(error) => {
                assert!(error.is_busy(), "{message}: {error:?}");
                left += shutdown.shut_down(Duration::ZERO).await.guards;
            }
        }
    }
    assert!(left > 0, "nothing is waited for");
}

/// A renewer ends, and gives its pool back, when the application has dropped it.
pub(crate) async fn shutdown_does_not_keep_renewers<E: Engine, K: Kind>() {
    let (database, statements) = (E::new(), Arc::<AtomicUsize>::default());
    let shutdown = Shutdown::<Async>::new();
    let pool = K::counted(&database, 2, Arc::clone(&statements)).await;
    let renewer = shutdown.add_renewer(&SlotRenewer::new(pool));
    let guard = renewer.try_acquire(&ONE, &one_hour()).await;
    drop(renewer);
    drop(guard.expect("an answer").expect("a free slot"));
    until("its pool is dropped", async || {
        Arc::strong_count(&statements) == 1
    })
    .await;
    let left = shutdown.shut_down(LONG).await;
    assert!(left.is_empty(), "{left:?}");
}

/// A shutdown that nobody waits for has stopped the waits, and another call waits for the rest.
pub(crate) async fn dropped_shutdown_may_be_called_again<E: Engine, K: Kind>() {
    let fixture = Fixture::<E, K>::new().await;
    let shutdown = Shutdown::<Async>::new();
    let renewer = shutdown.add_renewer(&fixture.renewer);
    let guard = renewer.try_acquire(&ONE, &one_hour()).await;
    let guard = guard.expect("an answer").expect("a free slot");
    let dropped = timeout(Duration::from_millis(10), shutdown.shut_down(LONG)).await;
    assert!(dropped.is_err(), "the guard lives");
    assert!(guard.is_held(), "it is not cut off");
    assert!(shutdown.stop_token().is_stopped());
    let process = shutdown.clone();
    let ended = tokio::spawn(async move { process.shut_down(LONG).await });
    drop(guard);
    let left = result_of(ended).await;
    assert!(left.is_empty(), "{left:?}");
    until("the slot is released", async || {
        fixture.held(&ONE).await.is_empty()
    })
    .await;
}

/// A statement that runs is cancelled in the background, and the locks are held until then.
pub(crate) async fn shutdown_waits_until_dropped_transactions_have_ended<E: Engine, K: Kind>() {
    for locked in Locked::all() {
        let fixture = Fixture::<E, K>::new().await;
        let locks = LockPool::new(K::pool(&fixture.database, 3).await);
        // Repeated, because the request to cancel may take effect before the shutdown looks.
        for _ in 0..5 {
            let shutdown = Shutdown::<Async>::new();
            let locks = shutdown.add_lock_pool(&locks);
            let (running, runs) = oneshot::channel();
            let work: Work<E::Conn> = Box::new(move |conn| {
                Box::pin(async move {
                    running.send(()).expect("the test waits");
                    conn.batch_execute(E::LONG_STATEMENT).await?;
                    Ok(())
                })
            });
            let transaction = tokio::spawn(locked.with(&locks, WAIT, work));
            runs.await.expect("it is free");
            transaction.abort();
            transaction.await.expect_err("aborted");
            let left = shutdown.shut_down(LONG).await;
            assert!(left.is_empty(), "{left:?}");
            drop(locks);
            let others = LockPool::new(K::pool(&fixture.database, 1).await);
            let free = locked.with(&others, Wait::No, nothing()).await;
            assert!(free.is_ok(), "{free:?}");
        }
    }
}

/// What a dropped future has left is ended in the background: until then the process must not exit.
pub(crate) async fn shutdown_waits_until_dropped_acquisitions_are_released<E: Engine, K: Kind>() {
    let fixture = Fixture::<E, K>::new().await;
    let (one, lease) = (&ONE, &one_hour());
    let never = || -> BoxFuture<'static, bool> { Box::pin(async { false }) };
    // Repeated, because what a future has left is mostly ended within a millisecond.
    for attempt in 0..600 {
        let polls = attempt / 10;
        let shutdown = Shutdown::<Async>::new();
        let renewer = shutdown.add_renewer(&fixture.renewer);
        let acquired = Box::pin(renewer.try_acquire(one, lease));
        let (end, _) = poll_then_drop(acquired, polls, &never).await;
        if let End::Ready(guard) = end {
            let guard = guard.expect("an answer").expect("a free slot");
            guard.release().await.expect("ours");
            return;
        }
        let left = shutdown.shut_down(LONG).await;
        assert!(left.is_empty(), "after {polls} polls: {left:?}");
        assert_eq!(fixture.held(one).await, [], "after {polls} polls");
    }
    panic!("it is never ready");
}
