//! [`Shutdown`], for blocking connections.

use std::sync::Arc;
use std::time::Duration;

use diesel::r2d2::R2D2Connection;

use super::{Registered, Registry, Unfinished};
use crate::lender::blocking::R2d2Pool;
use crate::poll::poll_once;
use crate::semaphore::renewer::weak::WeakRenewer;
use crate::timer::thread::ThreadTimer;
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
/// let left = shutdown.shut_down(Duration::from_secs(8)); // less than the time after which the process is killed
/// if !left.is_empty() {
///     eprintln!("cut off: {left:?}");
/// }
/// # assert!(left.is_empty(), "cut off: {left:?}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[doc(alias("SIGTERM", "graceful", "drain", "exit"))]
pub struct Shutdown(Arc<Registry<dyn Renewer>>);

/// A renewer, whatever the type of its connections.
trait Renewer: Registered {
    fn cut(&self, timeout: Duration) -> Vec<Slot>;
}

impl<C: SemaphoreExt + R2D2Connection + Send + 'static> Renewer for WeakRenewer<R2d2Pool<C>> {
    fn cut(&self, timeout: Duration) -> Vec<Slot> {
        C::block_on(self.cut_all(timeout))
    }
}

impl Shutdown {
    /// Creates a shutdown whose token is not stopped.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the token of the process. [`shut_down`](Self::shut_down) stops it. A request has a child of it:
    /// [`StopToken::child`].
    pub fn stop_token(&self) -> &StopToken {
        self.0.stop_token()
    }

    /// Registers `renewer` and its clones: [`shut_down`](Self::shut_down) waits for their guards, and releases them. Returns a
    /// handle whose waits and attempts end when the process is to end: use it in place of `renewer`.
    /// Does not keep the renewer alive.
    #[must_use]
    pub fn add_renewer<C: SemaphoreExt + R2D2Connection + Send + 'static>(
        &self,
        renewer: &SlotRenewer<C>,
    ) -> SlotRenewer<C> {
        self.0.add_renewer(Arc::new(renewer.downgrade()));
        renewer.stopped_by(self.stop_token())
    }

    /// Registers `locks` and its clones: [`shut_down`](Self::shut_down) waits for their transactions. Returns a handle whose waits
    /// end when the process is to end: use it, and handles for requests made of it, in place of `locks`.
    #[must_use]
    pub fn add_lock_pool<C: ObjectLockExt + R2D2Connection + 'static>(
        &self,
        locks: &LockPool<C>,
    ) -> LockPool<C> {
        self.0.add_transactions(locks.activity());
        locks.stopped_by(self.stop_token())
    }

    /// Stops the token, waits at most for `limit` until all calls, guards and transactions of the renewers and lock
    /// pools have ended, and then releases the slots that are still held, so that other nodes need not wait until the
    /// leases end. Returns what had not ended; it is logged by `tracing` too.
    ///
    /// Waits for slots and locks end with [`Error::Stopped`](crate::Error::Stopped), within 50 ms and the time of one attempt
    /// if one is running (for a leased slot on SQLite up to 5 s, while another connection writes). Closures end by themselves,
    /// when they see that [`ActiveSlot::is_active`](crate::ActiveSlot::is_active) is false or that the token is stopped. Slots
    /// and locks that are acquired with other handles than those returned by this value are waited for, but not refused: stop
    /// accepting requests before. Transactions on connections that the application borrows by itself are not waited for.
    ///
    /// The release of what is left waits for a connection of each pool up to the deadline, at least 0.5 s, one pool after
    /// the other. It does not wait for slots that other sessions have locked, but a thread can't give up a statement that
    /// the database does not answer: set the driver's limits for that. The release of a slot that fails is retried for a
    /// minute at most, while the process lives. A call of `run_as_leader` returns shortly after its closure: join its thread
    /// before `main` returns.
    ///
    /// May be called several times: each call waits again.
    #[doc(alias("SIGTERM", "graceful", "drain"))]
    pub fn shut_down(&self, limit: Duration) -> Unfinished {
        let ending = self.0.stop(limit);
        let mut left = poll_once(ending.await_idle::<ThreadTimer>());
        for renewer in &ending.renewers {
            left.slots.extend(renewer.cut(ending.time_to_release()));
        }
        ending.record(&left);
        left
    }
}

impl std::fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shutdown")
            .field("stop", self.stop_token())
            .finish_non_exhaustive()
    }
}
