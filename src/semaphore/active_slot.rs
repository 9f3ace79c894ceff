//! A slot that is held while a closure of a renewer runs.

use std::time::{Duration, Instant};

use crate::{Slot, SlotGuard, StopToken};

/// How often [`ActiveSlot::sleep`] looks whether the slot was released by `release_guards`, which stops no token.
const RELEASE_CHECK: Duration = Duration::from_millis(250);

/// The argument of the closures of [`SlotRenewer::run_as_leader`](crate::SlotRenewer::run_as_leader) and
/// [`SlotRenewer::run_on_timer`](crate::SlotRenewer::run_on_timer): the [`SlotGuard`] of the slot that is held while they
/// run, and the token that stops them.
///
/// The closure has to end when [`is_active`](Self::is_active) returns false: the slot was lost, or a stop was requested.
/// Nothing interrupts it. What it does between two checks is protected by the [fence](Self::fence), or by
/// [`pin_slot`](crate::SemaphoreExt::pin_slot) in the transaction that writes.
///
/// ```
/// use diesel_locks::ActiveSlot;
/// use std::time::Duration;
///
/// fn lead(leader: &ActiveSlot) -> Result<(), diesel_locks::Error> {
///     while leader.sleep(Duration::from_millis(200)) {
///         // a step of the work, every 200 ms; `sleep` returns false at once when the slot is lost
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[doc(alias("leader", "leadership"))]
pub struct ActiveSlot {
    guard: SlotGuard,
    /// Stopped when the slot is lost, or `stop` of the caller is stopped.
    stop: StopToken,
}

impl ActiveSlot {
    pub(super) fn new(guard: SlotGuard, stop: &StopToken) -> Self {
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

    /// Sleeps for `duration`. Returns true after that time, and false at once when the slot is lost or a stop is requested
    /// meanwhile or was before, as [`StopToken::sleep`] does: the condition of a loop. Returns false within 250 ms when
    /// [`SlotRenewer::release_guards`](crate::SlotRenewer::release_guards) has released the slot.
    pub fn sleep(&self, duration: Duration) -> bool {
        let started = Instant::now();
        loop {
            if !self.is_active() {
                return false;
            }
            let left = duration.saturating_sub(started.elapsed());
            if left.is_zero() {
                return true;
            }
            self.stop.sleep(left.min(RELEASE_CHECK));
        }
    }

    /// Returns a token that is stopped when the slot is lost or a stop is requested: for waits that the closure begins,
    /// such as [`LockPool::stopped_by`](crate::LockPool::stopped_by). Stopping it ends these waits, and
    /// [`is_active`](Self::is_active) returns false. It does not release the slot.
    pub fn stop_token(&self) -> &StopToken {
        &self.stop
    }

    /// Returns the guard of the slot. Its [`is_held`](SlotGuard::is_held) does not show a requested stop.
    pub fn guard(&self) -> &SlotGuard {
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

    /// Releases the slot. A release that fails is logged, and retried in the background until the lease ends, for a minute at
    /// most.
    pub(super) fn release(self) {
        let (semaphore, number) = (self.slot().semaphore().to_owned(), self.slot().number());
        match self.guard.release() {
            Ok(_) => tracing::info!(semaphore, number, "slot released: the closure has ended"),
            Err(error) => tracing::warn!(semaphore, number, %error, "slot not released"),
        }
    }
}
