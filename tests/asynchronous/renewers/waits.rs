//! Waits for a slot, without a connection.

use std::time::Duration;

use diesel_locks::prelude::*;
use diesel_locks::{Async, Error, SlotGuard, StopToken};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::timeout;

use super::{Fixture, ONE, one_hour, renewed};
use crate::support::dropped::LONG;
use crate::support::engine::Engine;
use crate::support::pools::Kind;

/// A task that waits for the slot.
fn waiter<E: Engine, K: Kind>(
    test: &Fixture<E, K>,
    stop: &StopToken,
) -> JoinHandle<Result<SlotGuard<Async>, Error>> {
    let renewer = test.renewer.stopped_by(stop);
    tokio::spawn(async move { renewer.acquire(&ONE, &one_hour(), Wait::Forever).await })
}

async fn result_of<T>(task: JoinHandle<T>) -> T {
    let ended = timeout(LONG, task).await;
    ended.expect("it ends").expect("no panic")
}

pub(crate) async fn waits_end_by_limit_stop_and_release<E: Engine, K: Kind>() {
    let test = Fixture::<E, K>::new().await;
    let renewer = &test.renewer;
    let (lease, wait) = (one_hour(), Wait::Forever);
    let size = size_of_val(&renewer.acquire(&ONE, &lease, wait));
    assert!(size < 2048, "a future of {size} bytes");
    let guard = test.guard(&ONE, &one_hour()).await;
    let refused = renewer.try_acquire(&ONE, &one_hour()).await;
    assert!(refused.expect("an answer").is_none());
    let wait = Wait::AtMost(Duration::from_secs(2));
    let error = renewer.acquire(&ONE, &one_hour(), wait).await;
    let error = error.expect_err("held");
    assert!(error.is_timeout(), "{error:?}");
    let error = renewer.acquire(&ONE, &one_hour(), Wait::No).await;
    assert!(error.expect_err("held").is_unavailable());
    let too_often = renewer.poll_interval(Duration::from_millis(1));
    let error = too_often.acquire(&ONE, &one_hour(), Wait::No).await;
    assert!(matches!(error, Err(Error::InvalidInterval { .. })));

    let stop = StopToken::new();
    let waiters = [(); 3].map(|()| waiter(&test, &stop));
    yield_now().await;
    stop.stop();
    for waiter in waiters {
        let error = result_of(waiter).await.expect_err("stopped");
        assert!(matches!(error, Error::Stopped { .. }), "{error:?}");
    }
    let stopped = renewer.stopped_by(&stop);
    let error = stopped.try_acquire(&ONE, &one_hour()).await;
    assert!(matches!(error, Err(Error::Stopped { .. })), "{error:?}");
    assert!(guard.is_held(), "guards are not affected");

    let next = waiter(&test, &StopToken::new());
    yield_now().await;
    guard.release().await.expect("ours");
    let next = result_of(next).await.expect("it comes free");
    assert!(next.is_held());
    next.release().await.expect("ours");
    assert!(test.held(&ONE).await.is_empty());
}

/// Waiters use no connection of the pool, which has two, between attempts.
pub(crate) async fn guard_lives_while_many_tasks_wait<E: Engine, K: Kind>() {
    let test = Fixture::<E, K>::new().await;
    let guard = test.guard(&ONE, &renewed()).await;
    let stop = StopToken::new();
    let waiters: Vec<_> = (0..500).map(|_| waiter(&test, &stop)).collect();
    for _ in 0..3 {
        test.until_renewed(&ONE).await;
    }
    assert!(guard.is_held());
    stop.stop();
    for waiter in waiters {
        let error = result_of(waiter).await.expect_err("stopped");
        assert!(matches!(error, Error::Stopped { .. }), "{error:?}");
    }
    guard.release().await.expect("ours");
    assert!(test.held(&ONE).await.is_empty());
}

pub(crate) async fn dropped_waiter_does_not_keep_others_waiting<E: Engine, K: Kind>() {
    let test = Fixture::<E, K>::new().await;
    let guard = test.guard(&ONE, &one_hour()).await;
    let never = StopToken::new();
    let [first, second, third] = [(); 3].map(|()| waiter(&test, &never));
    yield_now().await;
    first.abort();
    second.abort();
    for aborted in [first, second] {
        let ended = timeout(LONG, aborted).await.expect("it ends");
        assert!(ended.is_err_and(|error| error.is_cancelled()));
    }
    guard.release().await.expect("ours");
    let next = result_of(third).await.expect("it comes free");
    next.release().await.expect("ours");
    assert!(test.held(&ONE).await.is_empty());
}
