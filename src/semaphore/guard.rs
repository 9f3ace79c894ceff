//! Slots that are renewed in the background, over an r2d2 pool.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use diesel::r2d2::{ConnectionManager, Pool, R2D2Connection};

use crate::semaphore::acquire::WaiterConnection;
use crate::semaphore::backend::SemaphoreBackend;
use crate::{
    Error, LeaseOptions, LeaseState, Semaphore, SemaphoreExt, Slot, Wait, semaphore::acquire,
};

mod expiry_watcher;
mod pool_lookup;
mod pool_tag;
mod registry;
mod renewer;
mod state;

use renewer::Keep;
use state::State;

/// How long dropping a guard waits for the slot's release at most.
const DROP_PATIENCE: Duration = Duration::from_millis(200);

/// A leased slot that is renewed in the background as long as the guard lives, and released when it is
/// dropped.
///
/// Feature `r2d2`. One thread per pool renews all guards of the process, however many, in one statement at
/// a third of the shortest lease; what fails is tried again. Renewal borrows a connection of the pool for
/// the statement. One more thread of the process watches the ends of the leases.
///
/// # The first guard with a connection
///
/// Nobody can say of which pool of r2d2's a connection is. So the slot of the first guard that is acquired
/// with a connection is looked for, after the grant, through all pools of the process that have guards,
/// connections of the same type and the same settings (`max_size`, `min_idle`, `connection_timeout`), its
/// own among them: on a thread of its own, by one statement through each pool until it is found. Pools on
/// one database share a renewing thread by that.
///
/// Acquiring it takes longer when one of those pools has no connection left, or its database does not
/// answer: up to 1 s after the grant, or a tenth of the lease if that is less, and some 10 ms. The lease goes
/// on meanwhile. Its pool may have a second renewing thread then. A search that gets no answer keeps its
/// thread and one connection of the pool that it has asked until the connection fails; that pool is asked
/// for no other guard until then.
///
/// # When it is lost
///
/// A guard whose renewal was not confirmed before the end of its lease is lost, for ever: the database was
/// out of reach, the pool was empty for too long, the process was paused, or the slot was taken away. The
/// end is measured by the local monotonic clock, from before the last confirmed statement was sent, so that
/// the guard is lost before anybody else can have the slot. [`is_held`](Self::is_held) is then false,
/// [`on_lost`](Self::on_lost) is called, and [`lost`](Self::lost) receives.
///
/// Work can't be stopped from outside: ask [`is_held`](Self::is_held) at every step, and let the
/// [fence](Self::fence), or [`pin_slot`](crate::SemaphoreExt::pin_slot) in the same transaction as the
/// write, stop what is between two of them. A machine that is suspended stops the monotonic clock of some
/// systems too; the fence knows.
///
/// # Dropping
///
/// The renewing thread releases the slot. Dropping waits for that for up to 200 ms and never panics; a slot
/// that can't be released is free when its lease ends. [`release`](Self::release) waits longer and says what
/// went wrong.
///
/// ```
/// # #[cfg(all(feature = "sqlite", feature = "r2d2"))]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use diesel::SqliteConnection;
/// use diesel::r2d2::{ConnectionManager, Pool};
/// use diesel_locks::prelude::*;
/// use diesel_locks::SlotGuard;
/// use std::time::Duration;
///
/// const COLLATE: Semaphore = Semaphore::from_static("collate-logs", 10);
///
/// # let directory = tempfile::tempdir()?;
/// # let url = directory.path().join("app.db").display().to_string();
/// let pool = Pool::new(ConnectionManager::<SqliteConnection>::new(url))?;
/// # diesel_locks::migrate(&mut *pool.get()?)?;
/// let lease = LeaseOptions::new(Duration::from_secs(30)).holder("worker-7");
/// if let Some(guard) = SlotGuard::try_acquire(&pool, &COLLATE, lease)? {
///     while guard.is_held() {
///         // a step of the work
///         # break;
///     }
///     guard.release()?;
/// }
/// # Ok(())
/// # }
/// # #[cfg(not(all(feature = "sqlite", feature = "r2d2")))]
/// # fn main() {}
/// ```
#[must_use = "dropping the guard releases the slot"]
pub struct SlotGuard {
    slot: Slot,
    state: Arc<State>,
    keeper: Arc<dyn Keep>,
}

impl SlotGuard {
    /// [`try_acquire_slot`](crate::SemaphoreExt::try_acquire_slot) with a connection of the pool: `None` when
    /// all slots are held.
    ///
    /// May take up to 1 s, or a tenth of the lease, longer than the grant for
    /// [the first guard with a connection](SlotGuard#the-first-guard-with-a-connection).
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] when the pool has no connection within its time-out; those of
    /// [`try_acquire_slot`](crate::SemaphoreExt::try_acquire_slot).
    #[allow(
        clippy::needless_pass_by_value,
        reason = "as the methods of a connection"
    )]
    pub fn try_acquire<C>(
        pool: &Pool<ConnectionManager<C>>,
        semaphore: &Semaphore,
        lease: LeaseOptions,
    ) -> Result<Option<Self>, Error>
    where
        C: SemaphoreExt + R2D2Connection + Send + 'static,
    {
        let mut conn = pool.get()?;
        let slot = acquire::try_acquire(&mut *conn, semaphore, &lease)?;
        slot.map(|slot| registry::guard(pool, conn, slot, &lease))
            .transpose()
    }

    /// [`acquire_slot`](crate::SemaphoreExt::acquire_slot), with a connection of the pool for each attempt:
    /// none is taken while it waits.
    ///
    /// May take up to 1 s, or a tenth of the lease, longer than the grant, and than `wait`, for
    /// [the first guard with a connection](SlotGuard#the-first-guard-with-a-connection).
    ///
    /// # Errors
    ///
    /// [`Error::Pool`]; those of [`acquire_slot`](crate::SemaphoreExt::acquire_slot).
    #[allow(
        clippy::needless_pass_by_value,
        reason = "as the methods of a connection"
    )]
    pub fn acquire<C>(
        pool: &Pool<ConnectionManager<C>>,
        semaphore: &Semaphore,
        lease: LeaseOptions,
        wait: Wait,
    ) -> Result<Self, Error>
    where
        C: SemaphoreExt + R2D2Connection + Send + 'static,
    {
        let patience = match wait {
            Wait::AtMost(limit) => pool.connection_timeout().min(limit),
            Wait::Forever | Wait::No => pool.connection_timeout(),
        };
        let mut pooled = Pooled { pool, patience };
        let (conn, slot) = acquire::poll_until(&mut pooled, semaphore, wait, |pooled, budget| {
            let mut conn = pooled.pool.get_timeout(pooled.patience)?;
            let slot = acquire::acquire(&mut *conn, semaphore, &lease, budget)?;
            Ok(slot.map(|slot| (conn, slot)))
        })?;
        registry::guard(pool, conn, slot, &lease)
    }

    /// Whether the slot is still ours: the last confirmed lease has not ended. Asks the clock, not the
    /// database. Once false, it stays false.
    pub fn is_held(&self) -> bool {
        self.state.is_held()
    }

    /// The fencing token, as [`Slot::fence`].
    pub fn fence(&self) -> i64 {
        self.slot.fence
    }

    /// The slot, for [`pin_slot`](crate::SemaphoreExt::pin_slot). Its
    /// [`remaining`](Slot::remaining) is that of the first lease.
    pub fn slot(&self) -> &Slot {
        &self.slot
    }

    /// How much of the last confirmed lease is left at least; zero when the guard is lost.
    pub fn remaining(&self) -> Duration {
        self.state.remaining()
    }

    /// Calls `callback` when the guard is lost, at once if it is already; never when it is released. It is
    /// called on the thread that notices, which may be the one that asks [`is_held`](Self::is_held): it should be
    /// quick, and hold no lock that is held while asking. A panic in it is caught.
    pub fn on_lost(&self, callback: impl FnOnce() + Send + 'static) {
        self.state.on_lost(Box::new(callback));
    }

    /// Receives once when the guard is lost; disconnected when it is released.
    pub fn lost(&self) -> Receiver<()> {
        let (sender, receiver) = channel();
        self.on_lost(move || {
            // Nobody may be listening any more.
            let _ = sender.send(());
        });
        receiver
    }

    /// Releases the slot and says whether its lease had ended, as
    /// [`release_slot`](crate::SemaphoreExt::release_slot), with a connection of the pool.
    ///
    /// # Errors
    ///
    /// [`Error::SlotLost`], [`Error::Pool`], errors of the database. The slot is then free when its lease
    /// ends, at the latest; it is tried again in the background until then.
    pub fn release(self) -> Result<LeaseState, Error> {
        self.keeper.forget(&self.slot);
        if !self.state.end() {
            // Released by `release_all` before.
            return Err(Error::SlotLost {
                semaphore: self.slot.semaphore.clone(),
                number: self.slot.number,
            });
        }
        let left = self.state.last_remaining();
        let released = self.keeper.release(&self.slot);
        if released.as_ref().is_err_and(|error| !error.is_slot_lost()) {
            // Perhaps a moment later, without anybody waiting for it.
            drop(self.keeper.release_soon(&self.slot, left));
        }
        released
    }

    /// Releases the slots of all guards in this process, for a shutdown; says how many were released. Their
    /// [`is_held`](Self::is_held) is false from then on; nobody is told that they were lost.
    ///
    /// Those that were lost do not count, but for a slot that was taken away since its last renewal and
    /// whose guard does not know of it yet.
    ///
    /// Waits for a connection of each pool, once; a slot that can't be released is free when its
    /// lease ends.
    pub fn release_all() -> usize {
        registry::all()
            .iter()
            .map(|keeper| keeper.release_all())
            .sum()
    }
}

/// Asks with a connection of the pool for each question.
struct Pooled<'a, C: R2D2Connection + 'static> {
    pool: &'a Pool<ConnectionManager<C>>,
    patience: Duration,
}

impl<C: SemaphoreBackend + R2D2Connection + 'static> WaiterConnection for Pooled<'_, C> {
    fn is_in_transaction(&mut self) -> Result<bool, Error> {
        Ok(false)
    }

    fn database_id(&mut self) -> Result<Option<String>, Error> {
        C::database_id(&mut *self.pool.get_timeout(self.patience)?)
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        let left = self.state.last_remaining();
        if self.state.end() {
            self.keeper.forget(&self.slot);
            let done = self.keeper.release_soon(&self.slot, left);
            // Late or not at all: the lease ends.
            let _ = done.recv_timeout(DROP_PATIENCE);
        }
    }
}

impl std::fmt::Debug for SlotGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlotGuard")
            .field("slot", &self.slot)
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}

/// Acquires a slot, runs `work`, and releases the slot, whatever happens: `None`, and `work` not run, when
/// all slots are held.
///
/// The slot is renewed in the background while `work` runs, which may ask
/// [`guard.is_held()`](SlotGuard::is_held). When it panics the slot is released and the panic goes on. A
/// release that fails is told to `tracing`, and the slot is free when its lease ends.
///
/// # Errors
///
/// Those of [`SlotGuard::try_acquire`].
///
/// ```
/// # #[cfg(all(feature = "sqlite", feature = "r2d2"))]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use diesel::SqliteConnection;
/// # use diesel::r2d2::{ConnectionManager, Pool};
/// use diesel_locks::prelude::*;
/// use diesel_locks::run_gated;
/// use std::time::Duration;
///
/// const QUEUE: Semaphore = Semaphore::from_static("queue-logs", 1);
/// # let directory = tempfile::tempdir()?;
/// # let url = directory.path().join("app.db").display().to_string();
/// # let pool = Pool::new(ConnectionManager::<SqliteConnection>::new(url))?;
/// # diesel_locks::migrate(&mut *pool.get()?)?;
/// // On every node, by a timer: one of them runs.
/// let lease = LeaseOptions::new(Duration::from_secs(30)).hold_at_least(Duration::from_secs(5));
/// let queued = run_gated(&pool, &QUEUE, lease, |_guard| 42)?;
/// assert_eq!(queued, Some(42));
/// # Ok(())
/// # }
/// # #[cfg(not(all(feature = "sqlite", feature = "r2d2")))]
/// # fn main() {}
/// ```
pub fn run_gated<C, T>(
    pool: &Pool<ConnectionManager<C>>,
    semaphore: &Semaphore,
    lease: LeaseOptions,
    work: impl FnOnce(&SlotGuard) -> T,
) -> Result<Option<T>, Error>
where
    C: SemaphoreExt + R2D2Connection + Send + 'static,
{
    let Some(guard) = SlotGuard::try_acquire(pool, semaphore, lease)? else {
        return Ok(None);
    };
    let value = work(&guard);
    if let Err(error) = guard.release() {
        tracing::warn!(semaphore = semaphore.name(), %error, "slot not released");
    }
    Ok(Some(value))
}
