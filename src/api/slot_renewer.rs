//! The methods of [`SlotRenewer`] that acquire and release slots.

#[cfg(feature = "r2d2")]
use diesel::r2d2::R2D2Connection;

#[cfg(feature = "r2d2")]
use crate::SemaphoreExt;
#[cfg(feature = "_async_pool")]
use crate::acts::closures::Work;
use crate::acts::waiting::unless_refused;
use crate::api::slot_guard::SlotGuard;
#[cfg(feature = "r2d2")]
use crate::pools::r2d2::R2d2Pool;
#[cfg(feature = "_async_pool")]
use crate::{Async, Pool};
use crate::{Error, LeaseOptions, Semaphore, SlotRenewer, Wait};

/// On r2d2's pool: the methods block.
#[cfg(feature = "r2d2")]
impl<C: SemaphoreExt + R2D2Connection + Send + 'static> SlotRenewer<R2d2Pool<C>> {
    /// Acquires a slot if one is free, as [`try_acquire_slot`](SemaphoreExt::try_acquire_slot); returns `None` when all slots
    /// are held.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] when the pool has no connection within its time-out; [`Error::Stopped`] after a
    /// [stop](Self::stopped_by); those of [`try_acquire_slot`](SemaphoreExt::try_acquire_slot).
    #[doc(alias("try_lock", "TryLock"))]
    pub fn try_acquire(
        &self,
        semaphore: &Semaphore,
        lease: impl Into<LeaseOptions>,
    ) -> Result<Option<SlotGuard>, Error> {
        let held = C::block_on(self.lease(semaphore, &lease.into(), None));
        Ok(unless_refused(held)?.map(SlotGuard::new))
    }

    /// Acquires a slot, and waits while all are held, as [`acquire_slot`](SemaphoreExt::acquire_slot), with no connection
    /// between attempts.
    ///
    /// # Errors
    ///
    /// [`Error::LockTimeout`] when the time is up; [`Error::Pool`] if the first attempt gets no connection, as on a
    /// [`LockPool`](crate::LockPool#time-limit); [`Error::Stopped`] after a [stop](Self::stopped_by); those of
    /// [`acquire_slot`](SemaphoreExt::acquire_slot).
    #[doc(alias("lock", "wait"))]
    pub fn acquire(
        &self,
        semaphore: &Semaphore,
        lease: impl Into<LeaseOptions>,
        wait: impl Into<Wait>,
    ) -> Result<SlotGuard, Error> {
        let held = C::block_on(self.lease(semaphore, &lease.into(), Some(wait.into())))?;
        Ok(SlotGuard::new(held))
    }

    /// Acquires a slot, calls `f`, and releases the slot when `f` returns or panics. Returns `None`, and does not call `f`,
    /// when all slots are held.
    ///
    /// If the lease is lost meanwhile, `f` continues: let it check [`ensure_held`](SlotGuard::ensure_held) at each step. A release
    /// that fails is logged by `tracing`, and retried as after a [drop](SlotGuard#drop). The crate's page has an
    /// [example](crate#semaphores). For a job that a timer starts on every node see [`hold_at_least`](LeaseOptions::hold_at_least).
    ///
    /// # Errors
    ///
    /// Those of `f`; those of [`try_acquire`](Self::try_acquire), converted to the same type.
    #[doc(alias("run", "with_lock", "executeWithLock", "executeIfLocked", "cron"))]
    #[doc(alias("singleton job"))]
    pub fn try_run<T, E, F>(
        &self,
        semaphore: &Semaphore,
        lease: impl Into<LeaseOptions>,
        f: F,
    ) -> Result<Option<T>, E>
    where
        F: FnOnce(&SlotGuard) -> Result<T, E>,
        E: From<Error>,
    {
        let Some(guard) = self.try_acquire(semaphore, lease)? else {
            return Ok(None);
        };
        let result = f(&guard);
        if let Err(error) = guard.release() {
            tracing::warn!(semaphore = semaphore.name(), %error, "slot not released");
        }
        result.map(Some)
    }

    /// Releases the slots of all guards of this renewer and its clones, of any semaphore, and returns how many were
    /// released. Other holders need not wait until the leases expire.
    ///
    /// Stop `run_as_leader` and `run_on_timer` before, or they acquire again. To release all slots of one semaphore, also those of
    /// other processes, use [`force_release_all`](SemaphoreExt::force_release_all).
    ///
    /// [`is_held`](SlotGuard::is_held) of the guards returns false from then on; [`on_lost`](SlotGuard::on_lost) callbacks are not
    /// called. Slots that can't be released at once, because of an error or because another session has locked their rows, are
    /// released in the background, and not counted. Lost guards are not counted either, except one whose slot was released by force
    /// since its last renewal.
    #[allow(
        clippy::must_use_candidate,
        reason = "a shutdown need not know the count"
    )]
    #[doc(alias("release_all", "shutdown", "unlock_all"))]
    pub fn release_guards(&self) -> usize {
        C::block_on(self.release_all())
    }
}

/// On the pools of diesel-async: the methods return futures, and [`Error::AsyncPool`] in place of `Error::Pool`.
#[cfg(feature = "_async_pool")]
#[expect(
    clippy::manual_async_fn,
    reason = "the signatures promise that the futures are `Send`"
)]
#[expect(clippy::missing_errors_doc, reason = "the methods of r2d2 list them")]
impl<P: Pool<Style = Async>> SlotRenewer<P> {
    /// Acquires a slot if one is free; returns `None` when all slots are held: as `try_acquire` on r2d2's pool.
    pub fn try_acquire(
        &self,
        semaphore: &Semaphore,
        lease: impl Into<LeaseOptions>,
    ) -> impl Future<Output = Result<Option<SlotGuard<Async>>, Error>> + Send {
        let lease = lease.into();
        async move {
            let held = self.lease(semaphore, &lease, None).await;
            Ok(unless_refused(held)?.map(SlotGuard::new))
        }
    }

    /// Acquires a slot, and waits while all are held: as `acquire` on r2d2's pool.
    pub fn acquire(
        &self,
        semaphore: &Semaphore,
        lease: impl Into<LeaseOptions>,
        wait: impl Into<Wait>,
    ) -> impl Future<Output = Result<SlotGuard<Async>, Error>> + Send {
        let (lease, wait) = (lease.into(), Some(wait.into()));
        async move {
            let held = self.lease(semaphore, &lease, wait).await?;
            Ok(SlotGuard::new(held))
        }
    }

    /// Acquires a slot, runs `f`, and releases the slot: as `try_run` on r2d2's pool. To end the work at a loss of the slot, wait
    /// for [`lost`](SlotGuard::lost) in a `select!`. After a panic the slot is released in the background.
    pub fn try_run<T, E, F>(
        &self,
        semaphore: &Semaphore,
        lease: impl Into<LeaseOptions>,
        f: F,
    ) -> impl Future<Output = Result<Option<T>, E>> + Send
    where
        for<'r> F: Work<&'r SlotGuard<Async>, Result<T, E>, Future: Send> + Send,
        T: Send,
        E: From<Error> + Send,
    {
        let lease = lease.into();
        async move {
            let Some(guard) = self.try_acquire(semaphore, lease).await? else {
                return Ok(None);
            };
            let result = f(&guard).await;
            if let Err(error) = guard.release().await {
                tracing::warn!(semaphore = semaphore.name(), %error, "slot not released");
            }
            result.map(Some)
        }
    }

    /// Releases the slots of all guards of this renewer and its clones, and returns how many were released: as `release_guards` on
    /// r2d2's pool. [`lost`](SlotGuard::lost) of the guards is ready then.
    pub fn release_guards(&self) -> impl Future<Output = usize> + Send {
        async move { self.release_all().await }
    }
}
