//! Futures that are dropped after each number of polls. Afterwards no slot is held.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use diesel_locks::limits::SHORTEST_PERIOD;
use diesel_locks::prelude::*;
use diesel_locks::{
    ActiveSlot, Async, Error, InspectExt, ListOptions, LockPool, SlotGuard, StopToken, Tick,
    TimerJob,
};
use tokio::time::sleep;

use super::{Fixture, ONE, lock_rows, one_hour, renewed, until};
use crate::support::dropped::{End, LONG, poll_then_drop};
use crate::support::engine::{BoxFuture, Engine};
use crate::support::pools::Kind;

/// More polls than any method needs that does not wait.
const MOST_POLLS: usize = 60;

/// Drops the future that `start` returns after 0, 1, 2 .. polls, until it is ready, and checks after each that no slot is
/// held. Drops what it returns. `prepare` is done before each.
async fn drop_at_every_poll<'a, E: Engine, K: Kind, G, T: std::fmt::Debug>(
    test: &'a Fixture<E, K>,
    prepare: impl AsyncFn() -> G,
    start: impl Fn(G) -> BoxFuture<'a, Result<T, Error>>,
) {
    drop_at_every_poll_then(test, prepare, start, nothing).await;
}

/// As [`drop_at_every_poll`]. `check` is done after each.
async fn drop_at_every_poll_then<'a, E: Engine, K: Kind, G, T: std::fmt::Debug>(
    test: &'a Fixture<E, K>,
    prepare: impl AsyncFn() -> G,
    start: impl Fn(G) -> BoxFuture<'a, Result<T, Error>>,
    check: impl AsyncFn(),
) {
    for polls in 0..=MOST_POLLS {
        let future = start(prepare().await);
        let never = || -> BoxFuture<'static, bool> { Box::pin(async { false }) };
        let (end, _) = poll_then_drop(future, polls, &never).await;
        let is_ready = match &end {
            // `Unavailable`: the server executed the statement of the previous future late, after the checks and before the
            // cancel request. Its slot is released soon.
            End::Dropped | End::Ready(Err(Error::Unavailable { .. })) => false,
            End::Ready(Ok(_)) => true,
            other => panic!("after {polls} polls: {other:?}"),
        };
        drop(end);
        test.until_released().await;
        check().await;
        // And the renewer works.
        let lease = one_hour();
        until("a slot is free", async || {
            let next = test.renewer.try_acquire(&ONE, &lease).await;
            match next.expect("an answer") {
                None => false,
                Some(next) => {
                    next.release().await.expect("ours");
                    true
                }
            }
        })
        .await;
        if is_ready {
            return;
        }
    }
    panic!("not ready after {MOST_POLLS} polls");
}

async fn nothing() {}

/// In place of `None`.
fn unavailable() -> Error {
    Error::Unavailable {
        resource: "a slot".to_owned(),
    }
}

pub(crate) async fn acquisitions<E: Engine, K: Kind>() {
    let test = &Fixture::<E, K>::new().await;
    let (one, lease) = (&ONE, &one_hour());
    drop_at_every_poll(test, nothing, |()| -> BoxFuture<'_, _> {
        Box::pin(async move {
            let guard = test.renewer.try_acquire(one, lease).await?;
            guard.ok_or_else(unavailable)
        })
    })
    .await;
    for wait in [Wait::Forever, Wait::No] {
        drop_at_every_poll(test, nothing, |()| -> BoxFuture<'_, _> {
            Box::pin(test.renewer.acquire(one, lease, wait))
        })
        .await;
    }
}

/// What a request for several permits keeps has leases of 5 s, also when the lease that it requests is longer.
pub(crate) async fn several_permits<E: Engine, K: Kind>() {
    const KEPT: Duration = Duration::from_secs(5);
    let test = &Fixture::<E, K>::new().await;
    let (semaphore, lease) = (&Semaphore::new("three", 3), &one_hour().permits(3));
    let locks = &LockPool::new(K::pool(&test.database, 2).await);
    for leases in [true, false] {
        let mut is_ready = false;
        for polls in 0..=4 * MOST_POLLS {
            let never = || -> BoxFuture<'static, bool> { Box::pin(async { false }) };
            let request: BoxFuture<'_, Result<(), Error>> = if leases {
                Box::pin(async {
                    let guard = test.renewer.acquire(semaphore, lease, LONG).await?;
                    assert_eq!(guard.slot().permits(), 3);
                    guard.release().await.map(drop)
                })
            } else {
                Box::pin(locks.with_slots(semaphore, 3, LONG, async |_| Ok::<_, Error>(())))
            };
            let (end, _) = poll_then_drop(request, polls, &never).await;
            is_ready = match end {
                End::Dropped => false,
                End::Ready(Ok(())) => true,
                other => panic!("after {polls} polls: {other:?}"),
            };
            until("what is held has a short lease", async || {
                let all = test.watch.with(|conn| conn.held_slots(&ListOptions::new()));
                let all = all.await.expect("rows");
                all.iter().all(|held| held.remaining <= KEPT)
            })
            .await;
            // As the time would.
            let expire = "UPDATE diesel_locks_slots SET token = NULL, expires_us = 0";
            test.watch.with(move |conn| E::sql(conn, expire)).await;
            if is_ready {
                break;
            }
        }
        assert!(is_ready, "it ends");
    }
}

pub(crate) async fn releases<E: Engine, K: Kind>() {
    let test = &Fixture::<E, K>::new().await;
    let prepare = async || test.guard(&ONE, &one_hour()).await;
    drop_at_every_poll(test, prepare, |guard| -> BoxFuture<'_, _> {
        Box::pin(guard.release())
    })
    .await;
}

pub(crate) async fn all_guards<E: Engine, K: Kind>() {
    let test = &Fixture::<E, K>::new().await;
    let prepare = async || test.guard(&ONE, &one_hour()).await;
    drop_at_every_poll(test, prepare, |guard| -> BoxFuture<'_, _> {
        Box::pin(async move {
            test.renewer.release_guards().await;
            assert!(!guard.is_held());
            Ok(())
        })
    })
    .await;
}

pub(crate) async fn runs<E: Engine, K: Kind>() {
    let test = &Fixture::<E, K>::new().await;
    let (one, lease) = (&ONE, &one_hour());
    let called = Arc::new(AtomicBool::new(false));
    let ran = Arc::clone(&called);
    drop_at_every_poll(test, nothing, move |()| -> BoxFuture<'_, _> {
        let called = Arc::clone(&called);
        Box::pin(async move {
            let work = async move |guard: &SlotGuard<Async>| {
                called.store(true, Ordering::SeqCst);
                tokio::task::yield_now().await;
                guard.ensure_held()
            };
            let ran = test.renewer.try_run(one, lease, work).await?;
            ran.ok_or_else(unavailable)
        })
    })
    .await;
    assert!(ran.load(Ordering::SeqCst));
}

/// A slot whose row another session has locked is released later. Meanwhile other slots are renewed.
pub(crate) async fn unused_slot_that_is_locked<E: Engine, K: Kind>() {
    let test = &Fixture::<E, K>::new().await;
    let (job, lease) = (&TimerJob::new("job", SHORTEST_PERIOD), &one_hour());
    let granted = async || {
        let count =
            "SELECT count(*) FROM diesel_locks_slots WHERE name = 'job' AND token IS NOT NULL";
        test.watch.number(count).await == 1
    };
    let called = AtomicBool::new(false);
    let is_called = || called.load(Ordering::SeqCst);
    let run = async |_: &Tick<Async>| {
        called.store(true, Ordering::SeqCst);
        std::future::pending::<Result<(), Error>>().await
    };
    let start = || -> BoxFuture<'_, _> {
        called.store(false, Ordering::SeqCst);
        Box::pin(test.renewer.run_on_timer(job, lease, &run))
    };
    let started = Instant::now();
    let mut future = start();
    loop {
        assert!(started.elapsed() < LONG, "each tick was begun");
        let poll = async |future: &mut BoxFuture<'_, _>| {
            let polled = poll_fn(|context| Poll::Ready(future.as_mut().poll(context)));
            assert!(polled.await.is_pending(), "it is not stopped");
            sleep(Duration::from_millis(1)).await;
        };
        while !granted().await && !is_called() {
            poll(&mut future).await;
        }
        // Then it asks for which tick it was, before it calls the closure: unless it has asked in the same poll.
        let sent = test.statements.load(Ordering::SeqCst);
        while test.statements.load(Ordering::SeqCst) == sent && !is_called() {
            poll(&mut future).await;
        }
        if !is_called() {
            break;
        }
        drop(future);
        until("it is released", async || !granted().await).await;
        future = start();
    }
    let guard = test.guard(&ONE, &renewed()).await;
    let other = lock_rows(&test.database, "job").await;
    drop(future);
    test.until_renewed(&ONE).await;
    drop(other);
    until("it is released", async || !granted().await).await;
    guard.release().await.expect("ours");
}

/// The closure is called once, and the stop ends the loop.
pub(crate) async fn leaders<E: Engine, K: Kind>() {
    let test = &Fixture::<E, K>::new().await;
    let (one, lease) = (&ONE, &one_hour());
    drop_at_every_poll(test, nothing, |()| -> BoxFuture<'_, _> {
        Box::pin(async move {
            let stop = StopToken::new();
            let lead = async |leader: &ActiveSlot<Async>| -> Result<(), Error> {
                assert!(leader.sleep(Duration::from_millis(1)).await);
                stop.stop();
                leader.ended().await;
                Ok(())
            };
            let renewer = test.renewer.stopped_by(&stop);
            renewer.run_as_leader(one, lease, lead).await
        })
    })
    .await;
}

/// As for a leader. A slot that was granted for a tick and not used is released without its minimum hold time, so that
/// another node may run the tick.
pub(crate) async fn ticks<E: Engine, K: Kind>() {
    let test = &Fixture::<E, K>::new().await;
    let (job, lease) = (&TimerJob::new("job", SHORTEST_PERIOD), &one_hour());
    let called = Arc::new(AtomicBool::new(false));
    let fence = "(SELECT coalesce(max(fence), 0) FROM diesel_locks_slots WHERE name = 'job')";
    let (last_fence, unused) = (AtomicI64::new(0), AtomicUsize::new(0));
    let prepare = async || {
        called.store(false, Ordering::SeqCst);
        // As if no tick was run.
        let reset =
            "UPDATE diesel_locks_slots SET expires_us = 0, hold_until_us = 0 WHERE name = 'job'";
        test.watch.with(|conn| E::sql(conn, reset)).await;
        last_fence.store(test.watch.number(fence).await, Ordering::SeqCst);
    };
    let start = |()| -> BoxFuture<'_, _> {
        let called = Arc::clone(&called);
        Box::pin(async move {
            let stop = StopToken::new();
            let run = async |tick: &Tick<Async>| -> Result<(), Error> {
                called.store(true, Ordering::SeqCst);
                tick.guard().ensure_held()?;
                stop.stop();
                Ok(())
            };
            let renewer = test.renewer.stopped_by(&stop);
            renewer.run_on_timer(job, lease, run).await
        })
    };
    let check = async || {
        if called.load(Ordering::SeqCst) {
            return;
        }
        until("no minimum hold time is left", async || {
            let left = "(SELECT count(*) FROM diesel_locks_slots WHERE name = 'job' \
                        AND (token IS NOT NULL OR hold_until_us > acquired_us OR expires_us > acquired_us))";
            test.watch.number(left).await == 0
        })
        .await;
        if test.watch.number(fence).await > last_fence.load(Ordering::SeqCst) {
            unused.fetch_add(1, Ordering::SeqCst);
        }
    };
    // How often a node polls before the grant depends on the time until the tick is due.
    let mut rounds = 0;
    while unused.load(Ordering::SeqCst) == 0 {
        rounds += 1;
        assert!(rounds <= 10, "no slot was granted and not used");
        drop_at_every_poll_then(test, &prepare, &start, &check).await;
    }
}
