//! The slot of a guard: its state, the notification of its loss, and its release.

use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
#[cfg(feature = "testing")]
use std::sync::Weak;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::acts::events::Period;
use crate::acts::{events, slot};
pub(crate) use crate::engine::slots::ReleaseKind;
use crate::jobs::callbacks::{Callback, call, call_all};
use crate::jobs::renewer::{Handle, await_release};
use crate::link::activity::Active;
use crate::rt::alarm::call_at;
use crate::rt::lock;
use crate::rt::stop_token::StopToken;
use crate::{Error, LeaseOptions, LeaseState, Slot};

/// A renewal that would extend the lease by less leaves the slot out, if the lease has a `max_hold`.
const LEAST_GAIN: Duration = Duration::from_millis(10);

/// How often a guard is looked at, at least, until its lease expires: one that was dropped is forgotten then.
const LONGEST_LOOK: Duration = Duration::from_secs(60);

/// A slot that is renewed while this lives. Dropping it has the slot released in the background. A thread waits for that for a
/// short time.
pub(crate) struct Held {
    state: Arc<State>,
    renewer: Arc<Handle>,
    _inside: Period,
    /// A shutdown waits for it.
    _active: Active,
}

/// The slots that renewers of this process hold.
#[cfg(feature = "testing")]
static HELD: Mutex<Vec<(Weak<State>, Weak<Handle>)>> = Mutex::new(Vec::new());

/// Has the slots of this semaphore renewed as soon as possible.
#[cfg(feature = "testing")]
pub(crate) fn renew_all_soon(semaphore: &str) {
    let held: Vec<_> = lock(&HELD)
        .iter()
        .filter_map(|(state, renewer)| Some((state.upgrade()?, renewer.upgrade()?)))
        .collect();
    for (state, renewer) in held {
        if state.slot.semaphore == semaphore {
            Arc::clone(&renewer.0).renew_soon(&state.slot);
        }
    }
}

impl Deref for Held {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl Held {
    /// Watches the end of the lease. The caller has the slot renewed.
    pub(crate) fn new(state: Arc<State>, renewer: Arc<Handle>, active: Active) -> Self {
        state.watch();
        #[cfg(feature = "testing")]
        {
            let mut all = lock(&HELD);
            all.retain(|(state, _)| state.strong_count() > 0);
            all.push((Arc::downgrade(&state), Arc::downgrade(&renewer)));
        }
        Self {
            _inside: Period::hold_guarded_slot(&state.slot.semaphore),
            state,
            renewer,
            _active: active,
        }
    }

    pub(crate) fn ensure_held(&self) -> Result<(), Error> {
        if self.is_held() {
            Ok(())
        } else {
            Err(slot::lost(&self.slot))
        }
    }

    /// Records progress. If the last renewal left the slot out because there was no progress, has it renewed.
    pub(crate) fn progress(&self) -> Result<(), Error> {
        self.ensure_held()?;
        let mut inner = lock(&self.inner);
        inner.progress = Instant::now();
        let was_left_out = std::mem::take(&mut inner.stalled);
        drop(inner);
        if was_left_out {
            Arc::clone(&self.renewer.0).renew_soon(&self.slot);
        }
        Ok(())
    }

    /// Releases the slot with a connection of the pool. After an error other than [`Error::SlotLost`], and if the future is
    /// dropped, the slot is released in the background.
    pub(crate) async fn release(&self) -> Result<LeaseState, Error> {
        let renewer = &self.renewer.0;
        renewer.remove(&self.slot);
        if !self.mark_released() {
            // Released by `release_guards`.
            return Err(slot::lost(&self.slot));
        }
        let mut later = ReleaseLater(Some(self));
        let released = renewer.release(&self.slot).await;
        if released.as_ref().map_or_else(Error::is_slot_lost, |_| true) {
            later.0 = None;
        }
        released
    }

    /// Has the slot released in the background, also before the end of its minimum hold time: it was not used.
    pub(crate) fn give_back(self) {
        self.end_as(ReleaseKind::Unused);
    }

    /// Leaves it to the caller to renew and to release the slot, which is held.
    pub(crate) fn hand_on(self) -> Result<Slot, Error> {
        let deadline = self.mark_handed_on();
        let deadline = deadline.ok_or_else(|| slot::lost(&self.slot))?;
        self.renewer.0.remove(&self.slot);
        Ok(Slot {
            deadline,
            ..self.slot.clone()
        })
    }

    fn end_as(&self, kind: ReleaseKind) {
        if self.mark_released() {
            self.renewer.0.remove(&self.slot);
            await_release(self.release_in_background(kind));
        }
    }

    fn release_in_background(&self, kind: ReleaseKind) -> Option<Receiver<()>> {
        let renewer = Arc::clone(&self.renewer.0);
        renewer.release_in_background(&self.slot, kind, self.last_remaining())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.end_as(ReleaseKind::Used);
    }
}

struct ReleaseLater<'a>(Option<&'a Held>);

impl Drop for ReleaseLater<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.0 {
            drop(held.release_in_background(ReleaseKind::Used));
        }
    }
}

/// Whether a guard holds its slot: the same answer for every caller; once lost, always lost.
pub(crate) struct State {
    slot: Slot,
    acquired: Instant,
    pub(crate) lease: LeaseOptions,
    /// Stopped when the guard is lost or released.
    pub(crate) ended: StopToken,
    inner: Mutex<Inner>,
}

struct Inner {
    phase: Phase,
    deadline: Instant,
    /// When the work made progress last.
    progress: Instant,
    /// Whether a renewal has left the slot out since.
    stalled: bool,
    /// Whether the holder is asked to release the slot.
    release_requested: bool,
    /// Stopped then, or when the guard is lost or released.
    active: Option<StopToken>,
    callbacks: Vec<Callback>,
}

impl Inner {
    fn is_held(&self) -> bool {
        self.phase == Phase::Held && Instant::now() < self.deadline
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Held,
    Lost,
    /// No callback is called any more.
    Released,
}

impl State {
    pub(crate) fn new(slot: Slot, lease: LeaseOptions) -> Self {
        let acquired = Instant::now();
        Self {
            inner: Mutex::new(Inner {
                phase: Phase::Held,
                deadline: slot.deadline,
                progress: acquired,
                stalled: false,
                release_requested: false,
                active: None,
                callbacks: Vec::new(),
            }),
            ended: StopToken::new(),
            slot,
            acquired,
            lease,
        }
    }

    pub(crate) fn slot(&self) -> &Slot {
        &self.slot
    }

    pub(crate) fn is_held(&self) -> bool {
        let inner = lock(&self.inner);
        let is_held = inner.is_held();
        if !is_held && inner.phase == Phase::Held {
            self.mark_lost(inner);
        }
        is_held
    }

    /// Has the guard marked as lost when its lease expires, also while a renewal hangs in a statement.
    fn watch(self: &Arc<Self>) {
        let Some(deadline) = self.deadline() else {
            return;
        };
        let state = Arc::downgrade(self);
        call_at(deadline.min(Instant::now() + LONGEST_LOOK), move || {
            if let Some(state) = state.upgrade()
                && state.is_held()
            {
                state.watch();
            }
        });
    }

    /// Sets the deadline after a confirmed renewal, unless the last one has passed: the guard may have been reported as lost by
    /// then. Notes whether the renewal has found a request for the release of the slot.
    pub(crate) fn confirm(&self, deadline: Instant, release_requested: bool) {
        if !self.is_held() {
            return;
        }
        let mut inner = lock(&self.inner);
        inner.deadline = deadline;
        if !release_requested || std::mem::replace(&mut inner.release_requested, true) {
            return;
        }
        let active = inner.active.take();
        drop(inner);
        if let Some(active) = active {
            active.stop();
        }
        let (semaphore, number) = (&self.slot.semaphore, self.slot.number);
        tracing::info!(semaphore, number, "the holder is asked to release the slot");
    }

    pub(crate) fn release_requested(&self) -> bool {
        lock(&self.inner).release_requested
    }

    /// Has a token stopped when the slot is lost or released, or its release is requested; at once if it was before.
    pub(crate) fn stop_when_inactive(&self, stop: &StopToken) {
        self.is_held();
        let mut inner = lock(&self.inner);
        if inner.phase == Phase::Held && !inner.release_requested {
            inner.active = Some(stop.clone());
        } else {
            drop(inner);
            stop.stop();
        }
    }

    /// Returns the lease that the next renewal requests; `None` if it leaves the slot out, because there was no progress for too
    /// long, or nothing is left of the time after the grant beyond which no renewal extends the lease.
    pub(crate) fn next_lease(&self) -> Option<Duration> {
        let (lease, mut inner) = (self.lease.duration(), lock(&self.inner));
        let pause = inner.progress.elapsed();
        if self.lease.progress_within.is_some_and(|it| pause >= it) {
            inner.stalled = true;
            return None;
        }
        let Some(longest) = self.lease.max_hold else {
            return Some(lease);
        };
        let left = longest.saturating_sub(self.acquired.elapsed());
        let held = inner.deadline.saturating_duration_since(Instant::now());
        (held + LEAST_GAIN < left).then_some(lease.min(left))
    }

    /// Records an event if a renewal left the slot out because there was no progress. Holds no lock: the application's subscriber
    /// may call the guard.
    pub(crate) fn record_stall(&self) {
        let inner = lock(&self.inner);
        let pause = inner.stalled.then(|| inner.progress.elapsed());
        drop(inner);
        if let Some(pause) = pause {
            events::record_slot_stalled(&self.slot.semaphore, self.slot.number, pause);
        }
    }

    /// Marks the guard as lost: the database says that the slot is not held by this token.
    pub(crate) fn revoke(&self) {
        let inner = lock(&self.inner);
        if inner.phase == Phase::Held {
            self.mark_lost(inner);
        }
    }

    /// Callbacks are called without the lock: they may call the guard. The event comes last: the application's subscriber may
    /// panic.
    fn mark_lost(&self, mut inner: MutexGuard<'_, Inner>) {
        inner.phase = Phase::Lost;
        let active = inner.active.take();
        let callbacks = std::mem::take(&mut inner.callbacks);
        drop(inner);
        self.stop(active);
        call_all(callbacks);
        events::record_slot_lost(
            &self.slot.semaphore,
            self.slot.number,
            self.acquired.elapsed(),
        );
    }

    /// Those who wait for the tokens may panic when they are woken.
    fn stop(&self, active: Option<StopToken>) {
        for token in [Some(self.ended.clone()), active].into_iter().flatten() {
            let _ = catch_unwind(AssertUnwindSafe(|| token.stop()));
        }
    }

    /// Marks the guard as released. Returns false when it was released before.
    pub(crate) fn mark_released(&self) -> bool {
        self.end(lock(&self.inner))
    }

    /// Marks the guard as released if it is held. Returns the end of its last confirmed lease.
    fn mark_handed_on(&self) -> Option<Instant> {
        let inner = lock(&self.inner);
        let deadline = inner.is_held().then_some(inner.deadline)?;
        self.end(inner);
        Some(deadline)
    }

    fn end(&self, mut inner: MutexGuard<'_, Inner>) -> bool {
        let phase = std::mem::replace(&mut inner.phase, Phase::Released);
        let active = inner.active.take();
        let callbacks = std::mem::take(&mut inner.callbacks);
        drop(inner);
        self.stop(active);
        // Dropping what they have captured may panic.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(callbacks)));
        if phase == Phase::Held {
            let held = self.acquired.elapsed();
            events::record_slot_released(&self.slot.semaphore, Some(self.slot.number), held);
        }
        phase != Phase::Released
    }

    /// The end of the last confirmed lease; `None` when the guard is lost or released.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let inner = lock(&self.inner);
        (inner.phase == Phase::Held).then_some(inner.deadline)
    }

    /// The remaining time of the last confirmed lease, also of a guard that is released.
    pub(crate) fn last_remaining(&self) -> Duration {
        let deadline = lock(&self.inner).deadline;
        deadline.saturating_duration_since(Instant::now())
    }

    pub(crate) fn remaining(&self) -> Duration {
        let deadline = self.deadline().unwrap_or_else(Instant::now);
        deadline.saturating_duration_since(Instant::now())
    }

    /// Has a callback of the application called when the guard is lost; at once, by this thread, if it is lost already.
    pub(crate) fn on_lost(&self, callback: impl FnOnce() + Send + 'static) {
        self.is_held();
        let mut inner = lock(&self.inner);
        match inner.phase {
            Phase::Held => inner.callbacks.push(Box::new(callback)),
            Phase::Lost => {
                drop(inner);
                call(Box::new(callback));
            }
            Phase::Released => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn held() -> State {
        let slot = Slot {
            deadline: Instant::now() + HOUR,
            ..Slot::from_parts("workers", 1, uuid::Uuid::new_v4(), 0)
        };
        State::new(slot, LeaseOptions::new(HOUR))
    }

    #[test]
    fn slot_is_handed_on_while_it_is_held_and_once() {
        let state = held();
        assert_eq!(state.mark_handed_on(), Some(state.slot.deadline));
        assert_eq!(state.mark_handed_on(), None);
        let state = held();
        state.revoke();
        assert_eq!(state.mark_handed_on(), None, "it is lost");
        let state = held();
        lock(&state.inner).deadline = Instant::now();
        assert_eq!(state.mark_handed_on(), None, "its lease has ended");
    }
}
