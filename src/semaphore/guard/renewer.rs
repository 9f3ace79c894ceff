//! The thread that renews the guards of a pool (`renewing.rs`), and releases those that are dropped
//! (`releasing.rs`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use diesel::r2d2::{ConnectionManager, Pool, R2D2Connection};
use uuid::Uuid;

use super::state::State;
use crate::semaphore::SemaphoreExt;
use crate::semaphore::backend::{RenewalRequest, SemaphoreBackend};
use crate::{Error, LeaseState, Slot};

mod release;
mod renew;

use release::Leaving;

/// How long the thread lives on without guards.
const IDLE: Duration = Duration::from_secs(10);

/// A keeper, whatever its type of connection.
pub(super) trait Keep: Send + Sync {
    /// Renews the slot no more.
    fn forget(&self, slot: &Slot);
    /// Releases the slot now, and waits for the pool.
    fn release(&self, slot: &Slot) -> Result<LeaseState, Error>;
    /// Has the thread release the slot, whose lease is `left`; received, or disconnected, when it has.
    fn release_soon(&self, slot: &Slot, left: Duration) -> Receiver<()>;
    /// Ends and releases all guards.
    fn release_all(&self) -> usize;
}

struct Kept {
    slot: Slot,
    lease: Duration,
    lease_us: i64,
    state: Arc<State>,
}

#[derive(Default)]
struct Inner {
    kept: HashMap<Uuid, Kept>,
    leaving: Vec<Leaving>,
    /// When the next renewal is due; `None` without guards.
    due: Option<Instant>,
    /// When those that could not be released are tried again.
    again: Option<Instant>,
    running: bool,
}

pub(super) struct Keeper<C: R2D2Connection + Send + 'static> {
    pool: Pool<ConnectionManager<C>>,
    inner: Mutex<Inner>,
    changed: Condvar,
    /// Searches through this pool that are stuck in it.
    stuck: AtomicUsize,
}

impl<C: SemaphoreBackend + R2D2Connection + Send + 'static> Keeper<C> {
    pub(super) fn new(pool: Pool<ConnectionManager<C>>) -> Self {
        Self {
            pool,
            inner: Mutex::default(),
            changed: Condvar::new(),
            stuck: AtomicUsize::new(0),
        }
    }

    pub(super) fn pool(&self) -> &Pool<ConnectionManager<C>> {
        &self.pool
    }

    /// Whether a search that nobody waits for any more is stuck in the pool, whose database does not answer.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::SeqCst) > 0
    }

    pub(super) fn search_is_stuck(&self) {
        self.stuck.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn search_goes_on(&self) {
        self.stuck.fetch_sub(1, Ordering::SeqCst);
    }

    /// Renews the slot from now on.
    pub(super) fn keep(
        self: &Arc<Self>,
        slot: Slot,
        lease: Duration,
        lease_us: i64,
        state: Arc<State>,
    ) {
        let mut inner = self.lock();
        // The slot was leased a moment ago: its first renewal is due at a third of what is left.
        let due = Instant::now() + slot.remaining() / 3;
        inner.due = Some(inner.due.map_or(due, |next| next.min(due)));
        let kept = Kept {
            slot,
            lease,
            lease_us,
            state,
        };
        inner.kept.insert(kept.slot.token, kept);
        self.start(inner);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(self: &Arc<Self>, mut inner: MutexGuard<'_, Inner>) {
        if !inner.running {
            let keeper = Arc::clone(self);
            let started = thread::Builder::new()
                .name("diesel-locks keeper".to_owned())
                .spawn(move || keeper.run());
            if let Err(error) = &started {
                tracing::warn!(%error, "no thread to renew slots: they will be lost");
            }
            inner.running = started.is_ok();
        }
        drop(inner);
        self.changed.notify_one();
    }

    fn run(&self) {
        let _stopped = Stopped(self);
        loop {
            let mut inner = self.lock();
            let idle_until = Instant::now() + IDLE;
            let (renews, leaving) = loop {
                let now = Instant::now();
                let due = inner.due.filter(|_| !inner.kept.is_empty());
                let again = inner.again.filter(|_| !inner.leaving.is_empty());
                let renews = due.is_some_and(|due| now >= due);
                let releases = !inner.leaving.is_empty() && again.is_none_or(|again| now >= again);
                if renews || releases {
                    let leaving = if releases {
                        std::mem::take(&mut inner.leaving)
                    } else {
                        Vec::new()
                    };
                    break (renews, leaving);
                }
                if inner.kept.is_empty() && inner.leaving.is_empty() && now >= idle_until {
                    inner.running = false;
                    return;
                }
                let next = [due, again].into_iter().flatten().min();
                let pause = next.unwrap_or(idle_until).saturating_duration_since(now);
                let waited = self.changed.wait_timeout(inner, pause);
                inner = waited.unwrap_or_else(PoisonError::into_inner).0;
            };
            inner.again = None;
            drop(inner);
            if renews {
                self.renew_all();
            }
            if !leaving.is_empty() {
                self.release_those(leaving);
            }
        }
    }
}

/// A keeper that stops because something in it panicked is started again by the next guard.
struct Stopped<'a, C: R2D2Connection + Send + 'static>(&'a Keeper<C>);

impl<C: R2D2Connection + Send + 'static> Drop for Stopped<'_, C> {
    fn drop(&mut self) {
        if thread::panicking() {
            let inner = self.0.inner.lock();
            inner.unwrap_or_else(PoisonError::into_inner).running = false;
        }
    }
}

impl<C: SemaphoreBackend + R2D2Connection + Send + 'static> Keep for Arc<Keeper<C>> {
    fn forget(&self, slot: &Slot) {
        self.lock().kept.remove(&slot.token);
    }

    fn release(&self, slot: &Slot) -> Result<LeaseState, Error> {
        self.pool.get()?.release_slot(slot)
    }

    fn release_soon(&self, slot: &Slot, left: Duration) -> Receiver<()> {
        let (done, receiver) = channel();
        let mut inner = self.lock();
        inner.again = None;
        inner.leaving.push(Leaving {
            slot: slot.clone(),
            // After that it is free without us, or another's.
            until: Instant::now() + left.min(Duration::from_secs(60)),
            _done: done,
        });
        self.start(inner);
        receiver
    }

    fn release_all(&self) -> usize {
        Keeper::release_all(self)
    }
}

fn renewal(kept: &Kept) -> RenewalRequest {
    RenewalRequest {
        semaphore: kept.slot.semaphore.clone(),
        number: kept.slot.number_i32(),
        token: kept.slot.token.into_bytes(),
        lease_us: kept.lease_us,
    }
}
