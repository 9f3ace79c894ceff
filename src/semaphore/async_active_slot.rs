//! A slot that is held while an asynchronous closure of a renewer runs.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::select;

use crate::{AsyncSlotGuard, Slot, StopToken};

/// The argument of the closures of [`AsyncSlotRenewer::run_as_leader`](crate::AsyncSlotRenewer::run_as_leader) and
/// [`AsyncSlotRenewer::run_on_timer`](crate::AsyncSlotRenewer::run_on_timer): the [`AsyncSlotGuard`] of the slot that is held
/// while they run, and the token that stops them.
///
/// The closure has to end when [`is_active`](Self::is_active) returns false: the slot was lost, or a stop was requested.
/// Nothing interrupts it. What it does between two checks is protected by the [fence](Self::fence), or by
/// [`pin_slot`](crate::AsyncSemaphoreExt::pin_slot) in the transaction that writes.
///
/// ```
/// use diesel_locks::AsyncActiveSlot;
///
/// async fn lead(leader: &AsyncActiveSlot) -> Result<(), diesel_locks::Error> {
///     tokio::select! {
///         () = leader.ended() => Ok(()),
///         result = work() => result,
///     }
/// }
/// # async fn work() -> Result<(), diesel_locks::Error> { Ok(()) }
/// ```
#[derive(Debug)]
#[doc(alias("leader", "leadership"))]
pub struct AsyncActiveSlot {
    guard: AsyncSlotGuard,
    /// Stopped when the slot is lost, or `stop` of the caller is stopped.
    stop: StopToken,
}

impl AsyncActiveSlot {
    pub(super) fn new(guard: AsyncSlotGuard, stop: &StopToken) -> Self {
        let stop = stop.child();
        let lost = stop.clone();
        guard.signal_loss(move || lost.stop());
        Self { guard, stop }
    }

    /// Returns whether the closure is to continue: the slot is held, and no stop was requested. Reads the clock, not the
    /// database. Once false, it stays false.
    pub fn is_active(&self) -> bool {
        !self.stop.is_stopped() && self.guard.is_held()
    }

    /// Waits until [`is_active`](Self::is_active) is false: the slot is lost, a stop is requested, or
    /// [`release_guards`](crate::AsyncSlotRenewer::release_guards) has released the slot. For `select!` beside the work. The
    /// future may be dropped, and may be made as often as one likes.
    #[doc(alias("lost", "stopped", "cancelled"))]
    pub async fn ended(&self) {
        select(pin!(self.stop.stopped()), pin!(self.guard.lost())).await;
    }

    /// Sleeps for `duration`. Returns true after that time, and false at once when the slot is lost or a stop is requested
    /// meanwhile or was before: the condition of a loop.
    pub async fn sleep(&self, duration: Duration) -> bool {
        // At its end, or when the time is up.
        let _ = tokio::time::timeout(duration, self.ended()).await;
        self.is_active()
    }

    /// Returns a token that is stopped when the slot is lost or a stop is requested: for waits that the closure begins.
    /// Stopping it ends these waits, and [`is_active`](Self::is_active) returns false. It does not release the slot.
    pub fn stop_token(&self) -> &StopToken {
        &self.stop
    }

    /// Returns the guard of the slot. Its [`is_held`](AsyncSlotGuard::is_held) does not show a requested stop.
    pub fn guard(&self) -> &AsyncSlotGuard {
        &self.guard
    }

    /// Returns the slot, for [`pin_slot`](crate::AsyncSemaphoreExt::pin_slot).
    pub fn slot(&self) -> &Slot {
        self.guard.slot()
    }

    /// Returns the fence of this grant, as [`Slot::fence`].
    #[doc(alias("fencing token", "fencing_token"))]
    pub fn fence(&self) -> i64 {
        self.guard.fence()
    }

    /// Releases the slot. A release that fails is logged, and retried in the background until the lease ends, for a minute at
    /// most.
    pub(super) async fn release(self) {
        let (semaphore, number) = (self.slot().semaphore().to_owned(), self.slot().number());
        match self.guard.release().await {
            Ok(_) => tracing::info!(semaphore, number, "slot released: the closure has ended"),
            Err(error) => tracing::warn!(semaphore, number, %error, "slot not released"),
        }
    }
}
