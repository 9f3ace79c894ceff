//! Slots that are renewed in the background, over an r2d2 pool.

use diesel::r2d2::{ConnectionManager, Pool, R2D2Connection};

use crate::lender::blocking::R2d2Pool;
use crate::semaphore::guard::blocking::SlotGuard;
use crate::semaphore::renewer::generic::Renewer;
use crate::stop::StopToken;
use crate::{Error, LeaseOptions, Semaphore, SemaphoreExt, Wait};

mod settings;

/// Acquires leased slots, and renews their leases in the background while their guards live.
///
/// Create one renewer when the application starts, and clone it where it is needed: clones share the thread and the
/// guards. [`try_acquire`](Self::try_acquire) and [`acquire`](Self::acquire), which waits, return a [`SlotGuard`].
/// [`try_run`](Self::try_run) holds a slot while a closure runs, and does not wait for one.
///
/// One thread per renewer renews all its guards with one statement, each time a third of the shortest lease has passed. A
/// renewal that fails is retried. The thread starts with the first guard. It ends when the renewer, its
/// clones and its guards are dropped. One more thread of the process watches the ends of the leases.
///
/// # Which pool
///
/// Give the renewer a pool of its own, with two connections. Each renewal, each release and each attempt to
/// acquire borrows a connection for a short time. On a pool that the application uses too, a renewal waits
/// while all connections are in use, and guards whose leases end meanwhile are lost. If the renewer has to
/// share a pool, make `max_size` larger than the number of connections that the application uses at once.
///
/// A connection that does not answer blocks the thread until the driver reports an error; guards whose
/// leases end meanwhile are lost. Renewers do not block each other.
///
/// ```
/// use diesel_locks::SlotRenewer;
/// use diesel_locks::prelude::*;
/// use std::time::Duration;
///
/// const COLLATE: Semaphore = Semaphore::from_static("collate-logs", 10);
///
/// # mod sqlite { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sqlite/mod.rs")); }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let pool = sqlite::pool(&directory.path().join("app.db").display().to_string())?;
/// # diesel_locks::migrate(&mut pool.get()?)?;
/// let renewer = SlotRenewer::new(pool); // once, when the application starts
///
/// let lease = LeaseOptions::new(Duration::from_secs(30)).holder("worker-7");
/// if let Some(guard) = renewer.try_acquire(&COLLATE, &lease)? {
///     while guard.is_held() {
///         // a step of the work
///         # break;
///     }
///     guard.release()?;
/// }
///
/// renewer.release_guards(); // before the process ends
/// # Ok(())
/// # }
/// ```
#[doc(alias(
    "heartbeat",
    "keepalive",
    "KeepAliveLockProvider",
    "watchdog",
    "refresh",
    "lease"
))]
#[doc(alias("distributed lock", "ShedLock"))]
pub struct SlotRenewer<C: R2D2Connection + Send + 'static>(Renewer<R2d2Pool<C>>);

impl<C: SemaphoreExt + R2D2Connection + Send + 'static> SlotRenewer<C> {
    /// Creates a renewer that uses the connections of `pool`. Sends nothing to the database.
    pub fn new(pool: Pool<ConnectionManager<C>>) -> Self {
        Self(Renewer::new(pool))
    }

    /// Returns a handle to the same renewer whose waits end when `stop` is stopped: when a client hangs up, or the process
    /// is to end.
    ///
    /// [`acquire`](Self::acquire), [`try_acquire`](Self::try_acquire) and [`try_run`](Self::try_run) of the handle then return
    /// [`Error::Stopped`], within 50 ms of the stop, and the time of one attempt if one is running (on SQLite up to 5 s, while
    /// another connection writes and a slot is free). A slot that is granted
    /// meanwhile is released. A stop has no effect on guards that were returned before, nor on a closure that
    /// [`try_run`](Self::try_run) has called: let them check [`StopToken::is_stopped`].
    ///
    /// The handle replaces the token of the handle that it is made from. For a wait that either of two tokens ends,
    /// pass a [child](StopToken::child).
    ///
    /// ```
    /// use diesel_locks::prelude::*;
    /// use diesel_locks::{Error, SlotRenewer, StopToken};
    /// use std::time::Duration;
    ///
    /// const COLLATE: Semaphore = Semaphore::from_static("collate-logs", 1);
    ///
    /// # mod sqlite { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sqlite/mod.rs")); }
    /// # fn main() -> Result<(), diesel_locks::Error> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let pool = sqlite::pool(&directory.path().join("app.db").display().to_string())?;
    /// # diesel_locks::migrate(&mut pool.get()?)?;
    /// # let renewer = SlotRenewer::new(pool);
    /// let lease = LeaseOptions::new(Duration::from_secs(30));
    /// let guard = renewer.acquire(&COLLATE, &lease, Wait::No)?;
    ///
    /// let shutdown = StopToken::new();
    /// let stoppable = renewer.stopped_by(&shutdown);
    /// std::thread::scope(|scope| {
    ///     let standby = scope.spawn(|| stoppable.acquire(&COLLATE, &lease, Wait::Forever));
    ///     shutdown.stop(); // SIGTERM
    ///     let ended = standby.join().expect("no panic");
    ///     assert!(matches!(ended, Err(Error::Stopped { .. })));
    /// });
    /// assert!(guard.is_held()); // not affected
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    #[doc(alias("cancel", "CancellationToken", "abort"))]
    pub fn stopped_by(&self, stop: &StopToken) -> Self {
        Self(self.0.stopped_by(stop))
    }

    /// Acquires a slot if one is free, as
    /// [`try_acquire_slot`](crate::SemaphoreExt::try_acquire_slot); returns `None` when all slots are held.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] when the pool has no connection within its time-out; [`Error::Stopped`] after a stop
    /// ([`stopped_by`](Self::stopped_by)); those of [`try_acquire_slot`](crate::SemaphoreExt::try_acquire_slot).
    #[doc(alias("try_lock", "TryLock"))]
    pub fn try_acquire(
        &self,
        semaphore: &Semaphore,
        lease: &LeaseOptions,
    ) -> Result<Option<SlotGuard>, Error> {
        let held = C::block_on(self.0.try_acquire(semaphore, lease))?;
        Ok(held.map(SlotGuard::new::<C>))
    }

    /// Acquires a slot, and waits while all are held, as
    /// [`acquire_slot`](crate::SemaphoreExt::acquire_slot). Borrows a connection of the pool for each
    /// attempt, and none between attempts. Waiters of the process make their attempts in turn: the first attempts of at
    /// most half as many as the pool has connections run at the same time.
    ///
    /// # Errors
    ///
    /// - [`Error::LockTimeout`] when the time is up.
    /// - [`Error::Pool`] if the first attempt, made without a wait in the queue, gets no connection. The limit is the pool's
    ///   time-out, or the remaining time of `wait` (at least 200 ms) if that is shorter. Any other attempt that gets no
    ///   connection counts as refused.
    /// - [`Error::Stopped`] after a stop ([`stopped_by`](Self::stopped_by)).
    /// - Those of [`acquire_slot`](crate::SemaphoreExt::acquire_slot).
    #[doc(alias("lock", "wait"))]
    pub fn acquire(
        &self,
        semaphore: &Semaphore,
        lease: &LeaseOptions,
        wait: Wait,
    ) -> Result<SlotGuard, Error> {
        let held = C::block_on(self.0.acquire(semaphore, lease, wait))?;
        Ok(SlotGuard::new::<C>(held))
    }

    /// Acquires a slot, calls `f`, and releases the slot when `f` returns or panics. Returns `None`, and does not call `f`,
    /// when all slots are held. Does not wait for a slot; to wait, call [`acquire`](Self::acquire).
    ///
    /// The slot is renewed while `f` runs. If the lease is lost meanwhile, `f` continues, and the method returns what `f`
    /// returns: check [`is_held`](SlotGuard::is_held) at each step, and return an error from `f` to report the loss. A
    /// release that fails is logged by `tracing`; it is retried in the background until the lease ends, for a minute at most.
    ///
    /// # Errors
    ///
    /// Those of `f`; those of [`try_acquire`](Self::try_acquire), converted to the same type.
    ///
    /// ```
    /// use diesel_locks::SlotRenewer;
    /// use diesel_locks::prelude::*;
    /// use std::time::Duration;
    ///
    /// # mod sqlite { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sqlite/mod.rs")); }
    /// # fn main() -> Result<(), diesel_locks::Error> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let pool = sqlite::pool(&directory.path().join("app.db").display().to_string())?;
    /// # diesel_locks::migrate(&mut pool.get()?)?;
    /// # let renewer = SlotRenewer::new(pool);
    /// const QUEUE: Semaphore = Semaphore::from_static("queue-logs", 1);
    ///
    /// // A timer starts this once a minute on every node. Their clocks differ by less than 5 s: one of them runs.
    /// let lease = LeaseOptions::new(Duration::from_secs(30)).hold_at_least(Duration::from_secs(5));
    /// let queued = renewer.try_run(&QUEUE, &lease, |guard| -> diesel_locks::Result<_> {
    ///     let mut queued = 0;
    ///     while queued < 42 {
    ///         guard.ensure_held()?;
    ///         queued += 1; // a step of the work
    ///     }
    ///     Ok(queued)
    /// })?;
    /// assert_eq!(queued, Some(42));
    /// # Ok(())
    /// # }
    /// ```
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
    /// When the process is asked to end, use [`Shutdown`](crate::Shutdown) instead. This method stops no loop: stop the
    /// tokens of `run_as_leader` and `run_on_timer` before, or they acquire again. To release all slots of one semaphore,
    /// also those of other processes, use [`force_release_all`](crate::SemaphoreExt::force_release_all).
    ///
    /// [`is_held`](SlotGuard::is_held) of the guards returns false from then on; [`on_lost`](SlotGuard::on_lost) callbacks
    /// are not called. Guards that are acquired later are not affected.
    ///
    /// Lost guards are not counted, except one whose slot was released by force since its last renewal.
    ///
    /// Waits for a connection of the pool as long as the pool's time-out allows. Slots that can't be released then, because of an
    /// error or because another session has locked their rows, are not counted: they are released in the background, or are
    /// free when their leases end.
    #[allow(
        clippy::must_use_candidate,
        reason = "a shutdown need not know the count"
    )]
    #[doc(alias("release_all", "shutdown", "unlock_all"))]
    pub fn release_guards(&self) -> usize {
        C::block_on(self.0.shared().release_guards())
    }
}

impl<C: R2D2Connection + Send + 'static> Clone for SlotRenewer<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C: R2D2Connection + Send + 'static> std::fmt::Debug for SlotRenewer<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlotRenewer")
            .field("stop", &self.0.stop())
            .finish_non_exhaustive()
    }
}
