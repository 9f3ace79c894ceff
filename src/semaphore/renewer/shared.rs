//! The guards of a renewer, and the thread that renews and releases their slots.

use std::collections::HashMap;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use diesel::r2d2::{ConnectionManager, Pool, R2D2Connection};
use uuid::Uuid;

use super::pending_release::PendingRelease;
use crate::activity::Activity;
use crate::engine::HasBlockingEngine;
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
    thread_running: bool,
    /// The renewer, its clones and its guards are dropped.
    closed: bool,
}

pub(super) struct Shared<C: R2D2Connection + Send + 'static> {
    connections: Connections<C>,
    /// The guards, the calls that may return one, and the releases in the background.
    activity: Activity,
    inner: Mutex<Inner>,
    changed: Condvar,
}

impl<C: R2D2Connection + Send + 'static> Shared<C> {
    pub(super) fn new(pool: Pool<ConnectionManager<C>>) -> Self {
        Self {
            connections: Connections::new(pool),
            activity: Activity::default(),
            inner: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(super) fn connections(&self) -> &Connections<C> {
        &self.connections
    }

    pub(super) fn activity(&self) -> &Activity {
        &self.activity
    }

    pub(super) fn pool(&self) -> &Pool<ConnectionManager<C>> {
        self.connections.pool()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops renewing the slot.
    pub(super) fn remove(&self, slot: &Slot) {
        self.lock().slots.remove(&slot.token);
    }

    /// Ends the thread when nothing is left to release.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }
}

impl<C: HasBlockingEngine + R2D2Connection + Send + 'static> Shared<C> {
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

    /// Has the thread release the slot, whose lease ends after `remaining`. The receiver is disconnected
    /// when the slot is released.
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

    /// Wakes the thread, and starts it if it does not run.
    fn wake(self: &Arc<Self>, mut inner: MutexGuard<'_, Inner>) {
        if !inner.thread_running {
            let shared = Arc::clone(self);
            let started = thread::Builder::new()
                .name("diesel-locks renewer".to_owned())
                .spawn(move || shared.run());
            if let Err(error) = &started {
                tracing::warn!(%error, "no thread to renew slots: they will be lost");
            }
            inner.thread_running = started.is_ok();
        }
        drop(inner);
        self.changed.notify_one();
    }

    fn run(&self) {
        let _reset = PanicReset(self);
        while let Some(due) = self.wait_until_due() {
            if due.renewal {
                self.renew_all();
            }
            if !due.releases.is_empty() {
                self.release_pending(due.releases);
            }
        }
    }

    /// `None` when the renewer is closed and nothing is left to release.
    fn wait_until_due(&self) -> Option<Due> {
        let mut inner = self.lock();
        loop {
            let now = Instant::now();
            let renewal = inner.next_renewal.filter(|_| !inner.slots.is_empty());
            let release = inner.next_release.unwrap_or(now);
            let release = (!inner.pending_releases.is_empty()).then_some(release);
            let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
            if is_due(renewal) || is_due(release) {
                let releases = if is_due(release) {
                    inner.next_release = None;
                    std::mem::take(&mut inner.pending_releases)
                } else {
                    Vec::new()
                };
                return Some(Due {
                    renewal: is_due(renewal),
                    releases,
                });
            }
            if inner.closed && inner.pending_releases.is_empty() {
                inner.thread_running = false;
                return None;
            }
            inner = if let Some(next) = renewal.into_iter().chain(release).min() {
                let waited = self.changed.wait_timeout(inner, next - now);
                waited.unwrap_or_else(PoisonError::into_inner).0
            } else {
                let waited = self.changed.wait(inner);
                waited.unwrap_or_else(PoisonError::into_inner)
            };
        }
    }
}

/// What the thread has to do now.
struct Due {
    renewal: bool,
    releases: Vec<PendingRelease>,
}

/// Lets the next guard start a new thread after a panic of this one.
struct PanicReset<'a, C: R2D2Connection + Send + 'static>(&'a Shared<C>);

impl<C: R2D2Connection + Send + 'static> Drop for PanicReset<'_, C> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.lock().thread_running = false;
        }
    }
}
