//! The loop that renews and releases the slots of a renewer in the background: on a thread of its own, or as a task.

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::shared::{Inner, Shared};
use crate::engine::HasEngine;
use crate::lender::Lender;
use crate::poll::caught;
use crate::semaphore::guard::callbacks::never_wait;
use crate::timer::{Event, Polled, Timer};

/// The pause of the loop after a panic.
const PANIC_DELAY: Duration = Duration::from_millis(100);

/// The name of its thread.
const NAME: &str = "diesel-locks renewer";

type LockTimer<L> = <<L as Lender>::Connection as HasEngine>::LockTimer;

/// Starts the loop: as a task on the runtime of the caller, unless it is to run `apart` from the application.
pub(super) fn start<L: Lender>(shared: &Arc<Shared<L>>, apart: bool) {
    let running = Running {
        shared: Arc::clone(shared),
        apart,
        has_ended: false,
    };
    let started = if apart {
        LockTimer::<L>::spawn_apart(NAME, run(running))
    } else {
        LockTimer::<L>::spawn(NAME, run(running))
    };
    if let Err(error) = started {
        tracing::warn!(%error, "no thread to renew slots: they will be lost");
    }
}

async fn run<L: Lender>(mut running: Running<L>) {
    let has_thread = !LockTimer::<L>::MAY_STALL;
    if has_thread {
        // What the application runs on it may drop a guard.
        never_wait();
    }
    // Hooks of the pool and the application's instrumentation run in it, and may panic.
    while caught(renew_and_release(&running.shared)).await.is_err() {
        tracing::error!("panic while slots were renewed or released; retrying");
        running.shared.lock().postpone(Instant::now() + PANIC_DELAY);
    }
    running.has_ended = true;
}

/// Returns when the renewer is closed and nothing is left to release.
async fn renew_and_release<L: Lender>(shared: &Arc<Shared<L>>) {
    while let Some(due) = LockTimer::<L>::wait(NextWork(shared)).await {
        if due.renewal {
            shared.renew_all().await;
        }
        if due.release {
            shared.release_pending().await;
        }
    }
}

/// The loop, from its start to its end.
struct Running<L: Lender> {
    shared: Arc<Shared<L>>,
    apart: bool,
    has_ended: bool,
}

/// The runtime of the loop is shut down. What is left to do is done apart from it.
impl<L: Lender> Drop for Running<L> {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let mut inner = self.shared.lock();
        let has_work = !inner.slots.is_empty() || !inner.pending_releases.is_empty();
        let continues = has_work && !self.apart;
        inner.is_running = continues;
        inner.waker = None;
        drop(inner);
        if continues {
            start(&self.shared, true);
        }
    }
}

/// What is to be done now.
struct Due {
    renewal: bool,
    release: bool,
}

impl Inner {
    /// Nothing is due before this time.
    fn postpone(&mut self, time: Instant) {
        self.next_renewal = self.next_renewal.map(|at| at.max(time));
        self.next_release = Some(time);
    }

    /// What is to be done now; if nothing is, when something will be.
    fn due(&self, now: Instant) -> Result<Due, Option<Instant>> {
        let renewal = self.next_renewal.filter(|_| !self.slots.is_empty());
        let release = self.next_release.unwrap_or(now);
        let release = (!self.pending_releases.is_empty()).then_some(release);
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let due = Due {
            renewal: is_due(renewal),
            release: is_due(release),
        };
        if due.renewal || due.release {
            Ok(due)
        } else {
            Err(renewal.into_iter().chain(release).min())
        }
    }
}

/// The next renewal or release. `None` when the renewer is closed and nothing is left to release.
struct NextWork<'a, L>(&'a Shared<L>);

impl<L: Lender> Event for NextWork<'_, L> {
    type Value = Option<Due>;

    fn poll(&mut self, waker: &Waker) -> Polled<Option<Due>> {
        let mut inner = self.0.lock();
        inner.waker = None;
        match inner.due(Instant::now()) {
            Ok(due) => Polled::Ready(Some(due)),
            Err(_) if inner.closed && inner.pending_releases.is_empty() => {
                inner.is_running = false;
                Polled::Ready(None)
            }
            Err(until) => {
                inner.waker = Some(waker.clone());
                Polled::Pending { until }
            }
        }
    }
}
