//! Requests to a pool whose future waits in the pool's queue at first, and opens or checks a connection then: deadpool.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::on_task;
use crate::error::PoolStep;

/// What a request waits for. Clones belong to the same request.
#[derive(Clone, Default)]
pub(super) struct Progress(Arc<AtomicBool>);

impl Progress {
    /// The request has left the queue.
    fn connect(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// The request is in the queue, perhaps again.
    fn queue(&self) {
        self.0.store(false, Ordering::SeqCst);
    }

    pub(super) fn step(&self) -> PoolStep {
        if self.0.load(Ordering::SeqCst) {
            PoolStep::Connect
        } else {
            PoolStep::Queue
        }
    }
}

/// The two ways to take a connection from the pool.
pub(super) struct Request<A, Q, B> {
    /// Does not wait in the queue: fails if it would have to. In its first poll, or later if the connection that it has
    /// checked can't be lent.
    pub(super) at_once: A,
    /// Whether that is how it failed.
    pub(super) is_busy: B,
    /// Waits in the queue.
    pub(super) queued: Q,
}

/// Takes a connection from the pool in a task of its own. If the caller is dropped, the task ends while it waits in the queue,
/// so that it delays no others there. Later it continues until `longest` has passed, and returns the connection to the pool:
/// one that opens more slowly than the caller waits would never be there.
pub(super) async fn on_task_in_turn<T: Send + 'static>(
    longest: Duration,
    progress: Progress,
    request: Request<
        impl Future<Output = T> + Send + 'static,
        impl Future<Output = T> + Send + 'static,
        impl FnOnce(&T) -> bool + Send + 'static,
    >,
) -> Result<T, Elapsed> {
    let (_caller, caller_left) = oneshot::channel();
    let taken = on_task(timeout(longest, async move {
        let mut at_once = pin!(request.at_once);
        let first = poll_fn(|context| Poll::Ready(at_once.as_mut().poll(context)));
        let taken = match first.await {
            Poll::Ready(taken) => taken,
            Poll::Pending => {
                progress.connect();
                at_once.await
            }
        };
        if !(request.is_busy)(&taken) {
            return Some(taken);
        }
        progress.queue();
        in_queue(progress, caller_left, request.queued).await
    }));
    match taken.await {
        Ok(Some(taken)) => Ok(taken),
        // Only a caller that was dropped gets none.
        Ok(None) => pending().await,
        Err(elapsed) => Err(elapsed),
    }
}

/// Returns `None` if the caller is dropped while the request is in the queue.
async fn in_queue<T>(
    progress: Progress,
    caller_left: oneshot::Receiver<()>,
    queued: impl Future<Output = T>,
) -> Option<T> {
    let mut queued = pin!(queued);
    let mut caller_left = pin!(caller_left);
    let mut has_joined = false;
    poll_fn(|context| {
        if progress.step() == PoolStep::Queue && caller_left.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(taken) = queued.as_mut().poll(context) {
            return Poll::Ready(Some(taken));
        }
        // It joins the queue in its first poll, and nothing but its turn has it polled again.
        if has_joined {
            progress.connect();
        }
        has_joined = true;
        Poll::Pending
    })
    .await
}
