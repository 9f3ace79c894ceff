//! The thread that renews the guards of a pool, and releases those that are dropped.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use diesel::r2d2::{ConnectionManager, Pool, R2D2Connection};
use uuid::Uuid;

use super::state::State;
use crate::engine::slot_store::{Renewal, SlotStore};
use crate::semaphores::Semaphores;
use crate::{Error, LeaseState, Slot};

/// How long the thread lives on without guards.
const IDLE: Duration = Duration::from_secs(10);

/// A renewal that failed is tried again after a tenth of the shortest lease, within these bounds.
const SOONEST_RETRY: Duration = Duration::from_millis(10);
const LATEST_RETRY: Duration = Duration::from_secs(2);

/// A keeper, whatever its type of connection.
pub(super) trait Keep: Send + Sync {
    /// Renews the slot no more.
    fn forget(&self, slot: &Slot);
    /// Releases the slot now.
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

struct Leaving {
    slot: Slot,
    until: Instant,
    /// Dropped when it is done or given up.
    done: Sender<()>,
}

#[derive(Default)]
struct Inner {
    kept: HashMap<Uuid, Kept>,
    leaving: Vec<Leaving>,
    /// When the next renewal is due; `None` without guards.
    due: Option<Instant>,
    running: bool,
}

pub(super) struct Keeper<C: R2D2Connection + Send + 'static> {
    pool: Pool<ConnectionManager<C>>,
    inner: Mutex<Inner>,
    changed: Condvar,
}

impl<C: SlotStore + R2D2Connection + Send + 'static> Keeper<C> {
    pub(super) fn new(pool: Pool<ConnectionManager<C>>) -> Self {
        Self {
            pool,
            inner: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(super) fn pool(&self) -> &Pool<ConnectionManager<C>> {
        &self.pool
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
        loop {
            let mut inner = self.lock();
            let idle_until = Instant::now() + IDLE;
            loop {
                let now = Instant::now();
                let next = match inner.due {
                    Some(due) if !inner.kept.is_empty() => due,
                    _ => idle_until,
                };
                if !inner.leaving.is_empty() || (!inner.kept.is_empty() && now >= next) {
                    break;
                }
                if inner.kept.is_empty() && now >= idle_until {
                    inner.running = false;
                    return;
                }
                let pause = next.saturating_duration_since(now);
                let waited = self.changed.wait_timeout(inner, pause);
                inner = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            let leaving = std::mem::take(&mut inner.leaving);
            let renews = inner.due.is_some_and(|due| Instant::now() >= due);
            drop(inner);
            if renews {
                self.renew_all();
            }
            self.release_those(leaving);
        }
    }

    /// One statement for all guards.
    fn renew_all(&self) {
        let (leases, shortest, patience) = {
            let mut inner = self.lock();
            // A pause of the process may have ended leases: what nobody holds is not renewed.
            inner.kept.retain(|_, kept| kept.state.is_held());
            let leases: Vec<Renewal> = inner.kept.values().map(renewal).collect();
            let shortest = inner.kept.values().map(|kept| kept.lease).min();
            let patience = inner.kept.values().map(|kept| kept.state.remaining()).min();
            let Some(shortest) = shortest else {
                inner.due = None;
                return;
            };
            (leases, shortest, patience.unwrap_or_default())
        };
        let renewed = self.renew(&leases, patience.min(shortest / 6));
        let pause = match renewed {
            Ok(()) => shortest / 3,
            Err(error) => {
                tracing::warn!(%error, guards = leases.len(), "slots not renewed; trying again");
                (shortest / 10).clamp(SOONEST_RETRY, LATEST_RETRY)
            }
        };
        // Guards that came meanwhile may be due earlier.
        let mut inner = self.lock();
        let next = Instant::now() + pause;
        let newer = inner.kept.values().map(|kept| kept.lease).min();
        let next = newer.map_or(next, |lease| next.min(Instant::now() + lease / 3));
        inner.due = Some(next);
    }

    fn renew(&self, leases: &[Renewal], patience: Duration) -> Result<(), Error> {
        let mut conn = self.pool.get_timeout(patience)?;
        let begun = Instant::now();
        let answers = conn.renew(leases)?;
        let mut left: HashMap<Vec<u8>, i64> = answers
            .into_iter()
            .map(|renewed| (renewed.token, renewed.left_us))
            .collect();
        let mut lost = Vec::new();
        let mut inner = self.lock();
        for lease in leases {
            let token = Uuid::from_bytes(lease.token);
            let left = left.remove(lease.token.as_slice());
            let Some(kept) = inner.kept.get(&token) else {
                continue;
            };
            // What is left can be less than a lease: another session had the row locked.
            if let Some(left) = left.and_then(|left| u64::try_from(left).ok()) {
                let left = Duration::from_micros(left.min(lease.lease_us.unsigned_abs()));
                kept.state
                    .confirm(begun + left.saturating_sub(C::CLOCK_STEP));
            } else {
                lost.extend(inner.kept.remove(&token));
            }
        }
        drop(inner);
        for kept in lost {
            kept.state.take_away();
        }
        Ok(())
    }

    fn release_those(&self, leaving: Vec<Leaving>) {
        let mut waiting = Vec::new();
        for one in leaving {
            let released = self
                .pool
                .get_timeout(Duration::from_millis(50))
                .map_err(Error::from)
                .and_then(|mut conn| conn.release_slot(&one.slot));
            match released {
                Ok(_) | Err(Error::SlotLost { .. }) => {
                    let _ = one.done.send(());
                }
                Err(error) if Instant::now() < one.until => {
                    tracing::debug!(%error, "slot not released; trying again");
                    waiting.push(one);
                }
                Err(error) => tracing::warn!(%error, "slot not released; its lease ends"),
            }
        }
        if !waiting.is_empty() {
            thread::sleep(SOONEST_RETRY);
            self.lock().leaving.append(&mut waiting);
        }
    }
}

fn renewal(kept: &Kept) -> Renewal {
    Renewal {
        semaphore: kept.slot.semaphore.clone(),
        number: kept.slot.number_i32(),
        token: kept.slot.token.into_bytes(),
        lease_us: kept.lease_us,
    }
}

impl<C: SlotStore + R2D2Connection + Send + 'static> Keep for Arc<Keeper<C>> {
    fn forget(&self, slot: &Slot) {
        self.lock().kept.remove(&slot.token);
    }

    fn release(&self, slot: &Slot) -> Result<LeaseState, Error> {
        self.pool.get()?.release_slot(slot)
    }

    fn release_soon(&self, slot: &Slot, left: Duration) -> Receiver<()> {
        let (done, receiver) = channel();
        let mut inner = self.lock();
        inner.leaving.push(Leaving {
            slot: slot.clone(),
            // After that it is free without us, or another's.
            until: Instant::now() + left.min(Duration::from_secs(60)),
            done,
        });
        self.start(inner);
        receiver
    }

    fn release_all(&self) -> usize {
        let all: Vec<Kept> = self.lock().kept.drain().map(|(_, kept)| kept).collect();
        let released = all
            .iter()
            .filter(|kept| kept.state.end() && self.release(&kept.slot).is_ok());
        released.count()
    }
}
