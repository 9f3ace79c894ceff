//! Whether a guard holds its slot: the same answer for every caller; once lost, always lost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::ReleaseKind;
use super::callbacks::{Callback, call, call_all};
use crate::Slot;
use crate::semaphore::events;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Held,
    Lost,
    /// No callback is called any more.
    Released,
}

struct Inner {
    /// For the events of `tracing`.
    semaphore: String,
    number: u32,
    acquired: Instant,
    phase: Phase,
    /// The end of the last confirmed lease.
    deadline: Instant,
    kind: ReleaseKind,
    /// Those of this crate, which the thread that notices the loss calls,
    signals: Vec<Callback>,
    /// and those of the application, which another thread calls.
    callbacks: Vec<Callback>,
}

pub(in crate::semaphore) struct State(Mutex<Inner>);

impl State {
    /// The slot was acquired just now.
    pub(in crate::semaphore) fn new(slot: &Slot) -> Self {
        Self(Mutex::new(Inner {
            semaphore: slot.semaphore.clone(),
            number: slot.number,
            acquired: Instant::now(),
            phase: Phase::Held,
            deadline: slot.deadline,
            kind: ReleaseKind::Used,
            signals: Vec::new(),
            callbacks: Vec::new(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares the deadline with the clock first.
    pub(in crate::semaphore) fn is_held(&self) -> bool {
        let inner = self.lock();
        match inner.phase {
            Phase::Held if Instant::now() < inner.deadline => true,
            Phase::Held => {
                mark_lost(inner);
                false
            }
            Phase::Lost | Phase::Released => false,
        }
    }

    /// Sets the deadline after a confirmed renewal. A confirmation that comes after the last deadline is
    /// ignored: the guard may have been reported as lost by then.
    pub(in crate::semaphore) fn confirm(&self, deadline: Instant) {
        if self.is_held() {
            self.lock().deadline = deadline;
        }
    }

    /// Marks the guard as lost: the database says that the slot is not held by this token.
    pub(in crate::semaphore) fn revoke(&self) {
        let inner = self.lock();
        if inner.phase == Phase::Held {
            mark_lost(inner);
        }
    }

    /// Sets how the slot is released unless its guard does it: as a used one by default.
    pub(in crate::semaphore) fn release_as(&self, kind: ReleaseKind) {
        self.lock().kind = kind;
    }

    /// Sets that the slot is released as a used one, if it is held. Returns whether it is.
    pub(in crate::semaphore) fn begin_use(&self) -> bool {
        let mut inner = self.lock();
        let is_held = inner.phase == Phase::Held && Instant::now() < inner.deadline;
        if is_held {
            inner.kind = ReleaseKind::Used;
        }
        is_held
    }

    /// Marks the guard as released. Returns how its slot is to be released; `None` when it was released before.
    pub(in crate::semaphore) fn mark_released(&self) -> Option<ReleaseKind> {
        let mut inner = self.lock();
        let kind = inner.kind;
        let was_released = inner.phase == Phase::Released;
        let held = (inner.phase == Phase::Held).then(|| inner.acquired.elapsed());
        inner.phase = Phase::Released;
        let signals = std::mem::take(&mut inner.signals);
        let callbacks = std::mem::take(&mut inner.callbacks);
        let (semaphore, number) = (std::mem::take(&mut inner.semaphore), inner.number);
        drop(inner);
        if let Some(held) = held {
            events::record_released(&semaphore, Some(number), held);
        }
        // Dropping what they have captured may panic.
        let _ = catch_unwind(AssertUnwindSafe(|| drop((signals, callbacks))));
        (!was_released).then_some(kind)
    }

    /// The end of the last confirmed lease; `None` when the guard is lost or released.
    pub(in crate::semaphore) fn deadline(&self) -> Option<Instant> {
        let inner = self.lock();
        (inner.phase == Phase::Held).then_some(inner.deadline)
    }

    /// The remaining time of the last confirmed lease, also of a guard that is released.
    pub(in crate::semaphore) fn last_remaining(&self) -> Duration {
        let deadline = self.lock().deadline;
        deadline.saturating_duration_since(Instant::now())
    }

    pub(in crate::semaphore) fn remaining(&self) -> Duration {
        let deadline = self.deadline().unwrap_or_else(Instant::now);
        deadline.saturating_duration_since(Instant::now())
    }

    /// Has a callback of the application called when the guard is lost; at once, by this thread, if it is lost already.
    pub(super) fn on_lost(&self, callback: Callback) {
        self.add(callback, |inner| &mut inner.callbacks);
    }

    /// [`on_lost`](Self::on_lost) of this crate: the callback returns at once, and the thread that notices the loss calls it.
    pub(super) fn signal_loss(&self, signal: Callback) {
        self.add(signal, |inner| &mut inner.signals);
    }

    fn add(&self, callback: Callback, list: impl FnOnce(&mut Inner) -> &mut Vec<Callback>) {
        self.is_held();
        let mut inner = self.lock();
        match inner.phase {
            Phase::Held => list(&mut inner).push(callback),
            Phase::Lost => {
                drop(inner);
                call(callback);
            }
            Phase::Released => {}
        }
    }
}

/// Callbacks are called without the lock: they may call the guard.
fn mark_lost(mut inner: MutexGuard<'_, Inner>) {
    inner.phase = Phase::Lost;
    let signals = std::mem::take(&mut inner.signals);
    let callbacks = std::mem::take(&mut inner.callbacks);
    let (semaphore, number) = (inner.semaphore.clone(), inner.number);
    let held = inner.acquired.elapsed();
    drop(inner);
    events::record_lost(&semaphore, number, held);
    signals.into_iter().for_each(call);
    call_all(callbacks);
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn unused() -> State {
        let slot = Slot {
            deadline: Instant::now() + HOUR,
            ..Slot::from_parts("workers", 1, uuid::Uuid::new_v4(), 0)
        };
        let state = State::new(&slot);
        state.release_as(ReleaseKind::Unused);
        state
    }

    /// Otherwise the slot of a tick that has begun would be free at once, and another node would begin the same tick.
    #[test]
    fn slot_that_is_released_as_unused_is_not_used_any_more() {
        let state = unused();
        assert_eq!(state.mark_released(), Some(ReleaseKind::Unused));
        assert!(!state.begin_use());
    }

    #[test]
    fn slot_that_is_used_is_released_as_such() {
        let state = unused();
        assert!(state.begin_use());
        assert_eq!(state.mark_released(), Some(ReleaseKind::Used));
        assert_eq!(state.mark_released(), None);
    }

    #[test]
    fn lost_slot_is_not_used() {
        let state = unused();
        state.revoke();
        assert!(!state.begin_use());
    }
}
