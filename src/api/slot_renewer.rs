//! [`SlotRenewer`]: its methods.

use std::time::Duration;

#[cfg(feature = "r2d2")]
use diesel::r2d2::R2D2Connection;

#[cfg(feature = "r2d2")]
use crate::SemaphoreExt;
#[cfg(feature = "_async_pool")]
use crate::acts::closures::SendWork;
use crate::api::slot_guard::SlotGuard;
use crate::jobs::renewer::Renewer;
#[cfg(feature = "r2d2")]
use crate::pools::lender::r2d2::R2d2Pool;
use crate::rt::stop_token::StopToken;
#[cfg(feature = "_async_pool")]
use crate::{Async, AsyncPool};
use crate::{Error, LeaseOptions, Pool, Semaphore, Wait};

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
/// # let directory = tempfile::tempdir()?;
/// # let pool = sqlite::pool(&directory.path().join("app.db").display().to_string())?;
/// # diesel_locks::migrate(&mut pool.get()?)?;
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
/// `try_acquire` and `acquire`, which waits, return a [`SlotGuard`]. `try_run` holds a slot while a closure runs, and does not wait
/// for one. `run_as_leader` elects a leader, `run_on_timer` runs a job on one node per tick.
///
/// | feature | `P` | methods | guard | renewals |
/// |---|---|---|---|---|
/// | `r2d2` | r2d2's pool of Diesel's connections | block the thread | `SlotGuard` | in a thread |
/// | `bb8`, `deadpool` | an `AsyncPool` | return futures, which are `Send` | `SlotGuard<Async>` | in a task |
///
/// Clones share the guards and the thread or task that renews them, with one statement, each time a third of the shortest lease has
/// passed. It starts with the first guard, and ends when the renewer, its clones and its guards are dropped. When the process is to
/// end, use [`Shutdown`](crate::Shutdown).
///
/// # Which pool
///
/// Give the renewer a pool of its own, with two connections: it borrows one for each renewal, release and attempt to acquire. On a
/// shared pool a renewal waits while all connections are in use, and guards whose leases end meanwhile are lost.
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
#[doc(alias("KeepAliveLockProvider", "distributed lock", "ShedLock"))]
pub struct SlotRenewer<P>(Renewer<P>);

impl<P: Pool> SlotRenewer<P> {
    /// Creates a renewer that uses the connections of `pool`. Sends nothing to the database, and needs no runtime.
    pub fn new(pool: P) -> Self {
        Self(Renewer::new(pool))
    }

    /// Returns a handle to the same renewer whose waits ask the database at least once per `interval`, 1 s by default.
    ///
    /// A slot that another process releases is noticed after at most one interval; a slot that is released in this process,
    /// or whose lease ends, at once. `acquire` begins with [shorter pauses](crate::SemaphoreExt::acquire_slot);
    /// `run_as_leader` pauses for half an interval to an interval. The shortest interval of those that wait in a process counts.
    ///
    /// 10 ms to a day. With any other duration the methods that wait return [`Error::InvalidInterval`].
    #[must_use]
    pub fn poll_interval(&self, interval: Duration) -> Self {
        Self(self.0.polling_within(interval))
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
        Self(self.0.stopped_by(stop))
    }

    /// Returns the pool.
    pub fn pool(&self) -> &P {
        self.0.pool()
    }

    /// The renewer, for what waits with it.
    pub(crate) fn generic(&self) -> &Renewer<P> {
        &self.0
    }
}

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
        lease: &LeaseOptions,
    ) -> Result<Option<SlotGuard>, Error> {
        let held = C::block_on(self.0.try_acquire(semaphore, lease))?;
        Ok(held.map(SlotGuard::new))
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
        lease: &LeaseOptions,
        wait: Wait,
    ) -> Result<SlotGuard, Error> {
        let held = C::block_on(self.0.acquire(semaphore, lease, wait))?;
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
        lease: &LeaseOptions,
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
    /// released. Other holders need not wait until the leases end.
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
        C::block_on(self.0.release_guards())
    }
}

/// On the pools of diesel-async: the methods return futures, and [`Error::AsyncPool`] in place of `Error::Pool`.
#[cfg(feature = "_async_pool")]
#[expect(
    clippy::manual_async_fn,
    reason = "the signatures promise that the futures are `Send`"
)]
#[expect(clippy::missing_errors_doc, reason = "the methods of r2d2 list them")]
impl<P: AsyncPool> SlotRenewer<P> {
    /// Acquires a slot if one is free; returns `None` when all slots are held: as `try_acquire` on r2d2's pool.
    pub fn try_acquire(
        &self,
        semaphore: &Semaphore,
        lease: &LeaseOptions,
    ) -> impl Future<Output = Result<Option<SlotGuard<Async>>, Error>> + Send {
        async move {
            let held = self.0.try_acquire(semaphore, lease).await?;
            Ok(held.map(SlotGuard::new))
        }
    }

    /// Acquires a slot, and waits while all are held: as `acquire` on r2d2's pool.
    pub fn acquire(
        &self,
        semaphore: &Semaphore,
        lease: &LeaseOptions,
        wait: Wait,
    ) -> impl Future<Output = Result<SlotGuard<Async>, Error>> + Send {
        async move {
            let held = self.0.acquire(semaphore, lease, wait).await?;
            Ok(SlotGuard::new(held))
        }
    }

    /// Acquires a slot, runs `f`, and releases the slot: as `try_run` on r2d2's pool. To end the work at a loss of the slot, wait
    /// for [`lost`](SlotGuard::lost) in a `select!`. After a panic the slot is released in the background.
    pub fn try_run<T, E, F>(
        &self,
        semaphore: &Semaphore,
        lease: &LeaseOptions,
        f: F,
    ) -> impl Future<Output = Result<Option<T>, E>> + Send
    where
        for<'r> F: SendWork<&'r SlotGuard<Async>, Result<T, E>>,
        T: Send,
        E: From<Error> + Send,
    {
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
        async move { self.0.release_guards().await }
    }
}

impl<P> Clone for SlotRenewer<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P> std::fmt::Debug for SlotRenewer<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlotRenewer")
            .field("stop", &self.0.stop())
            .finish_non_exhaustive()
    }
}
