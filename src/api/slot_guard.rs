//! What holds a slot of a `SlotRenewer`: a guard, and the argument of its closures.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use crate::jobs::guard::Held;
#[cfg(feature = "_async_pool")]
use crate::pools::Async;
use crate::pools::Blocking;
use crate::rt::block_on;
use crate::{Error, LeaseState, Slot, StopToken};

/// A leased slot that its [`SlotRenewer`](crate::SlotRenewer) renews while the guard lives. Dropping the guard releases the slot.
///
/// A guard can't stop the work that runs while it is held: check it at every step (`guard.ensure_held()?`), or run the work in a
/// `select!` beside `lost`. For what happens between two checks use the [fence](Self::fence), or
/// [`pin_slot`](crate::SemaphoreExt::pin_slot) in the transaction that writes.
///
/// # Loss
///
/// A guard is lost when its lease expires before a renewal is confirmed, or the slot was released by force. It stays lost. A thread
/// of this crate watches the end of the lease, by the local monotonic clock, from the moment before the last confirmed statement
/// was sent. So a guard is lost before another holder is granted the slot, also while a renewal hangs, except:
///
/// - when the slot is released by force;
/// - when the database's clock jumps ahead or runs faster than that of this machine;
/// - when a fail-over or a restored backup loses the grant or its last renewal;
/// - when several nodes of a cluster grant slots and their clocks differ;
/// - when the monotonic clock of this machine stops while it is suspended, as on Linux.
///
/// # Drop
///
/// The renewer's thread or task releases the slot. A blocking guard waits for it up to 200 ms, in a callback of
/// [`on_lost`](Self::on_lost) not at all; a `SlotGuard<Async>` does not wait. A release that fails is retried until the lease expires,
/// for at least 10 s and at most a minute. Before the process ends, call `release`, which waits and returns the error, or
/// `SlotRenewer::release_guards`.
#[must_use = "dropping the guard releases the slot"]
#[doc(alias("RAII", "MutexGuard", "permit", "lease"))]
pub struct SlotGuard<S = Blocking> {
    held: Held,
    style: PhantomData<fn() -> S>,
}

impl<S> SlotGuard<S> {
    pub(crate) fn new(held: Held) -> Self {
        let style = PhantomData;
        Self { held, style }
    }

    /// Returns whether the slot is held: the last confirmed lease has not ended. Reads the clock, not the
    /// database. Once false, it stays false.
    pub fn is_held(&self) -> bool {
        self.held.is_held()
    }

    /// Fails when the slot is not [held](Self::is_held).
    ///
    /// # Errors
    ///
    /// [`Error::SlotLost`].
    #[doc(alias("check", "assertLocked"))]
    pub fn ensure_held(&self) -> Result<(), Error> {
        self.held.ensure_held()
    }

    /// Reports that the work makes progress, for [`LeaseOptions::progress_within`](crate::LeaseOptions::progress_within). Call it
    /// at each step of the work in place of [`ensure_held`](Self::ensure_held). Sends nothing to the database.
    ///
    /// ```
    /// use diesel_locks::{Error, SlotGuard};
    ///
    /// fn collate(guard: &SlotGuard, files: &[&str]) -> Result<(), Error> {
    ///     for file in files {
    ///         guard.progress()?;
    ///         println!("{file}");
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::SlotLost`] when the slot is not [held](Self::is_held).
    #[doc(alias("heartbeat", "keepalive"))]
    pub fn progress(&self) -> Result<(), Error> {
        self.held.progress()
    }

    /// Returns whether an [operator](crate::SemaphoreExt::request_release) has asked the holder to release the slot. The last renewal
    /// has read it; this method sends nothing. Once true, it stays true. The slot stays held, and its lease renewed, until the guard
    /// is released.
    ///
    /// ```
    /// use diesel_locks::{Error, SlotGuard};
    ///
    /// fn collate(guard: SlotGuard, files: &[&str]) -> Result<(), Error> {
    ///     for file in files {
    ///         guard.ensure_held()?;
    ///         if guard.release_requested() {
    ///             break; // another server does the rest
    ///         }
    ///         println!("{file}");
    ///     }
    ///     guard.release().map(drop)
    /// }
    /// ```
    #[doc(alias("revoked", "preempted", "yield"))]
    pub fn release_requested(&self) -> bool {
        self.held.release_requested()
    }

    /// Returns the slot, still held, and ends the guard: the lease is neither renewed in the background nor released any more. To
    /// hand the work on, pass the [parts](Slot::from_parts) of the slot to another process (with several permits, those of each
    /// slot that [`split`](Slot::split) returns), which calls [`renew_slot`](crate::SemaphoreExt::renew_slot) within [`remaining`](Slot::remaining), and later
    /// [`release_slot`](crate::SemaphoreExt::release_slot). Sends nothing to the database.
    ///
    /// A renewal of this guard that has begun before may take effect after that of the other process. Then the lease expires when that
    /// of the guard would have ended, at the latest at the end of its [`max_hold`](crate::LeaseOptions::max_hold). So the other
    /// process renews its lease again after a third of the shorter lease, as a `SlotRenewer` does.
    ///
    /// ```
    /// use diesel_locks::prelude::*;
    /// use diesel_locks::{Slot, SlotRenewer};
    /// use std::time::Duration;
    ///
    /// # mod sqlite { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sqlite/mod.rs")); }
    /// # let (pool, _directory) = sqlite::database();
    /// # let mut conn = pool.get()?;
    /// # let renewer = SlotRenewer::new(pool);
    /// let lease = LeaseOptions::new(Duration::from_secs(30));
    /// let guard = renewer.acquire(&Semaphore::new("collate-logs", 10), &lease, Wait::No)?;
    /// let slot = guard.into_slot()?;
    /// let parts = (slot.semaphore(), slot.number(), slot.token(), slot.fence());
    ///
    /// // in the other process:
    /// let mut slot = Slot::from_parts(parts.0, parts.1, parts.2, parts.3);
    /// conn.renew_slot(&mut slot, Duration::from_secs(30))?;
    /// conn.release_slot(slot)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::SlotLost`] when the slot is not [held](Self::is_held).
    #[doc(alias("leak", "detach", "hand over", "forget"))]
    pub fn into_slot(self) -> Result<Slot, Error> {
        self.held.hand_on()
    }

    /// Returns the fence, as [`Slot::fence`].
    #[doc(alias("fencing token", "fencing_token"))]
    pub fn fence(&self) -> i64 {
        self.slot().fence()
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

    /// Calls `callback` when the guard is lost; immediately if it is lost already, never if it is released first.
    ///
    /// One thread of this crate, outside a runtime, calls the callbacks of all guards, one after the other: keep them short, for
    /// example send to a channel, and spawn no task (`tokio::spawn` panics there). The caller of this method calls it if the guard
    /// is lost already. A callback may drop the guard. A panic in it is caught.
    #[doc(alias("HandleLostToken", "lost_lock", "expired"))]
    pub fn on_lost(&self, callback: impl FnOnce() + Send + 'static) {
        self.held.on_lost(callback);
    }
}

impl SlotGuard<Blocking> {
    /// Releases the slot with a connection of the pool, for which it waits up to the pool's time-out, and then as
    /// [`release_slot`](crate::SemaphoreExt::release_slot). Returns whether its lease had expired.
    ///
    /// # Errors
    ///
    /// [`Error::SlotLost`] when another holder was granted the slot, or it was released before. After errors of the pool or the
    /// database the release is retried in the background, as after a drop.
    pub fn release(self) -> Result<LeaseState, Error> {
        block_on(self.held.release())
    }
}

#[cfg(feature = "_async_pool")]
impl SlotGuard<Async> {
    /// Waits until the guard is lost, or `SlotRenewer::release_guards` has released it. The future may be dropped, and made again.
    ///
    /// ```
    /// use diesel_locks::{Async, Error, SlotGuard};
    ///
    /// async fn work(guard: &SlotGuard<Async>) -> Result<(), Error> {
    ///     tokio::select! {
    ///         () = guard.lost() => guard.ensure_held(),
    ///         result = collate() => result,
    ///     }
    /// }
    /// # async fn collate() -> Result<(), Error> { Ok(()) }
    /// ```
    #[doc(alias("HandleLostToken", "cancelled", "expired"))]
    pub async fn lost(&self) {
        self.held.ended.stopped().await;
    }

    /// Releases the slot as a blocking guard does, with the same errors.
    #[expect(
        clippy::manual_async_fn,
        clippy::missing_errors_doc,
        reason = "the signature promises that the future is `Send`; the blocking guard lists the errors"
    )]
    pub fn release(self) -> impl Future<Output = Result<LeaseState, Error>> + Send {
        async move { self.held.release().await }
    }
}

impl<S> fmt::Debug for SlotGuard<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotGuard")
            .field("slot", self.slot())
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}

/// The argument of the closures of `SlotRenewer::run_as_leader` and `run_on_timer` (`async` closures: `ActiveSlot<Async>`): the
/// [`SlotGuard`] of the slot that is held while they run, and the token that stops them.
///
/// The closure has to end when [`is_active`](Self::is_active) returns false: the slot was lost, or a stop or its
/// [release](crate::SemaphoreExt::request_release) was requested.
/// Nothing interrupts it. `while leader.sleep(..)` is such a loop: [`run_as_leader`](crate::SlotRenewer::run_as_leader) shows it.
#[derive(Debug)]
#[doc(alias("leader", "leadership"))]
pub struct ActiveSlot<S = Blocking> {
    guard: SlotGuard<S>,
    /// Stopped when the slot is lost or released, its release is requested, or the token of the renewer is stopped.
    stop: StopToken,
}

impl<S> ActiveSlot<S> {
    pub(crate) fn new(held: Held, stop: &StopToken) -> Self {
        let stop = stop.child();
        held.stop_when_inactive(&stop);
        let guard = SlotGuard::new(held);
        Self { guard, stop }
    }

    /// Returns whether the closure is to continue: the slot is held, and neither a stop nor its release was requested. Reads the
    /// clock, not the database. Once false, it stays false.
    pub fn is_active(&self) -> bool {
        !self.stop.is_stopped() && self.guard.is_held()
    }

    /// Returns a token that is stopped when the slot is lost or released, or a stop or its release is requested: for waits that the
    /// closure begins, such as `LockPool::stopped_by`. Stopping it ends these waits, and [`is_active`](Self::is_active) returns
    /// false. It does not release the slot.
    pub fn stop_token(&self) -> &StopToken {
        &self.stop
    }

    /// Returns the guard of the slot. Its [`is_held`](SlotGuard::is_held) does not show a request.
    pub fn guard(&self) -> &SlotGuard<S> {
        &self.guard
    }

    /// Returns the slot, for [`pin_slot`](crate::SemaphoreExt::pin_slot).
    pub fn slot(&self) -> &Slot {
        self.guard.slot()
    }

    /// Returns the fence of this grant, as [`Slot::fence`].
    #[doc(alias("fencing token", "fencing_token"))]
    pub fn fence(&self) -> i64 {
        self.guard.fence()
    }

    /// The closure has ended. A release that fails is retried in the background until the lease expires, for a minute at most.
    pub(crate) async fn release(self) {
        let (semaphore, number) = (self.slot().semaphore().to_owned(), self.slot().number());
        match self.guard.held.release().await {
            Ok(_) => tracing::info!(semaphore, number, "slot released: the closure has ended"),
            Err(error) => tracing::warn!(semaphore, number, %error, "slot not released"),
        }
    }
}

impl ActiveSlot<Blocking> {
    /// Sleeps for `duration`. Returns true after that time, and false at once when [`is_active`](Self::is_active) gets false
    /// meanwhile or was before: the condition of a loop.
    pub fn sleep(&self, duration: Duration) -> bool {
        self.stop.sleep(duration) && self.is_active()
    }
}

#[cfg(feature = "_async_pool")]
impl ActiveSlot<Async> {
    /// Waits until [`is_active`](Self::is_active) is false: for a `select!` beside the work, as [`SlotGuard::lost`]. The future may
    /// be dropped, and made again.
    #[doc(alias("lost", "stopped", "cancelled"))]
    pub async fn ended(&self) {
        self.stop.stopped().await;
    }

    /// Sleeps as that of a blocking `ActiveSlot`.
    pub async fn sleep(&self, duration: Duration) -> bool {
        // At its end, or when the time is up.
        let _ = tokio::time::timeout(duration, self.ended()).await;
        self.is_active()
    }
}
