//! Release of slots whose guards are dropped, and of all slots at a shutdown.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::pending_release::PendingRelease;
use super::shared::{RenewedSlot, Shared, renewal};
use crate::cancel::unless_dropped;
use crate::engine::HasEngine;
use crate::lender::Lender;
use crate::pooled::discard_if_unusable;
use crate::semaphore::backend::SemaphoreBackend;
use crate::semaphore::guard::ReleaseKind;
use crate::semaphore::polling::notify_released;
use crate::semaphore::renewal::RenewalRequest;
use crate::timer::Timer;
use crate::{Error, Slot};

#[cfg(all(test, feature = "async-sqlite", feature = "deadpool"))]
mod asynchronous_tests;
#[cfg(all(test, feature = "r2d2", feature = "sqlite"))]
mod tests;

/// When a release that failed is retried.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// How long a release in the background waits for a connection: for one that is in use. A pool of asynchronous connections
/// also checks the connection in that time, so there a release waits longer, unless renewals are due.
const POOL_TIMEOUT: Duration = Duration::from_millis(50);
const LONGEST_POOL_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the loop waits for an answer, unless half of the remaining time of a lease is between them.
const SHORTEST_ANSWER: Duration = Duration::from_millis(200);
const LONGEST_ANSWER: Duration = Duration::from_secs(10);

type LockTimer<L> = <<L as Lender>::Connection as HasEngine>::LockTimer;

/// The slot of a guard that was released by another than its holder.
struct CutSlot {
    slot: Slot,
    kind: ReleaseKind,
    /// Whether the guard was not lost.
    was_held: bool,
    /// The remaining time of its lease.
    remaining: Duration,
}

impl<L: Lender> Shared<L> {
    /// Releases the slots that are to be released. Retries later those that another session has locked, or all after an
    /// error. They stay in the list until they are released: the loop may be dropped meanwhile.
    pub(super) async fn release_pending(&self) {
        self.remove_pending(|pending| pending.is_tried && Instant::now() >= pending.deadline);
        let pending: Vec<(Slot, ReleaseKind)> = {
            let inner = self.lock();
            let pending = inner.pending_releases.iter();
            pending
                .map(|pending| (pending.slot.clone(), pending.kind))
                .collect()
        };
        let mut released = HashSet::new();
        for kind in [ReleaseKind::Used, ReleaseKind::Unused] {
            let of_kind = pending.iter().filter(|(_, of)| *of == kind);
            let slots: Vec<&Slot> = of_kind.map(|(slot, _)| slot).collect();
            if !slots.is_empty() {
                released.extend(self.release_now(&slots, kind).await);
            }
        }
        let tried: HashSet<Uuid> = pending.iter().map(|(slot, _)| slot.token).collect();
        self.remove_pending(|pending| released.contains(&pending.slot.token));
        let mut inner = self.lock();
        let left = &mut inner.pending_releases;
        for pending in &mut *left {
            pending.is_tried |= tried.contains(&pending.slot.token);
        }
        let all_tried = left.iter().all(|pending| pending.is_tried);
        inner.next_release = all_tried.then(|| Instant::now() + RETRY_DELAY);
    }

    /// Removes them, and drops them after the lock is free: dropping one wakes the threads and tasks that wait for it.
    fn remove_pending(&self, mut is_done: impl FnMut(&PendingRelease) -> bool) {
        let mut inner = self.lock();
        let all = std::mem::take(&mut inner.pending_releases);
        let (done, left) = all.into_iter().partition::<Vec<_>, _>(|it| is_done(it));
        inner.pending_releases = left;
        drop(inner);
        drop(done);
    }

    /// Releases the slots, and leaves those that another session has locked. Returns the tokens of those that are released.
    async fn release_now(&self, slots: &[&Slot], kind: ReleaseKind) -> Vec<Uuid> {
        let limit = self.answer_limit();
        let releasing = self.release_batch(slots, kind, self.pool_timeout());
        match LockTimer::<L>::answer_within(limit, releasing).await {
            Some(Ok(released)) => {
                let released = slots.iter().zip(released).filter(|(_, done)| *done);
                return released.map(|(slot, _)| slot.token).collect();
            }
            Some(Err(error)) => tracing::debug!(%error, "slots not released; retrying"),
            None => tracing::debug!(?limit, "no answer to a release; retrying"),
        }
        Vec::new()
    }

    /// How long the loop waits for an answer: when it has given up, another connection can still renew all slots.
    pub(super) fn answer_limit(&self) -> Duration {
        let inner = self.lock();
        let remaining = inner.slots.values().map(|slot| slot.state.remaining());
        remaining.min().map_or(LONGEST_ANSWER, |remaining| {
            (remaining / 2).clamp(SHORTEST_ANSWER, LONGEST_ANSWER)
        })
    }

    fn pool_timeout(&self) -> Duration {
        let includes_check = LockTimer::<L>::MAY_STALL;
        if !includes_check {
            return POOL_TIMEOUT;
        }
        let inner = self.lock();
        let renewal = inner.next_renewal.filter(|_| !inner.slots.is_empty());
        let until_renewal = renewal.map(|at| at.saturating_duration_since(Instant::now()));
        let longest = LONGEST_POOL_TIMEOUT;
        until_renewal
            .unwrap_or(longest)
            .clamp(POOL_TIMEOUT, longest)
    }

    /// Releases the slots of all guards, and returns how many were held and are released.
    pub(super) async fn release_guards(self: &Arc<Self>) -> usize {
        let timeout = self.connections().pool().timeout();
        self.release_held(timeout).await.len()
    }

    /// Releases the slots of all guards, within `timeout` for a connection, and returns those that were held and are
    /// released. Has the others released in the background, and all if the future is dropped.
    async fn release_held(self: &Arc<Self>, timeout: Duration) -> Vec<Slot> {
        let mut cut = Cut {
            shared: self,
            slots: self.take_held(),
        };
        let deadline = Instant::now().checked_add(timeout);
        let mut released = HashSet::new();
        for kind in [ReleaseKind::Used, ReleaseKind::Unused] {
            let of_kind = cut.slots.iter().filter(|cut| cut.kind == kind);
            let batch: Vec<&Slot> = of_kind.map(|cut| &cut.slot).collect();
            if batch.is_empty() {
                continue;
            }
            let rest =
                deadline.map_or(timeout, |end| end.saturating_duration_since(Instant::now()));
            match self.release_batch(&batch, kind, rest).await {
                Ok(is_released) => {
                    let done = batch.iter().zip(is_released).filter(|(_, done)| *done);
                    released.extend(done.map(|(slot, _)| slot.token));
                }
                Err(error) => {
                    tracing::warn!(%error, slots = batch.len(), "slots not released; retrying in the background");
                }
            }
        }
        let all = std::mem::take(&mut cut.slots).into_iter();
        let (done, left) = all.partition::<Vec<_>, _>(|cut| released.contains(&cut.slot.token));
        cut.slots = left;
        let held = done.into_iter().filter(|cut| cut.was_held);
        held.map(|cut| cut.slot).collect()
    }

    /// [`release_held`](Self::release_held), which waits no longer than `timeout` if the connections do not block.
    pub(super) async fn cut_all(self: &Arc<Self>, timeout: Duration) -> Vec<Slot> {
        let released = LockTimer::<L>::answer_within(timeout, self.release_held(timeout)).await;
        released.unwrap_or_else(|| {
            tracing::warn!(?timeout, "no answer to a release");
            Vec::new()
        })
    }

    /// Marks all guards as released.
    fn take_held(&self) -> Vec<CutSlot> {
        let slots: Vec<RenewedSlot> = self.lock().slots.drain().map(|(_, slot)| slot).collect();
        let mut cut = Vec::new();
        for RenewedSlot { slot, state, .. } in slots {
            // Read by `remaining`: `is_held` would call the callbacks of lost guards.
            let was_held = !state.remaining().is_zero();
            if let Some(kind) = state.mark_released() {
                cut.push(CutSlot {
                    slot,
                    kind,
                    was_held,
                    remaining: state.last_remaining(),
                });
            }
        }
        cut
    }

    /// Releases the slots with one statement, and returns for each whether it is released. One that another
    /// session has locked is not.
    async fn release_batch(
        &self,
        slots: &[&Slot],
        kind: ReleaseKind,
        timeout: Duration,
    ) -> Result<Vec<bool>, Error> {
        let batch: Vec<RenewalRequest> = slots.iter().map(|slot| renewal(slot, 0)).collect();
        let locked = {
            let mut conn = self.lend(timeout).await?;
            let released = unless_dropped!(&mut *conn, |conn| {
                <L::Connection as HasEngine>::LockEngine::release_batch(conn, &batch, kind)
            });
            discard_if_unusable(&mut *conn, released)?
        };
        let released = slots.iter().map(|slot| {
            let is_locked = locked.iter().any(|token| token == slot.token.as_bytes());
            if !is_locked {
                notify_released(&slot.semaphore, 1, Some(slot.number));
            }
            !is_locked
        });
        Ok(released.collect())
    }
}

/// The slots that are being released. Those that are left when the future is dropped are released in the background.
struct Cut<'a, L: Lender> {
    shared: &'a Arc<Shared<L>>,
    slots: Vec<CutSlot>,
}

impl<L: Lender> Drop for Cut<'_, L> {
    fn drop(&mut self) {
        for cut in &self.slots {
            let released = self
                .shared
                .release_in_background(&cut.slot, cut.kind, cut.remaining);
            drop(released);
        }
    }
}
