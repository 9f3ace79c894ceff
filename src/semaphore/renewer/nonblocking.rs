//! Slots that are renewed in the background, over a pool of asynchronous connections.
#![expect(
    clippy::manual_async_fn,
    reason = "the signatures promise that the futures are `Send`"
)]

use std::time::Duration;

use super::generic::Renewer;
use super::weak::WeakRenewer;
use crate::limits::{LONGEST_POLL_INTERVAL, SHORTEST_POLL_INTERVAL};
use crate::poll::Work;
use crate::semaphore::guard::nonblocking::AsyncSlotGuard;
use crate::stop::StopToken;
use crate::{AsyncPool, Error, LeaseOptions, Semaphore, Wait};

/// Acquires leased slots, and renews their leases in the background while their guards live: what `SlotRenewer` is for r2d2,
/// for the pools of diesel-async.
///
/// Create one renewer when the application starts, and clone it where it is needed: clones share the task and the
/// guards. [`try_acquire`](Self::try_acquire) and [`acquire`](Self::acquire), which waits, return an [`AsyncSlotGuard`].
/// [`try_run`](Self::try_run) holds a slot while a closure runs, and does not wait for one. All futures are `Send`.
///
/// One task per renewer renews all its guards with one statement, each time a third of the shortest lease has passed. A
/// renewal that fails is retried. The task ends when the renewer, its clones and its guards are dropped. One thread of the
/// process watches the ends of the leases.
///
/// Slots are the same as those of [`AsyncSemaphoreExt`](crate::AsyncSemaphoreExt) and of blocking processes, and the waiters
/// of a process form one queue.
///
/// # Runtimes
///
/// The task starts with the first guard, on the runtime in which that is acquired. If that runtime is shut down while guards
/// exist or slots are to be released, a thread of this crate continues the work. Guards may be dropped outside of a runtime.
///
/// A runtime that does not run renews and releases nothing: one with one thread (`current_thread`) whose `block_on` has returned, or whose
/// thread a task blocks for too long. Guards whose leases end meanwhile are lost, and know it. Let no task block its thread for
/// longer than a third of the lease: use `spawn_blocking`.
///
/// Leases are measured by the clocks of the database and the system, not by tokio's. In a test that pauses tokio's clock
/// (`tokio::time::pause`), slots are still renewed in time, except while `spawn_blocking` runs: then tokio does not advance its
/// clock, and no renewal begins. And tokio advances it while all tasks wait for the network,
/// so that the time-outs of a pool pass at once: do not pause it in a test with a database server.
///
/// # Dropped futures
///
/// A future of [`acquire`](Self::acquire) or [`try_acquire`](Self::try_acquire) may be dropped at every `.await`. A slot that
/// it may have acquired is released, as in [`AsyncSemaphoreExt::acquire_slot`](crate::AsyncSemaphoreExt::acquire_slot), or in
/// rare cases free when its lease ends: see [Dropped futures](crate::operation::dropped_futures#outcomes). Waiters are not
/// notified of that release: one acquires the slot at its next attempt, after up to one poll interval. A future of
/// [`try_run`](Self::try_run) that is dropped while the closure runs drops the closure's future, and its slot is released in
/// the background, as when a guard is dropped.
///
/// # Which pool
///
/// Give the renewer a pool of its own, with two connections. Each renewal, each release and each attempt to
/// acquire borrows a connection for a short time. On a pool that the application uses too, a renewal waits
/// while all connections are in use, and guards whose leases end meanwhile are lost. If the renewer has to
/// share a pool, make it larger than the number of connections that the application uses at once.
///
/// A connection that does not answer is given up after half of the time that is left of the first lease to end, at most after
/// 10 s, and the renewal is repeated with the other connection. Renewers do not block each other.
///
/// ```
/// use diesel_locks::prelude::*;
/// use diesel_locks::{AsyncShutdown, AsyncSlotRenewer};
/// use std::time::Duration;
///
/// const COLLATE: Semaphore = Semaphore::from_static("collate-logs", 10);
///
/// # mod sqlite { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sqlite/asynchronous.rs")); }
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let pool = sqlite::pool(&directory.path().join("app.db").display().to_string())?;
/// # diesel_locks::migrate_async(&mut pool.get().await?).await?;
/// // Once, when the application starts, with a pool of two connections:
/// let shutdown = AsyncShutdown::new();
/// let renewer = shutdown.add_renewer(&AsyncSlotRenewer::new(pool));
///
/// let lease = LeaseOptions::new(Duration::from_secs(30)).holder("worker-7");
/// if let Some(guard) = renewer.try_acquire(&COLLATE, &lease).await? {
///     tokio::select! {
///         () = guard.lost() => guard.ensure_held()?, // an error: another one may hold the slot
///         () = work() => {}
///     }
///     guard.release().await?;
/// }
///
/// // Before the process ends:
/// let left = shutdown.shut_down(Duration::from_secs(8)).await;
/// if !left.is_empty() {
///     eprintln!("cut off: {left:?}");
/// }
/// # Ok(())
/// # }
/// # async fn work() {}
/// ```
#[doc(alias("heartbeat", "keepalive", "watchdog", "refresh", "lease", "tokio"))]
#[doc(alias("distributed lock", "ShedLock"))]
pub struct AsyncSlotRenewer<P: AsyncPool>(Renewer<P>);

impl<P: AsyncPool> AsyncSlotRenewer<P> {
    /// The shortest poll interval: 10 ms.
    pub const SHORTEST_POLL_INTERVAL: Duration = SHORTEST_POLL_INTERVAL;

    /// The longest poll interval: a day.
    pub const LONGEST_POLL_INTERVAL: Duration = LONGEST_POLL_INTERVAL;

    /// Creates a renewer that uses the connections of `pool`. Sends nothing to the database, and needs no runtime.
    pub fn new(pool: P) -> Self {
        Self(Renewer::new(pool))
    }

    /// The renewer, whatever the type of its connections.
    pub(in crate::semaphore) fn generic(&self) -> &Renewer<P> {
        &self.0
    }

    /// This renewer, for a shutdown.
    pub(crate) fn downgrade(&self) -> WeakRenewer<P> {
        self.0.downgrade()
    }

    /// Returns the pool.
    pub fn pool(&self) -> &P {
        self.0.pool()
    }

    /// Returns a handle to the same renewer whose waits end when `stop` is stopped.
    ///
    /// [`acquire`](Self::acquire), [`try_acquire`](Self::try_acquire) and [`try_run`](Self::try_run) of the handle then return
    /// [`Error::Stopped`] at once, or after the attempt that is running. A slot that is granted meanwhile is released. A stop
    /// has no effect on guards that were returned before, nor on a closure that [`try_run`](Self::try_run) has called: let
    /// them wait for [`StopToken::stopped`] too.
    ///
    /// The handle replaces the token of the handle that it is made from. For a wait that either of two tokens ends,
    /// pass a [child](StopToken::child).
    #[must_use]
    #[doc(alias("cancel", "CancellationToken", "abort"))]
    pub fn stopped_by(&self, stop: &StopToken) -> Self {
        Self(self.0.stopped_by(stop))
    }

    /// Returns a handle to the same renewer whose waits ask the database at least once per `interval`. The default is 1 s.
    ///
    /// A slot that another process releases is noticed after at most one interval; a slot that is released in this process,
    /// or whose lease ends, at once. [`acquire`](Self::acquire) begins with pauses of 10 to 100 ms; after a second they
    /// grow to a tenth of the time for which the holders have not changed, up to the interval.
    ///
    /// The first waiter of a process for a semaphore asks for all of them, at the shortest interval of those that wait.
    ///
    /// 10 ms to a day. With any other duration the methods that wait return [`Error::InvalidInterval`].
    #[must_use]
    pub fn poll_interval(&self, interval: Duration) -> Self {
        Self(self.0.polling_within(interval))
    }

    /// Acquires a slot if one is free, as
    /// [`try_acquire_slot`](crate::AsyncSemaphoreExt::try_acquire_slot); returns `None` when all slots are held.
    ///
    /// # Errors
    ///
    /// [`Error::AsyncPool`] when the pool has no connection within its time-out; [`Error::Stopped`] after a stop
    /// ([`stopped_by`](Self::stopped_by)); those of [`try_acquire_slot`](crate::AsyncSemaphoreExt::try_acquire_slot).
    #[doc(alias("try_lock", "TryLock"))]
    pub fn try_acquire<'a>(
        &'a self,
        semaphore: &'a Semaphore,
        lease: &'a LeaseOptions,
    ) -> impl Future<Output = Result<Option<AsyncSlotGuard>, Error>> + Send + 'a {
        async move {
            let held = self.0.try_acquire(semaphore, lease).await?;
            Ok(held.map(AsyncSlotGuard::new))
        }
    }

    /// Acquires a slot, and waits while all are held, as
    /// [`acquire_slot`](crate::AsyncSemaphoreExt::acquire_slot). Borrows a connection of the pool for each
    /// attempt, and none between attempts. Waiters of the process make their attempts in turn: the first attempts of at
    /// most half as many as the pool has connections run at the same time.
    ///
    /// # Errors
    ///
    /// - [`Error::LockTimeout`] when the time is up.
    /// - [`Error::AsyncPool`] if the first attempt, made without a wait in the queue, gets no connection. The limit is the pool's
    ///   time-out, or the remaining time of `wait` (at least 200 ms) if that is shorter. Any other attempt that gets no
    ///   connection counts as refused.
    /// - [`Error::Stopped`] after a stop ([`stopped_by`](Self::stopped_by)).
    /// - Those of [`acquire_slot`](crate::AsyncSemaphoreExt::acquire_slot).
    #[doc(alias("lock", "wait"))]
    pub fn acquire<'a>(
        &'a self,
        semaphore: &'a Semaphore,
        lease: &'a LeaseOptions,
        wait: Wait,
    ) -> impl Future<Output = Result<AsyncSlotGuard, Error>> + Send + 'a {
        async move {
            let held = self.0.acquire(semaphore, lease, wait).await?;
            Ok(AsyncSlotGuard::new(held))
        }
    }

    /// Acquires a slot, calls `f`, and releases the slot when `f` has returned or panicked, or is dropped. Returns `None`, and
    /// does not call `f`, when all slots are held. Does not wait for a slot; to wait, call [`acquire`](Self::acquire).
    ///
    /// The slot is renewed while `f` runs. If the lease is lost meanwhile, `f` continues, and the method returns what `f`
    /// returns: check [`is_held`](AsyncSlotGuard::is_held) at each step, or wait for [`lost`](AsyncSlotGuard::lost) in a
    /// `select!`, and return an error from `f` to report the loss. A
    /// release that fails is logged by `tracing`; it is retried in the background until the lease ends, for a minute at most.
    /// After a panic, and if the future is dropped, the release is in the background.
    ///
    /// When `f` has returned, the future waits for the release: for a connection up to the time-out of the pool, and for the
    /// statement. A future that is dropped meanwhile loses the result of `f`.
    ///
    /// # Errors
    ///
    /// Those of `f`; those of [`try_acquire`](Self::try_acquire), converted to the same type.
    ///
    /// ```
    /// # use diesel_locks::{AsyncPool, AsyncSlotRenewer};
    /// use diesel_locks::prelude::*;
    /// use std::time::Duration;
    ///
    /// const QUEUE: Semaphore = Semaphore::from_static("queue-logs", 1);
    ///
    /// # async fn queue_logs(renewer: &AsyncSlotRenewer<impl AsyncPool>) -> Result<Option<u32>, diesel_locks::Error> {
    /// // A timer starts this once a minute on every node. Their clocks differ by less than 5 s: one of them runs.
    /// let lease = LeaseOptions::new(Duration::from_secs(30)).hold_at_least(Duration::from_secs(5));
    /// renewer
    ///     .try_run(&QUEUE, &lease, async |guard| -> diesel_locks::Result<_> {
    ///         let mut queued = 0;
    ///         while queued < 42 {
    ///             guard.ensure_held()?;
    ///             queued += 1; // a step of the work
    ///         }
    ///         Ok(queued)
    ///     })
    ///     .await
    /// # }
    /// ```
    #[doc(alias("run", "with_lock", "executeWithLock", "executeIfLocked", "cron"))]
    #[doc(alias("singleton job"))]
    pub fn try_run<'a, 'f, T, E, F>(
        &'a self,
        semaphore: &'a Semaphore,
        lease: &'a LeaseOptions,
        f: F,
    ) -> impl Future<Output = Result<Option<T>, E>> + Send + 'a
    where
        for<'r> F: AsyncFnOnce(&'r AsyncSlotGuard) -> Result<T, E>
            + Work<&'r AsyncSlotGuard, Result<T, E>, Future: Send>
            + Send
            + 'f,
        T: Send + 'f,
        E: From<Error> + Send + 'f,
        'f: 'a,
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

    /// Releases the slots of all guards of this renewer and its clones, of any semaphore, and returns how many were
    /// released. Other holders need not wait until the leases end.
    ///
    /// When the process is asked to end, use [`AsyncShutdown`](crate::AsyncShutdown) instead. This method stops no loop: stop
    /// the tokens of `run_as_leader` and `run_on_timer` before, or they acquire again. To release all slots of one semaphore, also those of other processes, use
    /// [`force_release_all`](crate::AsyncSemaphoreExt::force_release_all).
    ///
    /// [`is_held`](AsyncSlotGuard::is_held) of the guards returns false from then on, and their
    /// [`lost`](AsyncSlotGuard::lost) is ready; [`on_lost`](AsyncSlotGuard::on_lost) callbacks
    /// are not called. Guards that are acquired later are not affected.
    ///
    /// Lost guards are not counted, except one whose slot was released by force since its last renewal.
    ///
    /// Waits for a connection of the pool as long as the pool's time-out allows. Slots that can't be released then, because of an
    /// error or because another session has locked their rows, are not counted: they are released in the background, or are
    /// free when their leases end. So are all if the future is dropped.
    #[doc(alias("release_all", "shutdown", "unlock_all"))]
    pub fn release_guards(&self) -> impl Future<Output = usize> + Send + '_ {
        async move { self.0.shared().release_guards().await }
    }
}

impl<P: AsyncPool> Clone for AsyncSlotRenewer<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: AsyncPool> std::fmt::Debug for AsyncSlotRenewer<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AsyncSlotRenewer")
            .field("stop", &self.0.stop())
            .finish_non_exhaustive()
    }
}
