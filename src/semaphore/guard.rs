//! A leased slot that a renewer renews.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::activity::Active;
use crate::{Error, LeaseState, Slot};

mod expiry_watcher;
pub(super) mod state;

use state::State;

/// How long dropping a guard waits at most until the slot is released.
pub(super) const DROP_TIMEOUT: Duration = Duration::from_millis(200);

/// A leased slot that its [`SlotRenewer`](crate::SlotRenewer) renews while the guard lives. Dropping the
/// guard releases the slot.
///
/// # Loss
///
/// A guard is lost when its lease ends before a renewal is confirmed: the database was out of reach, the
/// pool had no connection for too long, the process was paused, or the slot was released by force. A lost
/// guard stays lost. The end of the lease is measured by the local monotonic clock, from the moment before the last
/// confirmed statement was sent. So a guard is lost before another holder is granted the slot, also while a
/// renewal hangs in a connection that does not answer: except when the database's clock jumps ahead, or the slot is
/// released by force. [`is_held`](Self::is_held) then returns false,
/// callbacks of [`on_lost`](Self::on_lost) are called, and the receiver of [`lost_receiver`](Self::lost_receiver) receives.
///
/// A guard can't stop the work that runs while it is held. Call [`ensure_held`](Self::ensure_held) at every step.
/// What happens between two checks is protected by the [fence](Self::fence), or by
/// [`pin_slot`](crate::SemaphoreExt::pin_slot) in the transaction that writes. On some systems the monotonic
/// clock stops while the machine is suspended; the fence protects against that too.
///
/// # Drop
///
/// The renewer's thread releases the slot. Dropping waits for it up to 200 ms, and never panics. If the
/// release fails, it is retried in the background until the lease ends. [`release`](Self::release) waits for the
/// release itself, and returns the error.
#[must_use = "dropping the guard releases the slot"]
#[doc(alias("RAII", "MutexGuard", "permit", "lease"))]
pub struct SlotGuard {
    slot: Slot,
    state: Arc<State>,
    renewer: Arc<dyn Renew>,
    /// A shutdown waits for it.
    _active: Active,
}

/// How a slot is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::semaphore) enum ReleaseKind {
    /// It stays unavailable until the end of its minimum hold time.
    Used,
    /// It was not used, and is free at once.
    Unused,
}

/// What a guard needs of its renewer, whatever the type of its connections.
pub(super) trait Renew: Send + Sync {
    /// Stops renewing the slot.
    fn remove(&self, slot: &Slot);
    /// Releases the slot with a connection of the pool.
    fn release(&self, slot: &Slot) -> Result<LeaseState, Error>;
    /// Has the renewer's thread release the slot, whose lease ends after `remaining`. The receiver is
    /// disconnected when the slot is released.
    fn release_in_background(
        &self,
        slot: &Slot,
        kind: ReleaseKind,
        remaining: Duration,
    ) -> Receiver<()>;
}

impl SlotGuard {
    /// Watches the end of the lease. The caller has the slot renewed.
    pub(super) fn new(
        slot: Slot,
        state: Arc<State>,
        renewer: Arc<dyn Renew>,
        active: Active,
    ) -> Self {
        expiry_watcher::watch(&state);
        Self {
            slot,
            state,
            renewer,
            _active: active,
        }
    }

    /// Returns whether the slot is held: the last confirmed lease has not ended. Reads the clock, not the
    /// database. Once false, it stays false.
    pub fn is_held(&self) -> bool {
        self.state.is_held()
    }

    /// Fails when the slot is not [held](Self::is_held), so that the work ends with an error: `guard.ensure_held()?`.
    ///
    /// # Errors
    ///
    /// [`Error::SlotLost`].
    #[doc(alias("check", "assertLocked"))]
    pub fn ensure_held(&self) -> Result<(), Error> {
        if self.is_held() {
            return Ok(());
        }
        Err(Error::SlotLost {
            semaphore: self.slot.semaphore.clone(),
            number: self.slot.number,
        })
    }

    /// Returns the fence, as [`Slot::fence`].
    #[doc(alias("fencing token", "fencing_token"))]
    pub fn fence(&self) -> i64 {
        self.slot.fence
    }

    /// Returns the slot, for [`pin_slot`](crate::SemaphoreExt::pin_slot). Its
    /// [`remaining`](Slot::remaining) is that of the first lease.
    pub fn slot(&self) -> &Slot {
        &self.slot
    }

    /// Returns the remaining time of the last confirmed lease; zero when the guard is lost.
    pub fn remaining(&self) -> Duration {
        self.state.remaining()
    }

    /// Calls `callback` when the guard is lost; immediately if it is lost already, never if it is released
    /// first.
    ///
    /// The callback runs on the thread that notices the loss, which may be a caller of
    /// [`is_held`](Self::is_held). Keep it short: it delays the callbacks of other guards. Let it lock
    /// nothing that a caller of [`is_held`](Self::is_held) has locked. A panic in it is caught and logged.
    #[doc(alias("HandleLostToken", "lost_lock", "expired"))]
    pub fn on_lost(&self, callback: impl FnOnce() + Send + 'static) {
        self.state.on_lost(Box::new(callback));
    }

    /// Returns the receiver of a channel that gets one message when the guard is lost, and is closed when the guard is
    /// released. Each call returns a channel of its own; that of a guard that is lost already has its message at once.
    pub fn lost_receiver(&self) -> Receiver<()> {
        let (sender, receiver) = channel();
        self.on_lost(move || {
            // The receiver may have been dropped.
            let _ = sender.send(());
        });
        receiver
    }

    /// Releases the slot with a connection of the pool, and returns whether its lease had ended, as
    /// [`release_slot`](crate::SemaphoreExt::release_slot).
    ///
    /// Waits for a connection up to the pool's `connection_timeout`, and then as
    /// [`release_slot`](crate::SemaphoreExt::release_slot).
    ///
    /// # Errors
    ///
    /// [`Error::SlotLost`] when another holder was granted the slot, or it was released before;
    /// [`Error::Pool`]; errors of the database. Except after [`Error::SlotLost`], the release is retried in
    /// the background until the lease ends.
    pub fn release(self) -> Result<LeaseState, Error> {
        self.renewer.remove(&self.slot);
        if !self.state.mark_released() {
            // Released by `SlotRenewer::release_guards`.
            return Err(Error::SlotLost {
                semaphore: self.slot.semaphore.clone(),
                number: self.slot.number,
            });
        }
        let remaining = self.state.last_remaining();
        let released = self.renewer.release(&self.slot);
        if released.as_ref().is_err_and(|error| !error.is_slot_lost()) {
            let kind = ReleaseKind::Used;
            drop(
                self.renewer
                    .release_in_background(&self.slot, kind, remaining),
            );
        }
        released
    }
}

impl SlotGuard {
    /// Ends the guard, and leaves it to the caller to release the slot. `None` if it was released before.
    pub(super) fn into_slot(self) -> Option<Slot> {
        self.renewer.remove(&self.slot);
        self.state.mark_released().then(|| self.slot.clone())
    }

    /// Releases a slot that was not used, also before the end of its minimum hold time.
    pub(super) fn release_unused(mut self) {
        self.end(ReleaseKind::Unused);
    }

    /// Has the renewer's thread release the slot, and waits for it for a short time. After that the thread continues to
    /// retry until the lease ends.
    fn end(&mut self, kind: ReleaseKind) {
        let remaining = self.state.last_remaining();
        if self.state.mark_released() {
            self.renewer.remove(&self.slot);
            let released = self
                .renewer
                .release_in_background(&self.slot, kind, remaining);
            let _ = released.recv_timeout(DROP_TIMEOUT);
        }
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.end(ReleaseKind::Used);
    }
}

impl std::fmt::Debug for SlotGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlotGuard")
            .field("slot", &self.slot)
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}
