//! Polls a future a number of times, and drops it.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::sleep;

use super::engine::BoxFuture;

/// Nothing that is to happen takes longer.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Asks whether a future waits.
pub(crate) type AskWaits = dyn Fn() -> BoxFuture<'static, bool> + Send + Sync;

/// How a future ended.
#[derive(Debug)]
pub(crate) enum End<T> {
    /// It was ready before it was polled so often.
    Ready(T),
    Panicked,
    /// It was dropped after these polls.
    Dropped,
    /// It was dropped after fewer polls, because it waited.
    DroppedWaiting,
}

/// Polls the future `polls` times, each time when it has asked for it, and drops it. Drops it earlier when `waits` says
/// that it waits, which is asked while it does not ask to be polled. Returns when the drop began.
pub(crate) async fn poll_then_drop<T>(
    mut future: BoxFuture<'_, T>,
    polls: usize,
    waits: &AskWaits,
) -> (End<T>, Instant) {
    let mut end = End::Dropped;
    for _ in 0..polls {
        let woken = Arc::new(Woken::default());
        if let Some(ended) = poll(&mut future, &Waker::from(Arc::clone(&woken))) {
            end = ended;
            break;
        }
        if woken.or_waits(waits).await {
            end = End::DroppedWaiting;
            break;
        }
    }
    let dropped = Instant::now();
    drop(future);
    (end, dropped)
}

/// Polls the future until this is true after a poll, and drops it there. Returns its value if it was ready in that poll or
/// before.
pub(crate) async fn poll_until<T>(
    future: impl Future<Output = T>,
    is_there: impl Fn() -> bool,
) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending if is_there() => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await
}

fn poll<T>(future: &mut BoxFuture<'_, T>, waker: &Waker) -> Option<End<T>> {
    let mut context = Context::from_waker(waker);
    match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context))) {
        Ok(Poll::Pending) => None,
        Ok(Poll::Ready(value)) => Some(End::Ready(value)),
        Err(_) => Some(End::Panicked),
    }
}

#[derive(Default)]
struct Woken {
    called: AtomicBool,
    notify: Notify,
}

impl Woken {
    /// Returns `false` when the future is to be polled, and `true` when it waits.
    async fn or_waits(&self, waits: &AskWaits) -> bool {
        let polled = Instant::now();
        loop {
            tokio::select! {
                () = self.notify.notified() => return false,
                () = sleep(Duration::from_millis(5)) => {}
            }
            if waits().await && !self.called.load(Ordering::SeqCst) {
                return true;
            }
            assert!(polled.elapsed() < LONG, "the future is not woken");
        }
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.called.store(true, Ordering::SeqCst);
        self.notify.notify_one();
    }
}
