//! The guard of a `SlotRenewer`.

use std::time::Duration;

use super::callbacks::may_wait;
use super::held::Held;
use super::{DROP_TIMEOUT, Releasing};
use crate::engine::HasBlockingEngine;
use crate::{Error, LeaseState, Slot};

/// A leased slot that its [`SlotRenewer`](crate::SlotRenewer) renews while the guard lives. Dropping the
/// guard releases the slot.
///
/// # Loss
///
/// A guard is lost when its lease ends before a renewal is confirmed: the database was out of reach, the
/// pool had no connection for too long, the process was paused, or the slot was released by force. A lost
/// guard stays lost. The end of the lease is measured by the local monotonic clock, from the moment before the last
/// confirmed statement was sent. When a guard is lost, [`is_held`](Self::is_held) returns false, and callbacks of
/// [`on_lost`](Self::on_lost) are called.
///
/// A guard is lost before another holder is granted the slot, also while a renewal hangs, except:
///
/// - when the slot is released by force;
/// - when the database's clock jumps ahead or runs faster than that of this machine;
/// - when a fail-over or a restored backup loses the grant or its last renewal;
/// - when several nodes of a cluster grant slots and their clocks differ;
/// - when the monotonic clock of this machine stops while it is suspended, as on Linux.
///
/// A guard can't stop the work that runs while it is held. Call [`ensure_held`](Self::ensure_held) at every step.
/// What happens between two checks is protected by the [fence](Self::fence), or by
/// [`pin_slot`](crate::SemaphoreExt::pin_slot) in the transaction that writes.
///
/// # Drop
///
/// The renewer's thread releases the slot. Dropping waits for it up to 200 ms, in a callback of [`on_lost`](Self::on_lost) not at
/// all, and never panics. If the
/// release fails, it is retried in the background until the lease ends, for a minute at most. A slot that is not released
/// then is free when its lease ends. [`release`](Self::release) waits for the release itself, and returns the error.
#[must_use = "dropping the guard releases the slot"]
#[doc(alias("RAII", "MutexGuard", "permit", "lease"))]
pub struct SlotGuard {
    held: Held,
    /// [`HasBlockingEngine::block_on`](crate::engine::HasBlockingEngine::block_on) of its connections.
    block_on: BlockOn,
}

/// Waits for the outcome of a release.
type BlockOn = fn(Releasing<'_>) -> Result<LeaseState, Error>;

impl SlotGuard {
    pub(in crate::semaphore) fn new<C: HasBlockingEngine>(held: Held) -> Self {
        Self {
            held,
            block_on: |release| C::block_on(release),
        }
    }

    /// Returns whether the slot is held: the last confirmed lease has not ended. Reads the clock, not the
    /// database. Once false, it stays false.
    pub fn is_held(&self) -> bool {
        self.held.is_held()
    }

    /// Fails when the slot is not [held](Self::is_held), so that the work ends with an error: `guard.ensure_held()?`.
    ///
    /// # Errors
    ///
    /// [`Error::SlotLost`].
    #[doc(alias("check", "assertLocked"))]
    pub fn ensure_held(&self) -> Result<(), Error> {
        self.held.ensure_held()
    }

    /// Returns the fence, as [`Slot::fence`].
    #[doc(alias("fencing token", "fencing_token"))]
    pub fn fence(&self) -> i64 {
        self.slot().fence
    }

    /// Returns the slot, for [`pin_slot`](crate::SemaphoreExt::pin_slot). Its
    /// [`remaining`](Slot::remaining) is that of the first lease.
    pub fn slot(&self) -> &Slot {
        self.held.slot()
    }

    /// Returns the remaining time of the last confirmed lease; zero when the guard is lost.
    pub fn remaining(&self) -> Duration {
        self.held.remaining()
    }

    /// Calls `callback` when the guard is lost; immediately if it is lost already, never if it is released
    /// first.
    ///
    /// A thread of this crate calls the callbacks of all guards of the process, one after the other. So a callback delays no
    /// renewal, but it delays the callbacks of other guards: keep it short. If the guard is lost already, the caller of this method
    /// calls it. A callback may drop the guard. A panic in it is caught and logged.
    ///
    /// To wait for the loss, let the callback send to a channel.
    #[doc(alias("HandleLostToken", "lost_lock", "expired"))]
    pub fn on_lost(&self, callback: impl FnOnce() + Send + 'static) {
        self.held.on_lost(callback);
    }

    /// [`on_lost`](Self::on_lost) of this crate: the callback returns at once.
    pub(in crate::semaphore) fn signal_loss(&self, signal: impl FnOnce() + Send + 'static) {
        self.held.signal_loss(signal);
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
    /// the background until the lease ends, for a minute at most.
    pub fn release(self) -> Result<LeaseState, Error> {
        (self.block_on)(Box::pin(self.held.release()))
    }
}

/// Has the renewer's thread release the slot, and waits for it for a short time. After that the thread continues to
/// retry until the lease ends, for a minute at most.
impl Drop for SlotGuard {
    fn drop(&mut self) {
        if let Some(released) = self.held.end()
            && may_wait()
        {
            let _ = released.recv_timeout(DROP_TIMEOUT);
        }
    }
}

impl std::fmt::Debug for SlotGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.held.fmt("SlotGuard", f)
    }
}
