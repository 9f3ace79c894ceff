//! Slots that are renewed in the background, with connections of a pool.

mod releases;
mod renewals;

use std::collections::HashMap;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::acts::cancel_guard::{counted, unless_dropped};
use crate::acts::slot;
use crate::acts::slot_queue::{Pace, begin_wait};
use crate::engine::HasEngine;
use crate::error::limits::{LONGEST_POLL_INTERVAL, SHORTEST_POLL_INTERVAL};
use crate::jobs::guard::{Boxed, Handle, Held, ReleaseKind, Renew, State, await_release};
use crate::jobs::renewer::releases::PendingRelease;
use crate::jobs::renewer::renewals::SHORTEST_ANSWER;
use crate::jobs::renewer::renewals::start;
use crate::pools::lender::{Lender, Style};
use crate::pools::slot_waits;
use crate::pools::{Borrowed, Connections, discard_if_unusable};
use crate::rt;
use crate::rt::activity::{Active, Activity};
use crate::rt::stop_token::StopToken;
use crate::{Error, LeaseOptions, LeaseState, Semaphore, Slot, Wait};

/// A handle to a renewer. Clones share the guards and the loop that renews them.
pub(crate) struct Renewer<L> {
    shared: Arc<Shared<L>>,
    handle: Arc<Handle>,
    stop: Option<StopToken>,
    pace: Pace,
}

impl<L> Clone for Renewer<L> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            handle: Arc::clone(&self.handle),
            stop: self.stop.clone(),
            pace: self.pace,
        }
    }
}

impl<L> Renewer<L> {
    pub(crate) fn stopped_by(&self, stop: &StopToken) -> Self {
        let mut renewer = self.clone();
        renewer.stop = Some(stop.clone());
        renewer
    }

    /// The same renewer, with waits that ask the database at least once per `interval`.
    pub(crate) fn polling_within(&self, interval: Duration) -> Self {
        let mut renewer = self.clone();
        renewer.pace.interval = interval;
        renewer
    }

    /// The same renewer, with waits that begin with the longest pauses.
    pub(crate) fn patient(&self) -> Self {
        let mut renewer = self.clone();
        renewer.pace.patient = true;
        renewer
    }

    pub(crate) fn stop(&self) -> Option<&StopToken> {
        self.stop.as_ref()
    }

    pub(crate) fn interval(&self) -> Duration {
        self.pace.interval
    }

    pub(crate) fn check_interval(&self) -> Result<(), Error> {
        let (shortest, longest) = (SHORTEST_POLL_INTERVAL, LONGEST_POLL_INTERVAL);
        if (shortest..=longest).contains(&self.pace.interval) {
            return Ok(());
        }
        Err(Error::InvalidInterval {
            subject: "poll interval",
            requested: self.pace.interval,
            shortest,
            longest,
        })
    }

    pub(crate) fn activity(&self) -> &Activity {
        &self.shared.activity
    }

    pub(crate) fn pool(&self) -> &L {
        self.shared.connections.pool()
    }
}

impl<L: Lender> Renewer<L> {
    pub(crate) fn new(pool: L) -> Self {
        let shared = Arc::new(Shared::new(pool));
        Self {
            handle: Arc::new(Handle(Arc::clone(&shared) as _)),
            shared,
            stop: None,
            pace: Pace::default(),
        }
    }

    /// This renewer, for a shutdown.
    pub(crate) fn downgrade(&self) -> WeakRenewer {
        WeakRenewer {
            shared: Arc::downgrade(&self.handle.0),
            activity: self.activity().clone(),
        }
    }

    /// Acquires a slot if one is free. If the future is dropped, the slot is released.
    pub(crate) async fn try_acquire(
        &self,
        semaphore: &Semaphore,
        lease: &LeaseOptions,
    ) -> Result<Option<Held>, Error> {
        let active = self.activity().begin();
        let connections = &self.shared.connections;
        let acquired = slot_waits::try_lease(connections, self.stop(), semaphore, lease);
        let slot = counted(self.activity(), acquired).await?;
        slot.map(|slot| self.hold(slot, lease, active)).transpose()
    }

    /// Waits for a slot without a connection, and acquires it. Otherwise as [`try_acquire`](Self::try_acquire).
    pub(crate) async fn acquire(
        &self,
        semaphore: &Semaphore,
        lease: &LeaseOptions,
        wait: Wait,
    ) -> Result<Held, Error> {
        self.check_interval()?;
        let active = self.activity().begin();
        let connections = &self.shared.connections;
        let acquired =
            slot_waits::lease(connections, self.stop(), semaphore, lease, wait, self.pace);
        let slot = counted(self.activity(), acquired).await?;
        self.hold(slot, lease, active)
    }

    /// Borrows a connection of the pool, unless the handle is stopped.
    pub(crate) async fn borrow(&self, semaphore: &Semaphore) -> Result<Borrowed<L>, Error> {
        let waiting = begin_wait(semaphore, Wait::No)?.stopped_by(self.stop());
        self.shared.connections.borrow(&waiting).await
    }

    pub(crate) fn check_stop(&self, semaphore: &Semaphore) -> Result<(), Error> {
        let waiting = begin_wait(semaphore, Wait::No)?;
        waiting.stopped_by(self.stop()).check_stop()
    }

    /// Has a slot released that was not used, also before the end of its minimum hold time, and after a stop. That is retried
    /// in the background until the lease ends, for a minute at most.
    pub(crate) fn release_unused(&self, slot: &Slot, lease: Duration) {
        let shared = Arc::clone(&self.shared);
        let released = shared.release_in_background(slot, ReleaseKind::Unused, lease);
        if L::Style::BLOCKS {
            await_release(&released);
        }
    }

    pub(crate) fn hold(
        &self,
        slot: Slot,
        lease: &LeaseOptions,
        active: Active,
    ) -> Result<Held, Error> {
        let state = Arc::new(State::new(slot));
        let held = Held::new(Arc::clone(&state), Arc::clone(&self.handle), active);
        self.shared.add(state, lease)?;
        Ok(held)
    }

    pub(crate) async fn release_guards(&self) -> usize {
        let timeout = self.pool().timeout();
        self.shared.release_held(timeout).await.len()
    }
}

/// A renewer of which a shutdown knows. It ends, and gives its connections back, although this lives.
#[derive(Clone)]
pub(crate) struct WeakRenewer {
    shared: Weak<dyn Renew>,
    activity: Activity,
}

impl WeakRenewer {
    pub(crate) fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Whether the renewer has ended, and nothing is left to release.
    pub(crate) fn has_ended(&self) -> bool {
        self.shared.strong_count() == 0
    }

    pub(crate) async fn cut_all(&self, timeout: Duration) -> Vec<Slot> {
        match self.shared.upgrade() {
            Some(shared) => shared.cut_all(timeout).await,
            None => Vec::new(),
        }
    }
}

struct Shared<L> {
    connections: Connections<L>,
    /// The guards, the calls that may return one, and the releases in the background.
    activity: Activity,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    slots: HashMap<Uuid, RenewedSlot>,
    next_renewal: Option<Instant>,
    pending_releases: Vec<PendingRelease>,
    /// When a failed release is retried; `None`: at once.
    next_release: Option<Instant>,
    is_running: bool,
    /// The number of the loop that runs,
    current: u64,
    /// and the largest one so far: a loop that replaces another gets a new one.
    last: u64,
    /// How many loops were replaced, and still wait for an answer.
    unanswered: usize,
    /// When the current loop's request to the database is to be answered at the latest.
    answer_by: Option<Instant>,
    /// The next time at which that is looked at.
    alarm: Option<Instant>,
    /// Wakes it while it waits.
    waker: Option<Waker>,
    /// The renewer, its clones and its guards are dropped.
    closed: bool,
}

struct RenewedSlot {
    state: Arc<State>,
    lease: Duration,
    lease_us: i64,
}

impl<L: Lender> Shared<L> {
    fn new(pool: L) -> Self {
        Self {
            connections: Connections::new(pool),
            activity: Activity::default(),
            inner: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        rt::lock(&self.inner)
    }

    async fn lend(&self, limit: Duration) -> Result<L::Lent, Error> {
        let lent = self.connections.pool().lend(limit, None, ()).await?;
        let (conn, ()) = lent.expect("a connection or an error: no stop ends the request");
        Ok(conn)
    }

    fn add(self: &Arc<Self>, state: Arc<State>, lease: &LeaseOptions) -> Result<(), Error> {
        let lease_us = lease.micros()?;
        let slot = state.slot();
        let (token, due) = (slot.token, Instant::now() + slot.remaining() / 3);
        let mut inner = self.lock();
        let next = inner.next_renewal.filter(|_| !inner.slots.is_empty());
        inner.next_renewal = Some(next.map_or(due, |next| next.min(due)));
        let added = RenewedSlot {
            state,
            lease: lease.duration(),
            lease_us,
        };
        let limit = (added.state.remaining() / 2).max(SHORTEST_ANSWER);
        let answer_by = Instant::now() + limit;
        if inner.answer_by.is_some_and(|at| at > answer_by) {
            self.await_until(&mut inner, answer_by);
        }
        inner.slots.insert(token, added);
        self.wake(inner);
        Ok(())
    }

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

impl<L: Lender> Renew for Shared<L> {
    fn remove(&self, slot: &Slot) {
        self.lock().slots.remove(&slot.token);
    }

    fn release<'a>(&'a self, slot: &'a Slot) -> Boxed<'a, Result<LeaseState, Error>> {
        Box::pin(L::drive(async move {
            let mut conn = self.lend(self.connections.pool().timeout()).await?;
            let mut engine = L::Connection::engine(&mut conn)?;
            let released = unless_dropped!(&mut *engine, |engine| slot::release(engine, slot));
            discard_if_unusable(&mut *engine, released)
        }))
    }

    fn release_in_background(
        self: Arc<Self>,
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

    fn cut_all(self: Arc<Self>, timeout: Duration) -> Boxed<'static, Vec<Slot>> {
        Box::pin(L::drive(async move {
            let released = rt::answer_within(timeout, self.release_held(timeout)).await;
            released.unwrap_or_else(|| {
                tracing::warn!(?timeout, "no answer to a release");
                Vec::new()
            })
        }))
    }

    fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        let waker = inner.waker.take();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
