//! Releases of slots: those whose guards are dropped, in the background, and all at a shutdown.

#[cfg(all(
    test,
    feature = "r2d2",
    feature = "sqlite",
    feature = "async-sqlite",
    feature = "deadpool"
))]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::acts::cancel_guard::unless_dropped;
use crate::acts::slot::release_batch;
use crate::engine::HasEngine;
use crate::jobs::guard::{ReleaseKind, State};
use crate::jobs::renewer::{Renew, Sends, Shared};
use crate::link::activity::Active;
use crate::{Error, Pool, Slot};

const RETRY_DELAY: Duration = Duration::from_millis(50);

/// How long a release in the background waits for a connection that is in use. A pool of asynchronous connections also checks
/// it in that time, so there a release waits longer, unless renewals are due.
const POOL_TIMEOUT: Duration = Duration::from_millis(50);
const LONGEST_POOL_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a release is retried at least: a renewal that the database has not answered may extend a lease after its end.
const MIN_RETRY_TIME: Duration = Duration::from_secs(10);

/// How long a release is retried at most. That of a slot that was not used for as long whatever its lease: that in the database
/// may be longer, up to the end of a timer's tick.
const MAX_RETRY_TIME: Duration = Duration::from_secs(60);

pub(super) struct PendingRelease {
    pub(super) slot: Slot,
    pub(super) kind: ReleaseKind,
    pub(super) deadline: Instant,
    pub(super) is_tried: bool,
    /// Dropped when the slot is released, or the release is given up.
    _done: Sender<()>,
    /// A shutdown waits for it.
    _active: Active,
}

impl PendingRelease {
    /// Releases the slot, whose lease expires after `remaining` unless an unanswered renewal has extended it.
    pub(super) fn new(
        slot: Slot,
        kind: ReleaseKind,
        remaining: Duration,
        active: Active,
    ) -> (Self, Receiver<()>) {
        let (done, receiver) = channel();
        let retried = match kind {
            ReleaseKind::Used => remaining.clamp(MIN_RETRY_TIME, MAX_RETRY_TIME),
            ReleaseKind::Unused => MAX_RETRY_TIME,
        };
        let pending = Self {
            slot,
            kind,
            is_tried: false,
            deadline: Instant::now() + retried,
            _done: done,
            _active: active,
        };
        (pending, receiver)
    }
}

impl<P: Pool> Shared<P> {
    /// Releases the slots that are to be released, and later those that another session has locked, or all after an error. They
    /// stay in the list until then: the loop may be dropped meanwhile.
    pub(super) async fn release_pending(self: &Arc<Self>, number: u64) {
        self.remove_pending(|pending| pending.is_tried && Instant::now() >= pending.deadline);
        let pending: Vec<(Slot, ReleaseKind)> = {
            let mut inner = self.lock();
            inner.sends = Sends::Releases;
            let pending = inner.pending_releases.iter();
            pending
                .map(|pending| (pending.slot.clone(), pending.kind))
                .collect()
        };
        let mut released = HashSet::new();
        for kind in [ReleaseKind::Used, ReleaseKind::Unused] {
            let slots = pending.iter().filter(|(_, of)| *of == kind);
            let slots: Vec<_> = slots.map(|(slot, _)| slot).collect();
            if slots.is_empty() {
                continue;
            }
            let limit = self.answer_limit();
            let releasing = self.release_batch(&slots, kind, self.pool_timeout());
            match self.answer_within(number, limit, releasing).await {
                Some(Ok(tokens)) => released.extend(tokens),
                Some(Err(error)) => tracing::debug!(%error, "slots not released; retrying"),
                None => tracing::debug!(?limit, "no answer to a release; retrying"),
            }
        }
        if self.is_replaced(number) {
            return;
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

    fn pool_timeout(&self) -> Duration {
        if P::BLOCKS {
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

    /// As [`Renew::cut_all`]. Has all slots released in the background if the future is
    /// dropped.
    pub(super) async fn release_held(self: &Arc<Self>, timeout: Duration) -> Vec<Slot> {
        let mut cut = Cut {
            shared: self,
            slots: self.take_held(),
        };
        let slots: Vec<_> = cut.slots.iter().map(|(state, _)| state.slot()).collect();
        if slots.is_empty() {
            return Vec::new();
        }
        let releasing = self.release_batch(&slots, ReleaseKind::Used, timeout);
        let released = releasing.await.unwrap_or_else(|error| {
            tracing::warn!(%error, slots = slots.len(), "slots not released; retrying in the background");
            HashSet::new()
        });
        let all = std::mem::take(&mut cut.slots).into_iter();
        let (done, left) = all.partition(|(state, _)| released.contains(&state.slot().token));
        cut.slots = left;
        let held = Vec::into_iter(done).filter(|(_, was_held)| *was_held);
        held.map(|(state, _)| state.slot().clone()).collect()
    }

    /// Marks the guards as released. Returns which of them were held.
    fn take_held(&self) -> Vec<(Arc<State>, bool)> {
        let slots = std::mem::take(&mut self.lock().slots);
        let states = slots.into_values().map(|slot| slot.state);
        let cut = states.filter_map(|state| {
            // Read by `remaining`: `is_held` would call the callbacks of lost guards.
            let was_held = !state.remaining().is_zero();
            state.mark_released().then_some((state, was_held))
        });
        cut.collect()
    }

    /// Releases the slots with one statement, and returns the tokens of those that are released: not of one that another
    /// session has locked.
    async fn release_batch(
        &self,
        slots: &[&Slot],
        kind: ReleaseKind,
        timeout: Duration,
    ) -> Result<HashSet<Uuid>, Error> {
        let mut conn = self.lend(timeout).await?;
        let mut engine = P::Connection::engine(&mut conn)?;
        let locked =
            unless_dropped!(borrowed &mut *engine, |engine| release_batch(engine, slots, kind))?;
        let is_locked = |row: &Slot| locked.iter().any(|token| token == row.token.as_bytes());
        let released = slots.iter().filter(|slot| !slot.rows().any(is_locked));
        Ok(released.map(|slot| slot.token).collect())
    }
}

/// The slots that are being released. Those that are left when the future is dropped are released in the background.
struct Cut<'a, P: Pool> {
    shared: &'a Arc<Shared<P>>,
    slots: Vec<(Arc<State>, bool)>,
}

impl<P: Pool> Drop for Cut<'_, P> {
    fn drop(&mut self) {
        for (state, _) in &self.slots {
            let shared = Arc::clone(self.shared);
            let (slot, remaining) = (state.slot(), state.last_remaining());
            drop(shared.release_in_background(slot, ReleaseKind::Used, remaining));
        }
    }
}
