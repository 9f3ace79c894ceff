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

/// When a slot that could not be released is tried again.
const RELEASE_RETRY: Duration = Duration::from_millis(50);

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

struct Leaving {
    slot: Slot,
    until: Instant,
    /// Dropped when it is done or given up.
    _done: Sender<()>,
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

    /// One statement for all guards.
    fn renew_all(&self) {
        let states = |inner: &Inner| -> Vec<(Uuid, Arc<State>)> {
            let kept = inner.kept.iter();
            kept.map(|(token, kept)| (*token, Arc::clone(&kept.state)))
                .collect()
        };
        // A pause of the process may have ended leases: what nobody holds is not renewed. Whoever is lost
        // is told so without the lock: a callback may drop other guards.
        let all = states(&self.lock());
        let ended: Vec<Uuid> = all
            .iter()
            .filter(|(_, state)| !state.is_held())
            .map(|(token, _)| *token)
            .collect();
        let (leases, shortest, patience) = {
            let mut inner = self.lock();
            for token in ended {
                inner.kept.remove(&token);
            }
            let leases: Vec<Renewal> = inner.kept.values().map(renewal).collect();
            let shortest = inner.kept.values().map(|kept| kept.lease).min();
            let patience = inner.kept.values().map(|kept| kept.state.remaining()).min();
            let Some(shortest) = shortest else {
                inner.due = None;
                return;
            };
            (leases, shortest, patience.unwrap_or_default())
        };
        let soon = (shortest / 10).clamp(SOONEST_RETRY, LATEST_RETRY);
        let pause = match self.renew(&leases, patience.min(shortest / 6)) {
            Ok(true) => shortest / 3,
            // Another session had a row locked.
            Ok(false) => soon,
            Err(error) => {
                tracing::warn!(%error, guards = leases.len(), "slots not renewed; trying again");
                soon
            }
        };
        // Guards that came meanwhile may be due earlier.
        let mut inner = self.lock();
        let left = inner.kept.values().map(|kept| kept.state.remaining()).min();
        let next = left.map_or(pause, |left| {
            pause.min(left / 3).max(SOONEST_RETRY.min(pause))
        });
        inner.due = Some(Instant::now() + next);
    }

    /// Whether all that are still ours have a new lease.
    fn renew(&self, leases: &[Renewal], patience: Duration) -> Result<bool, Error> {
        let mut conn = self.pool.get_timeout(patience)?;
        let begun = Instant::now();
        let answers = conn.renew(leases)?;
        drop(conn);
        let mut left: HashMap<Vec<u8>, i64> = answers
            .into_iter()
            .map(|renewed| (renewed.token, renewed.left_us))
            .collect();
        let mut confirmed = Vec::new();
        let mut lost = Vec::new();
        let mut all = true;
        let mut inner = self.lock();
        for lease in leases {
            let token = Uuid::from_bytes(lease.token);
            let left = left.remove(lease.token.as_slice());
            let Some(kept) = inner.kept.get(&token) else {
                continue;
            };
            // What is left can be less than a lease: another session had the row locked.
            if let Some(left) = left.and_then(|left| u64::try_from(left).ok()) {
                let left = left.min(lease.lease_us.unsigned_abs());
                all &= left > lease.lease_us.unsigned_abs() / 4 * 3;
                let left = Duration::from_micros(left).saturating_sub(C::CLOCK_STEP);
                confirmed.push((Arc::clone(&kept.state), begun + left));
            } else {
                lost.extend(inner.kept.remove(&token));
            }
        }
        drop(inner);
        for (state, deadline) in confirmed {
            state.confirm(deadline);
        }
        for kept in lost {
            kept.state.take_away();
        }
        Ok(all)
    }

    /// One statement for all; those that another session has locked, or all when it fails, are tried again.
    fn release_those(&self, mut leaving: Vec<Leaving>) {
        let slots: Vec<Renewal> = leaving.iter().map(|one| asked(&one.slot)).collect();
        let still_ours = self
            .pool
            .get_timeout(Duration::from_millis(50))
            .map_err(Error::from)
            .and_then(|mut conn| conn.give_back_many(&slots));
        match still_ours {
            Ok(still_ours) => {
                leaving.retain(|one| {
                    still_ours
                        .iter()
                        .any(|token| token == one.slot.token.as_bytes())
                });
            }
            Err(error) => tracing::debug!(%error, "slots not released; trying again"),
        }
        // A lease that has ended needs no release.
        leaving.retain(|one| Instant::now() < one.until);
        if !leaving.is_empty() {
            let mut inner = self.lock();
            inner.leaving.append(&mut leaving);
            inner.again = Some(Instant::now() + RELEASE_RETRY);
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

/// What is asked of the database when no new lease is wanted.
fn asked(slot: &Slot) -> Renewal {
    Renewal {
        semaphore: slot.semaphore.clone(),
        number: slot.number_i32(),
        token: slot.token.into_bytes(),
        lease_us: 0,
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
        let kept: Vec<Kept> = self.lock().kept.drain().map(|(_, kept)| kept).collect();
        // Whoever has lost its slot, noticed or not, has none to release. Not asked by `is_held`, which would
        // tell of the loss.
        let mut all: Vec<(bool, Kept)> = kept
            .into_iter()
            .map(|kept| (!kept.state.remaining().is_zero(), kept))
            .collect();
        all.retain(|(_, kept)| kept.state.end());
        let slots: Vec<Renewal> = all.iter().map(|(_, kept)| renewal(kept)).collect();
        let still_ours = self
            .pool
            .get()
            .map_err(Error::from)
            .and_then(|mut conn| conn.give_back_many(&slots));
        match still_ours {
            Ok(still_ours) => all
                .iter()
                .filter(|(held, kept)| {
                    let token = kept.slot.token.as_bytes();
                    *held && !still_ours.iter().any(|left| left == token)
                })
                .count(),
            Err(error) => {
                tracing::warn!(%error, slots = slots.len(), "slots not released; their leases end");
                0
            }
        }
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use std::time::Duration;

    use diesel::SqliteConnection;

    use super::*;
    use crate::{Lease, Semaphore};

    /// The leases of two have ended, and the thread, which would notice, has not looked since.
    #[test]
    fn a_lost_slot_is_not_counted_as_released() {
        const HOUR: Duration = Duration::from_secs(3600);
        let folder = tempfile::tempdir().expect("a folder");
        let url = folder.path().join("test.sqlite3").display().to_string();
        let manager = ConnectionManager::<SqliteConnection>::new(url);
        let pool = Pool::builder().max_size(1).build(manager).expect("a pool");
        let mut conn = pool.get().expect("a connection");
        crate::migrate(&mut *conn).expect("migrate");
        let keeper = Arc::new(Keeper::new(pool.clone()));
        let now = Instant::now();
        for deadline in [now, now + HOUR, now] {
            let slot = conn.try_acquire_slot(&Semaphore::new("three", 3), Lease::new(HOUR));
            let slot = slot.expect("an answer").expect("free");
            let kept = Kept {
                slot,
                lease: HOUR,
                lease_us: 1,
                state: Arc::new(State::new(deadline)),
            };
            keeper.lock().kept.insert(kept.slot.token, kept);
        }
        drop(conn);
        assert_eq!(keeper.release_all(), 1);
        let mut conn = pool.get().expect("a connection");
        assert_eq!(conn.held_slots("three").expect("rows"), []);
    }
}
