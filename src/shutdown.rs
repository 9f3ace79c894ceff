//! Ends what a process does with locks and slots, within a deadline.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use diesel::r2d2::R2D2Connection;

use crate::activity::{Activity, await_all_idle};
use crate::{LockPool, ObjectLockExt, SemaphoreExt, Slot, SlotRenewer, StopToken};

/// Ends the waits of a process, waits for its closures, and releases its slots, when the process is asked to end (SIGTERM).
///
/// Create one when the application starts, and pass each [`SlotRenewer`] and [`LockPool`] through it. Call
/// [`shut_down`](Self::shut_down) once the application accepts no more requests. Clones are the same value.
///
/// ```
/// use diesel_locks::{LockPool, Shutdown, SlotRenewer};
/// use std::time::Duration;
///
/// # mod sqlite { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sqlite/mod.rs")); }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let url = directory.path().join("app.db").display().to_string();
/// # let (renewer_pool, pool) = (sqlite::pool(&url)?, sqlite::pool(&url)?);
/// let shutdown = Shutdown::new();
/// let renewer = shutdown.add_renewer(&SlotRenewer::new(renewer_pool));
/// let locks = shutdown.add_lock_pool(&LockPool::new(pool));
/// // The application uses `renewer` and `locks`, and passes `shutdown.stop_token()` to `run_as_leader` and `run_on_timer`.
/// # drop((renewer, locks));
///
/// // On SIGTERM:
/// let left = shutdown.shut_down(Duration::from_secs(20));
/// assert!(left.is_empty(), "cut off: {left:?}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[doc(alias("SIGTERM", "graceful", "drain", "exit"))]
pub struct Shutdown(Arc<Inner>);

#[derive(Default)]
struct Inner {
    stop: StopToken,
    transactions: Mutex<Vec<Activity>>,
    renewers: Mutex<Vec<Arc<dyn Renewer>>>,
}

/// A renewer, whatever the type of its connections.
trait Renewer: Send + Sync {
    fn activity(&self) -> &Activity;
    fn cut(&self, timeout: Duration) -> Vec<Slot>;
}

impl<C: SemaphoreExt + R2D2Connection + Send + 'static> Renewer for SlotRenewer<C> {
    fn activity(&self) -> &Activity {
        self.activity()
    }

    fn cut(&self, timeout: Duration) -> Vec<Slot> {
        self.cut_all(timeout)
    }
}

/// What had not ended at the deadline of [`Shutdown::shut_down`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "what was cut off may have written a part of its data"]
pub struct Unfinished {
    /// The slots that were held at the deadline, and were released then. Their closures may still run: they do so beside
    /// the next holders until the process ends.
    pub slots: Vec<Slot>,
    /// The calls and guards of renewers that had not ended: those of `slots`, guards that are lost, waits that no stop
    /// ends, and slots whose release failed and which stay held until their leases end.
    pub guards: usize,
    /// The calls of [`LockPool`] that had not ended. Their transactions end with the process:
    /// the database rolls them back.
    pub transactions: usize,
}

impl Unfinished {
    /// Returns whether everything had ended by itself before the deadline.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.guards == 0 && self.transactions == 0
    }
}

/// The least time that a release at the deadline waits for a connection of the pool.
const SHORTEST_RELEASE: Duration = Duration::from_millis(500);

impl Shutdown {
    /// Creates a shutdown whose token is not stopped.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the token of the process. [`shut_down`](Self::shut_down) stops it. A request has a child of it:
    /// [`StopToken::child`].
    pub fn stop_token(&self) -> &StopToken {
        &self.0.stop
    }

    /// Registers `renewer` and its clones: [`shut_down`](Self::shut_down) waits for their guards, and releases them. Returns a
    /// handle whose waits and attempts end when the process is to end: use it in place of `renewer`.
    #[must_use]
    pub fn add_renewer<C: SemaphoreExt + R2D2Connection + Send + 'static>(
        &self,
        renewer: &SlotRenewer<C>,
    ) -> SlotRenewer<C> {
        let handle = renewer.stopped_by(&self.0.stop);
        let mut renewers = lock(&self.0.renewers);
        if !renewers
            .iter()
            .any(|it| it.activity().is(renewer.activity()))
        {
            renewers.push(Arc::new(renewer.clone()));
        }
        handle
    }

    /// Registers `locks` and its clones: [`shut_down`](Self::shut_down) waits for their transactions. Returns a handle whose waits
    /// end when the process is to end: use it, and handles for requests made of it, in place of `locks`.
    #[must_use]
    pub fn add_lock_pool<C: ObjectLockExt + R2D2Connection + 'static>(
        &self,
        locks: &LockPool<C>,
    ) -> LockPool<C> {
        let mut transactions = lock(&self.0.transactions);
        if !transactions.iter().any(|it| it.is(locks.activity())) {
            transactions.push(locks.activity().clone());
        }
        locks.stopped_by(&self.0.stop)
    }

    /// Stops the token, waits at most for `limit` until all calls, guards and transactions of the renewers and lock
    /// pools have ended, and then releases the slots that are still held, so that other nodes need not wait until the
    /// leases end. Returns what had not ended; it is logged by `tracing` too.
    ///
    /// Waits for slots and locks end at once, with [`Error::Stopped`](crate::Error::Stopped); closures end by themselves,
    /// when they see that [`ActiveSlot::is_active`](crate::ActiveSlot::is_active) is false or that the token is
    /// stopped. Slots and locks that are acquired with other handles than those returned by this value are waited for, but
    /// not refused: stop accepting requests before. Transactions on connections that the application borrows by
    /// itself are not waited for.
    ///
    /// The release of what is left waits for a connection of the pool up to the deadline, at least 0.5 s. A call of
    /// `run_as_leader` returns shortly after its closure: join its thread before `main` returns.
    ///
    /// May be called several times: each call waits again.
    #[doc(alias("SIGTERM", "graceful", "drain"))]
    pub fn shut_down(&self, limit: Duration) -> Unfinished {
        let started = Instant::now();
        let longest = Duration::from_secs(365 * 24 * 3600);
        let end = started + limit.min(longest);
        self.0.stop.stop();
        let mut left = Unfinished::default();
        // Copies: other calls, and closures that register, must not wait for this one.
        let mut all = lock(&self.0.transactions).clone();
        let renewers = lock(&self.0.renewers).clone();
        let lock_pools = all.len();
        all.extend(renewers.iter().map(|it| it.activity().clone()));
        let running = await_all_idle(&all, end);
        left.transactions = running[..lock_pools].iter().sum();
        left.guards = running[lock_pools..].iter().sum();
        for renewer in &renewers {
            let timeout = end.saturating_duration_since(Instant::now());
            left.slots
                .extend(renewer.cut(timeout.max(SHORTEST_RELEASE)));
        }
        if left.is_empty() {
            tracing::info!(waited = ?started.elapsed(), "all calls, guards and transactions have ended");
        } else {
            let Unfinished {
                guards,
                transactions,
                ..
            } = left;
            tracing::warn!(guards, transactions, ?limit, "not ended by the deadline");
            for slot in &left.slots {
                let (semaphore, number) = (slot.semaphore(), slot.number());
                tracing::warn!(semaphore, number, "slot released while its closure runs");
            }
        }
        left
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shutdown")
            .field("stop", &self.0.stop)
            .finish_non_exhaustive()
    }
}
