//! [`AsyncShutdown`], for the pools of diesel-async.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::{Registered, Registry, Unfinished};
use crate::semaphore::renewer::weak::WeakRenewer;
use crate::timer::task::TaskTimer;
use crate::{AsyncLockPool, AsyncPool, AsyncSlotRenewer, Slot, StopToken};

/// Ends the waits of a process, waits for its closures, and releases its slots, when the process is asked to end (SIGTERM):
/// what `Shutdown` is for blocking connections.
///
/// Feature `bb8` or `deadpool`. Create one when the application starts, and pass each [`AsyncSlotRenewer`] and
/// [`AsyncLockPool`] through it. Call [`shut_down`](Self::shut_down) once the application accepts no more requests, while the
/// runtime still runs. Clones are the same value.
///
/// An application that has blocking pools too has a `Shutdown` for these: stop the tokens of both first, then wait for both.
///
/// ```
/// use diesel_locks::{AsyncLockPool, AsyncShutdown, AsyncSlotRenewer};
/// use std::time::Duration;
///
/// # mod sqlite { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sqlite/asynchronous.rs")); }
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let url = directory.path().join("app.db").display().to_string();
/// # let (renewer_pool, pool) = (sqlite::pool(&url)?, sqlite::pool(&url)?);
/// let shutdown = AsyncShutdown::new();
/// let renewer = shutdown.add_renewer(&AsyncSlotRenewer::new(renewer_pool));
/// let locks = shutdown.add_lock_pool(&AsyncLockPool::new(pool));
/// // The application uses `renewer` and `locks`, and passes `shutdown.stop_token()` to `run_as_leader` and `run_on_timer`.
/// # drop((renewer, locks));
///
/// // On SIGTERM:
/// let left = shutdown.shut_down(Duration::from_secs(8)).await; // less than the time after which the process is killed
/// if !left.is_empty() {
///     eprintln!("cut off: {left:?}");
/// }
/// # assert!(left.is_empty(), "cut off: {left:?}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[doc(alias("SIGTERM", "graceful", "drain", "exit"))]
pub struct AsyncShutdown(Arc<Registry<dyn Renewer>>);

/// A renewer, whatever the type of its connections.
trait Renewer: Registered {
    fn cut(&self, timeout: Duration) -> Pin<Box<dyn Future<Output = Vec<Slot>> + Send + '_>>;
}

impl<P: AsyncPool> Renewer for WeakRenewer<P> {
    fn cut(&self, timeout: Duration) -> Pin<Box<dyn Future<Output = Vec<Slot>> + Send + '_>> {
        Box::pin(self.cut_all(timeout))
    }
}

impl AsyncShutdown {
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
    pub fn add_renewer<P: AsyncPool>(&self, renewer: &AsyncSlotRenewer<P>) -> AsyncSlotRenewer<P> {
        self.0.add_renewer(Arc::new(renewer.downgrade()));
        renewer.stopped_by(self.stop_token())
    }

    /// Registers `locks` and its clones: [`shut_down`](Self::shut_down) waits for their transactions. Returns a handle whose waits
    /// end when the process is to end: use it, and handles for requests made of it, in place of `locks`.
    #[must_use]
    pub fn add_lock_pool<P: AsyncPool>(&self, locks: &AsyncLockPool<P>) -> AsyncLockPool<P> {
        self.0.add_transactions(locks.activity());
        locks.stopped_by(self.stop_token())
    }

    /// Stops the token, waits at most for `limit` until all calls, guards and transactions of the renewers and lock
    /// pools have ended, and then releases the slots that are still held, so that other nodes need not wait until the
    /// leases end. Returns what had not ended; it is logged by `tracing` too.
    ///
    /// Waits for slots and locks end with [`Error::Stopped`](crate::Error::Stopped), at once or after the attempt that is
    /// running. Closures end by themselves, when [`AsyncActiveSlot::ended`](crate::AsyncActiveSlot::ended) is ready or the
    /// token is stopped, or because the application drops their futures. Slots and locks that are acquired with other handles
    /// than those returned by this value are waited for, but not refused: stop accepting requests before. Transactions on
    /// connections that the application borrows by itself are not waited for.
    ///
    /// The release of what is left takes no longer than until the deadline, or 0.5 s, whatever the pools and the database do:
    /// all renewers release at the same time. The release of a slot that fails is retried for a minute at most, while the
    /// process lives. If the future is dropped, the token stays stopped, and guards that it has not released yet stay held: call
    /// the method again.
    ///
    /// May be called several times: each call waits again.
    #[doc(alias("SIGTERM", "graceful", "drain"))]
    pub async fn shut_down(&self, limit: Duration) -> Unfinished {
        let ending = self.0.stop(limit);
        let mut left = ending.await_idle::<TaskTimer>().await;
        let time = ending.time_to_release();
        let cuts = ending.renewers.iter().map(|renewer| renewer.cut(time));
        left.slots = join_all(cuts).await.concat();
        ending.record(&left);
        left
    }
}

impl std::fmt::Debug for AsyncShutdown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AsyncShutdown")
            .field("stop", self.stop_token())
            .finish_non_exhaustive()
    }
}
