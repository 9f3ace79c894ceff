//! Slots that are renewed in the background, with connections of a pool.

mod releases;
mod renewals;

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::acts::cancel_guard::{counted, unless_dropped};
use crate::acts::slot::{self, Acquire};
use crate::acts::slot_queue::{Pace, begin_wait};
use crate::acts::waiting::Waiting;
use crate::engine::HasEngine;
use crate::error::limits::{LONGEST_POLL_INTERVAL, SHORTEST_POLL_INTERVAL};
use crate::jobs::callbacks::may_wait;
use crate::jobs::check_interval;
use crate::jobs::guard::{Held, ReleaseKind, State};
use crate::jobs::renewer::releases::PendingRelease;
use crate::jobs::renewer::renewals::{SHORTEST_ANSWER, start};
use crate::link::activity::{Active, Activity};
use crate::pools::connections::{Borrowed, Connections};
use crate::pools::slot_waits;
use crate::rt;
use crate::rt::stop_token::StopToken;
use crate::{
    Error, LeaseOptions, LeaseState, Pool, RequestInfo, RequestSubject, Semaphore, Slot, Wait,
};

/// How long a thread that drops a guard waits at most until the slot is released.
const DROP_TIMEOUT: Duration = Duration::from_millis(200);

/// Acquires leased slots, and renews their leases in the background while their guards live.
///
/// ```
/// use diesel_locks::SlotRenewer;
/// use diesel_locks::prelude::*;
/// use std::time::Duration;
///
/// const COLLATE: Semaphore = Semaphore::from_static("collate-logs", 10);
///
/// # mod sqlite { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sqlite/mod.rs")); }
/// # let (pool, _directory) = sqlite::database();
/// let renewer = SlotRenewer::new(pool); // once, when the application starts
///
/// let lease = LeaseOptions::new(Duration::from_secs(30)).holder("worker-7");
/// let guard = renewer.acquire(&COLLATE, &lease, Wait::AtMost(Duration::from_secs(60)))?;
/// guard.ensure_held()?; // before each step of the work
/// guard.release()?;
/// # assert!(renewer.try_acquire(&COLLATE, &lease)?.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// `try_acquire` and `acquire`, which waits, return a [`SlotGuard`](crate::SlotGuard). `try_run` holds a slot while a closure
/// runs, and does not wait for one. `run_as_leader` elects a leader, `run_on_timer` runs a job on one node per tick.
///
/// | feature | `P` | methods | guard | renewals |
/// |---|---|---|---|---|
/// | `r2d2` | r2d2's pool of Diesel's connections | block the thread | `SlotGuard` | in a thread |
/// | `bb8`, `deadpool` | a pool of diesel-async | return futures, which are `Send`: `renewer.acquire(..).await?` | `SlotGuard<Async>` | in a task |
///
/// Clones share the guards and the thread or task that renews them, with one statement, each time a third of the shortest lease has
/// passed. It starts with the first guard, and ends when the renewer, its clones and its guards are dropped. When the process is to
/// end, use [`Shutdown`](crate::Shutdown).
///
/// # Which pool
///
/// Give the renewer a pool of its own, with two connections: it borrows one for each renewal, release and attempt to acquire. On a
/// shared pool a renewal waits while all connections are in use, and guards whose leases expire meanwhile are lost.
///
/// If a renewal gets no answer, it is sent again on another connection: after half of the time that is left of the first lease to
/// end, at most after 10 s. A task closes the silent connection. A thread keeps it until the driver reports an error, and a new
/// thread continues, up to all connections of the pool but one:
/// [settings for several servers](https://github.com/diesel-locks/diesel-locks/blob/main/docs/web-service.md#fail-over).
///
/// # Runtimes
///
/// The task runs on the runtime in which the first guard is acquired. If that is shut down, a thread of this crate continues the
/// work. Guards may be dropped outside of a runtime.
///
/// A runtime that does not run renews and releases nothing: one with one thread (`current_thread`) whose `block_on` has returned,
/// or whose thread a task blocks. Let no task block its thread for longer than a third of the lease: use `spawn_blocking`.
///
/// In a test that pauses tokio's clock (`tokio::time::pause`), slots are renewed in time, except while `spawn_blocking` runs. Do
/// not pause it with a database server: tokio advances it while all tasks wait for the network.
#[doc(alias("heartbeat", "keepalive", "watchdog", "refresh", "lease"))]
#[derive(Clone)]
#[doc(alias("KeepAliveLockProvider", "distributed lock", "ShedLock"))]
pub struct SlotRenewer<P> {
    shared: Arc<Shared<P>>,
    pub(crate) handle: Arc<Handle>,
    pub(crate) stop: Option<StopToken>,
    pub(crate) pace: Pace,
}

impl<P> fmt::Debug for SlotRenewer<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotRenewer")
            .field("stop", &self.stop)
            .finish_non_exhaustive()
    }
}

impl<P: Pool> SlotRenewer<P> {
    /// Creates a renewer that uses the connections of `pool`. Sends nothing to the database, and needs no runtime.
    pub fn new(pool: P) -> Self {
        let shared = Arc::new(Shared::new(pool));
        Self {
            handle: Arc::new(Handle(Arc::clone(&shared) as _)),
            shared,
            stop: None,
            pace: Pace::default(),
        }
    }

    /// Returns a handle to the same renewer whose waits ask the database at least once per `interval`, 1 s by default.
    ///
    /// A slot that another process releases is noticed after at most one interval; a slot that is released in this process,
    /// or whose lease expires, at once. `acquire` begins with [shorter pauses](crate::SemaphoreExt::acquire_slot);
    /// `run_as_leader` pauses for half an interval to an interval. The shortest interval of those that wait in a process counts.
    ///
    /// 10 ms to a day. With any other duration the methods that wait return [`Error::InvalidInterval`].
    #[must_use]
    pub fn poll_interval(&self, interval: Duration) -> Self {
        let mut renewer = self.clone();
        renewer.pace.interval = interval;
        renewer
    }

    /// Returns a handle to the same renewer that `stop` stops: when a client hangs up, or the process is to end.
    ///
    /// After a stop `acquire`, `try_acquire` and `try_run` of the handle return [`Error::Stopped`], and `run_as_leader` and
    /// `run_on_timer` end: a future at once or after the attempt that is running; a thread within 50 ms, and the time of one
    /// attempt if one is running (on SQLite up to 5 s, while another connection writes and a slot is free). A stop has no effect on
    /// guards that were returned before, nor on a closure of `try_run`: let them check [`StopToken::is_stopped`].
    ///
    /// The token replaces that of the handle. To keep both, pass a [child](StopToken::child) of the old one.
    #[must_use]
    #[doc(alias("cancel", "CancellationToken", "abort"))]
    pub fn stopped_by(&self, stop: &StopToken) -> Self {
        let mut renewer = self.clone();
        renewer.stop = Some(stop.clone());
        renewer
    }

    /// Returns the pool.
    pub fn pool(&self) -> &P {
        self.shared.connections.pool()
    }

    /// The same renewer, with waits that begin with the longest pauses.
    pub(crate) fn patient(&self) -> Self {
        let mut renewer = self.clone();
        renewer.pace.patient = true;
        renewer
    }

    pub(crate) fn check_interval(&self) -> Result<(), Error> {
        let allowed = SHORTEST_POLL_INTERVAL..=LONGEST_POLL_INTERVAL;
        check_interval("poll interval", self.pace.interval, allowed)
    }

    /// Lists the requests of this renewer and its clones for a lease, the oldest first: those that wait or make an attempt, also as a
    /// candidate of `run_as_leader`, and those whose guard, leader or tick has not ended. Asks no database, and does not block.
    ///
    /// A guard that is lost is listed until it is dropped. For the slots of other processes see
    /// [`held_slots`](crate::InspectExt::held_slots).
    #[doc(alias("waiters", "guards", "debug", "monitoring"))]
    pub fn requests(&self) -> Vec<RequestInfo> {
        self.activity().requests()
    }

    pub(crate) fn activity(&self) -> &Activity {
        &self.shared.activity
    }

    /// Waits for a slot without a connection, and acquires it; without a wait, if one is free. If the future is dropped, the slot is
    /// released.
    pub(crate) async fn lease(
        &self,
        semaphore: &Semaphore,
        lease: &LeaseOptions,
        wait: Option<Wait>,
    ) -> Result<Held, Error> {
        if wait.is_some() {
            self.check_interval()?;
        }
        let subject = RequestSubject::slots(semaphore, lease.permits_at_once());
        let active = self.activity().begin(Some(subject));
        let acquire = Acquire::lease(semaphore, lease, None);
        let (connections, stop) = (&self.shared.connections, self.stop.as_ref());
        let acquired = slot_waits::request(connections, stop, semaphore, acquire, wait, self.pace);
        let (slot, _) = counted(self.activity(), acquired).await?;
        Ok(self.hold(slot.expect("the slot of a lease"), lease, active))
    }

    /// Borrows a connection of the pool, unless the handle is stopped.
    pub(crate) async fn borrow(&self, semaphore: &Semaphore) -> Result<Borrowed<P>, Error> {
        let waiting = self.without_wait(semaphore)?;
        self.shared.connections.borrow(&waiting).await
    }

    pub(crate) fn without_wait(&self, semaphore: &Semaphore) -> Result<Waiting, Error> {
        Ok(begin_wait(semaphore, Wait::No)?.stopped_by(self.stop.as_ref()))
    }

    /// Has a slot released in the background that was not used, also before the end of its minimum hold time, and after a stop.
    pub(crate) fn release_unused(&self, slot: &Slot) {
        let (shared, kind) = (Arc::clone(&self.shared), ReleaseKind::Unused);
        await_release(shared.release_in_background(slot, kind, Duration::ZERO));
    }

    pub(crate) fn hold(&self, slot: Slot, lease: &LeaseOptions, active: Active) -> Held {
        active.set_inside(true);
        let state = Arc::new(State::new(slot, lease.clone()));
        let held = Held::new(Arc::clone(&state), Arc::clone(&self.handle), active);
        self.shared.add(state);
        held
    }

    pub(crate) async fn release_all(&self) -> usize {
        let timeout = self.pool().timeout();
        self.shared.release_held(timeout).await.len()
    }
}

/// A renewer, whatever the type of its connections. Its futures are ready at once if these block.
pub(crate) trait Renew: Send + Sync {
    fn remove(&self, slot: &Slot);

    /// Has the slot renewed as soon as possible: after the renewal that is running, if there is one.
    fn renew_soon(self: Arc<Self>, slot: &Slot);

    fn release<'a>(&'a self, slot: &'a Slot) -> Boxed<'a, Result<LeaseState, Error>>;

    /// Has the slot released in the background, whose lease expires after `remaining`. If the connections block, returns a receiver
    /// that is disconnected when the slot is released.
    fn release_in_background(
        self: Arc<Self>,
        slot: &Slot,
        kind: ReleaseKind,
        remaining: Duration,
    ) -> Option<Receiver<()>>;

    /// Releases the slots of all guards, within `timeout` for a connection, and returns those that were held and are released.
    /// Has the others released in the background. If the connections do not block, `timeout` limits the whole.
    fn cut_all(self: Arc<Self>, timeout: Duration) -> Boxed<'static, Vec<Slot>>;

    /// Ends the renewer's loop when nothing is left to release.
    fn close(&self);
}

pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Shared by a renewer's clones and its guards, and not by its loop: the last one ends the loop.
pub(crate) struct Handle(pub(crate) Arc<dyn Renew>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Waits for a release in the background, for a short time. It is retried after that too.
pub(crate) fn await_release(released: Option<Receiver<()>>) {
    if let Some(released) = released
        && may_wait()
    {
        let _ = released.recv_timeout(DROP_TIMEOUT);
    }
}

struct Shared<P> {
    connections: Connections<P>,
    /// The guards, the calls that may return one, and the releases in the background.
    activity: Activity,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    slots: HashMap<Uuid, RenewedSlot>,
    next_renewal: Option<Instant>,
    /// Whether another renewal is to follow the one that is running.
    renews_again: bool,
    pending_releases: Vec<PendingRelease>,
    /// When a failed release is retried; `None`: at once.
    next_release: Option<Instant>,
    is_running: bool,
    /// The number of the loop that runs: one that replaces another gets the next one.
    current: u64,
    /// How many loops were replaced, and still wait for an answer.
    unanswered: usize,
    /// When the current loop's request to the database is to be answered at the latest.
    answer_by: Option<Instant>,
    sends: Sends,
    /// The next time at which that is looked at.
    alarm: Option<Instant>,
    /// Wakes it while it waits.
    waker: Option<Waker>,
    /// The renewer, its clones and its guards are dropped.
    closed: bool,
}

/// What the loop sends.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Sends {
    #[default]
    Renewals,
    Releases,
}

struct RenewedSlot {
    state: Arc<State>,
    /// Whether the last renewal included it, or the next one is to.
    is_renewed: bool,
}

impl<P: Pool> Shared<P> {
    fn new(pool: P) -> Self {
        Self {
            connections: Connections::new(pool),
            activity: Activity::default(),
            inner: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        rt::lock(&self.inner)
    }

    async fn lend(&self, limit: Duration) -> Result<P::Lent, Error> {
        let lent = self.connections.pool().lend(limit, None, None).await?;
        let (conn, _) = lent.expect("a connection or an error: no stop ends the request");
        Ok(conn)
    }

    fn add(self: &Arc<Self>, state: Arc<State>) {
        let slot = state.slot();
        let (token, due) = (slot.token, Instant::now() + slot.remaining() / 3);
        let mut inner = self.lock();
        let next = inner.next_renewal.filter(|_| !inner.slots.is_empty());
        inner.next_renewal = Some(next.map_or(due, |next| next.min(due)));
        self.shorten_answer(&mut inner, state.remaining());
        let is_renewed = true;
        inner.slots.insert(token, RenewedSlot { state, is_renewed });
        self.wake(inner);
    }

    /// Has the loop wait no longer for an answer than a slot that is to be renewed allows.
    fn shorten_answer(self: &Arc<Self>, inner: &mut Inner, remaining: Duration) {
        let answer_by = Instant::now() + (remaining / 2).max(SHORTEST_ANSWER);
        if inner.answer_by.is_some_and(|at| at > answer_by) {
            self.await_until(inner, answer_by);
        }
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

impl<P: Pool> Renew for Shared<P> {
    fn remove(&self, slot: &Slot) {
        self.lock().slots.remove(&slot.token);
    }

    fn renew_soon(self: Arc<Self>, slot: &Slot) {
        let mut inner = self.lock();
        if let Some(slot) = inner.slots.get_mut(&slot.token) {
            slot.is_renewed = true;
            let remaining = slot.state.remaining();
            self.shorten_answer(&mut inner, remaining);
        }
        inner.next_renewal = Some(Instant::now());
        inner.renews_again = true;
        self.wake(inner);
    }

    fn release<'a>(&'a self, slot: &'a Slot) -> Boxed<'a, Result<LeaseState, Error>> {
        Box::pin(P::drive(async move {
            let mut conn = self.lend(self.connections.pool().timeout()).await?;
            let mut engine = P::Connection::engine(&mut conn)?;
            unless_dropped!(borrowed &mut *engine, |engine| slot::release(engine, slot))
        }))
    }

    fn release_in_background(
        self: Arc<Self>,
        slot: &Slot,
        kind: ReleaseKind,
        remaining: Duration,
    ) -> Option<Receiver<()>> {
        let (pending, released) =
            PendingRelease::new(slot.clone(), kind, remaining, self.activity.begin(None));
        let mut inner = self.lock();
        inner.next_release = None;
        inner.pending_releases.push(pending);
        self.wake(inner);
        P::BLOCKS.then_some(released)
    }

    fn cut_all(self: Arc<Self>, timeout: Duration) -> Boxed<'static, Vec<Slot>> {
        Box::pin(P::drive(async move {
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
