//! Whether a guard holds its slot: one answer for all who ask, once lost for ever lost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

type Callback = Box<dyn FnOnce() + Send>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Held,
    Lost,
    /// Given back: nobody is told anything any more.
    Ended,
}

struct Inner {
    phase: Phase,
    /// The end of the last confirmed lease.
    deadline: Instant,
    callbacks: Vec<Callback>,
}

pub(super) struct State(Mutex<Inner>);

impl State {
    pub(super) fn new(deadline: Instant) -> Self {
        Self(Mutex::new(Inner {
            phase: Phase::Held,
            deadline,
            callbacks: Vec::new(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the clock first.
    pub(super) fn is_held(&self) -> bool {
        let inner = self.lock();
        match inner.phase {
            Phase::Held if Instant::now() < inner.deadline => true,
            Phase::Held => {
                lose(inner);
                false
            }
            Phase::Lost | Phase::Ended => false,
        }
    }

    /// A renewal was confirmed: the lease lasts until `deadline`. Too late if the last one has ended in the
    /// meantime, for another may have asked and been told so.
    pub(super) fn confirm(&self, deadline: Instant) {
        if self.is_held() {
            self.lock().deadline = deadline;
        }
    }

    /// The slot is not ours any more.
    pub(super) fn take_away(&self) {
        let inner = self.lock();
        if inner.phase == Phase::Held {
            lose(inner);
        }
    }

    /// The slot is about to be given back: `false` when it was before.
    pub(super) fn end(&self) -> bool {
        let mut inner = self.lock();
        let ended = inner.phase == Phase::Ended;
        inner.phase = Phase::Ended;
        let callbacks = std::mem::take(&mut inner.callbacks);
        drop(inner);
        // What they have captured may panic when it is dropped.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(callbacks)));
        !ended
    }

    /// `None` when there is nothing to watch any more.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let inner = self.lock();
        (inner.phase == Phase::Held).then_some(inner.deadline)
    }

    /// What is left of the last confirmed lease, also when the guard has ended.
    pub(super) fn last_remaining(&self) -> Duration {
        let deadline = self.lock().deadline;
        deadline.saturating_duration_since(Instant::now())
    }

    pub(super) fn remaining(&self) -> Duration {
        let deadline = self.deadline().unwrap_or_else(Instant::now);
        deadline.saturating_duration_since(Instant::now())
    }

    pub(super) fn on_lost(&self, callback: Callback) {
        self.is_held();
        let mut inner = self.lock();
        match inner.phase {
            Phase::Held => inner.callbacks.push(callback),
            Phase::Lost => {
                drop(inner);
                call(callback);
            }
            Phase::Ended => {}
        }
    }
}

/// Callbacks run without the lock: they may ask the guard.
fn lose(mut inner: MutexGuard<'_, Inner>) {
    inner.phase = Phase::Lost;
    let callbacks = std::mem::take(&mut inner.callbacks);
    drop(inner);
    tracing::warn!("slot lost: its lease was not renewed in time, or it was taken away");
    callbacks.into_iter().for_each(call);
}

fn call(callback: Callback) {
    if catch_unwind(AssertUnwindSafe(callback)).is_err() {
        tracing::warn!("a callback of a lost slot panicked");
    }
}
