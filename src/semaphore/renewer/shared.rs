//! The guards of a renewer, and what is to be done for them in the background.

use std::collections::HashMap;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::background::start;
use super::pending_release::PendingRelease;
use crate::activity::Activity;
use crate::lender::Lender;
use crate::pooled::Connections;
use crate::semaphore::guard::ReleaseKind;
use crate::semaphore::guard::state::State;
use crate::semaphore::renewal::RenewalRequest;
use crate::{Error, LeaseOptions, Slot};

/// The slot of a guard.
pub(super) struct RenewedSlot {
    pub(super) slot: Slot,
    pub(super) lease: Duration,
    pub(super) lease_us: i64,
    pub(super) state: Arc<State>,
}

impl RenewedSlot {
    pub(super) fn renewal(&self) -> RenewalRequest {
        renewal(&self.slot, self.lease_us)
    }
}

pub(super) fn renewal(slot: &Slot, lease_us: i64) -> RenewalRequest {
    RenewalRequest {
        semaphore: slot.semaphore.clone(),
        number: slot.number_i32(),
        token: slot.token.into_bytes(),
        lease_us,
    }
}

#[derive(Default)]
pub(super) struct Inner {
    pub(super) slots: HashMap<Uuid, RenewedSlot>,
    /// When the slots are renewed next.
    pub(super) next_renewal: Option<Instant>,
    pub(super) pending_releases: Vec<PendingRelease>,
    /// When a failed release is retried; `None`: at once.
    pub(super) next_release: Option<Instant>,
    /// Whether the loop in the background runs.
    pub(super) is_running: bool,
    /// Wakes it while it waits.
    pub(super) waker: Option<Waker>,
    /// The renewer, its clones and its guards are dropped.
    pub(super) closed: bool,
}

pub(super) struct Shared<L> {
    connections: Connections<L>,
    /// The guards, the calls that may return one, and the releases in the background.
    activity: Activity,
    inner: Mutex<Inner>,
}

impl<L> Shared<L> {
    pub(super) fn connections(&self) -> &Connections<L> {
        &self.connections
    }

    pub(super) fn activity(&self) -> &Activity {
        &self.activity
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops renewing the slot.
    pub(super) fn remove(&self, slot: &Slot) {
        self.lock().slots.remove(&slot.token);
    }

    /// Ends the loop when nothing is left to release.
    pub(super) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        let waker = inner.waker.take();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<L: Lender> Shared<L> {
    pub(super) fn new(pool: L) -> Self {
        Self {
            connections: Connections::new(pool),
            activity: Activity::default(),
            inner: Mutex::default(),
        }
    }

    /// Borrows a connection within the time of the pool and `limit`.
    pub(super) async fn lend(&self, limit: Duration) -> Result<L::Lent, Error> {
        let lent = self.connections.pool().lend(limit, None).await?;
        Ok(lent.expect("a connection or an error: no stop ends the request"))
    }

    /// Renews the slot from now on.
    pub(super) fn add(
        self: &Arc<Self>,
        slot: Slot,
        lease: &LeaseOptions,
        state: Arc<State>,
    ) -> Result<(), Error> {
        let added = RenewedSlot {
            lease: lease.duration(),
            lease_us: lease.micros()?,
            state,
            slot,
        };
        let mut inner = self.lock();
        let due = Instant::now() + added.slot.remaining() / 3;
        let next = inner.next_renewal.filter(|_| !inner.slots.is_empty());
        inner.next_renewal = Some(next.map_or(due, |next| next.min(due)));
        inner.slots.insert(added.slot.token, added);
        self.wake(inner);
        Ok(())
    }

    /// Has the slot released, whose lease ends after `remaining`. The receiver is disconnected when the slot is released.
    pub(super) fn release_in_background(
        self: &Arc<Self>,
        slot: &Slot,
        kind: ReleaseKind,
        remaining: Duration,
    ) -> Receiver<()> {
        let (pending, released) =
            PendingRelease::new(slot.clone(), kind, remaining, self.activity.begin());
        let mut inner = self.lock();
        inner.next_release = None;
        inner.pending_releases.push(pending);
        self.wake(inner);
        released
    }

    /// Wakes the loop, and starts it if it does not run.
    fn wake(self: &Arc<Self>, mut inner: MutexGuard<'_, Inner>) {
        let runs = std::mem::replace(&mut inner.is_running, true);
        let waker = inner.waker.take();
        drop(inner);
        if !runs {
            start(self, false);
        } else if let Some(waker) = waker {
            waker.wake();
        }
    }
}
