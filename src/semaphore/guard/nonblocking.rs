//! The guard of an `AsyncSlotRenewer`.
#![expect(
    clippy::manual_async_fn,
    reason = "the signatures promise that the futures are `Send`"
)]

use std::time::Duration;

use tokio::sync::watch;

use super::held::Held;
use crate::{Error, LeaseState, Slot};

/// A leased slot that its [`AsyncSlotRenewer`](crate::AsyncSlotRenewer) renews while the guard lives. Dropping the guard
/// releases the slot.
///
/// # Loss
///
/// A guard is lost when its lease ends before a renewal is confirmed: the database was out of reach, the pool had no
/// connection for too long, the process was paused, the runtime that renews it did not run, or the slot was released by force.
/// A lost guard stays lost. The end of the lease is measured by the local monotonic clock, from the moment before the last
/// confirmed statement was sent, and a thread of this crate watches it, also while the runtime is blocked. When a guard is lost,
/// [`is_held`](Self::is_held) returns false, callbacks of [`on_lost`](Self::on_lost) are called, and [`lost`](Self::lost) is
/// ready.
///
/// A guard is lost before another holder is granted the slot, also while a renewal hangs, except:
///
/// - when the slot is released by force;
/// - when the database's clock jumps ahead or runs faster than that of this machine;
/// - when a fail-over or a restored backup loses the grant or its last renewal;
/// - when several nodes of a cluster grant slots and their clocks differ;
/// - when the monotonic clock of this machine stops while it is suspended, as on Linux.
///
/// A guard can't stop the work that runs while it is held. Run the work in a `select!` beside [`lost`](Self::lost), or call
/// [`ensure_held`](Self::ensure_held) at every step. What happens between two checks is protected by the
/// [fence](Self::fence), or by [`pin_slot`](crate::AsyncSemaphoreExt::pin_slot) in the transaction that writes.
///
/// # Drop
///
/// The renewer's task releases the slot, and drop does not wait for it. If the runtime of that task was shut down, a thread of this
/// crate releases it; if it exists and does not run, the slot is released when it runs, or when the lease ends.
/// If the release fails, it is retried until the lease ends, for a minute at most. [`release`](Self::release) waits for the
/// release, and returns the error. A process that ends right after a drop may end before the release: await
/// [`release`](Self::release) or [`release_guards`](crate::AsyncSlotRenewer::release_guards).
#[must_use = "dropping the guard releases the slot"]
#[doc(alias("RAII", "MutexGuard", "permit", "lease"))]
pub struct AsyncSlotGuard {
    held: Held,
    /// Closed when the guard is lost or released.
    ended: watch::Receiver<()>,
}

impl AsyncSlotGuard {
    pub(in crate::semaphore) fn new(held: Held) -> Self {
        let (sender, ended) = watch::channel(());
        held.signal_loss(move || drop(sender));
        Self { held, ended }
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

    /// Waits until the slot is not held any more: the guard is lost, or
    /// [`release_guards`](crate::AsyncSlotRenewer::release_guards) has released it. The future may be dropped, and may be made
    /// as often as one likes.
    ///
    /// ```
    /// use diesel_locks::{AsyncSlotGuard, Error};
    ///
    /// async fn work(guard: &AsyncSlotGuard) -> Result<(), Error> {
    ///     tokio::select! {
    ///         () = guard.lost() => guard.ensure_held(),
    ///         result = collate() => result,
    ///     }
    /// }
    /// # async fn collate() -> Result<(), Error> { Ok(()) }
    /// ```
    #[doc(alias("HandleLostToken", "cancelled", "expired"))]
    pub async fn lost(&self) {
        let mut ended = self.ended.clone();
        // Nothing is ever sent: it is an error when the sender is dropped.
        let _ = ended.changed().await;
    }

    /// [`on_lost`](Self::on_lost) of this crate: the callback returns at once.
    pub(in crate::semaphore) fn signal_loss(&self, signal: impl FnOnce() + Send + 'static) {
        self.held.signal_loss(signal);
    }

    /// Returns the fence, as [`Slot::fence`].
    #[doc(alias("fencing token", "fencing_token"))]
    pub fn fence(&self) -> i64 {
        self.slot().fence
    }

    /// Returns the slot, for [`pin_slot`](crate::AsyncSemaphoreExt::pin_slot). Its
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
    /// A thread of this crate, outside a runtime, calls the callbacks of all guards of the process, one after the other. So a
    /// callback delays no renewal, but it delays the callbacks of other guards: keep it short. If the guard is lost already, the caller
    /// of this method calls it. A callback may drop the guard. Spawn nothing in it: `tokio::spawn` panics
    /// outside a runtime. A panic in it is caught and logged.
    pub fn on_lost(&self, callback: impl FnOnce() + Send + 'static) {
        self.held.on_lost(callback);
    }

    /// Releases the slot with a connection of the pool, and returns whether its lease had ended, as
    /// [`release_slot`](crate::AsyncSemaphoreExt::release_slot).
    ///
    /// Waits for a connection up to the time-out of the pool, and then as
    /// [`release_slot`](crate::AsyncSemaphoreExt::release_slot). If the future is dropped, the slot is released in the
    /// background.
    ///
    /// # Errors
    ///
    /// [`Error::SlotLost`] when another holder was granted the slot, or it was released before;
    /// [`Error::AsyncPool`]; errors of the database. Except after [`Error::SlotLost`], the release is retried in
    /// the background until the lease ends, for a minute at most.
    pub fn release(self) -> impl Future<Output = Result<LeaseState, Error>> + Send {
        async move { self.held.release().await }
    }
}

impl std::fmt::Debug for AsyncSlotGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.held.fmt("AsyncSlotGuard", f)
    }
}
