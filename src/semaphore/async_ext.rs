//! The trait `AsyncSemaphoreExt`: the methods for semaphores on a connection of diesel-async.

use std::borrow::Borrow;
use std::time::Duration;

use crate::cancel::unless_dropped;
use crate::engine::HasAsyncEngine;
use crate::poll::Work;
use crate::semaphore::{acquire, administration, holding};
use crate::{Error, LeaseOptions, LeaseState, Semaphore, Slot, Wait};

/// The methods of [`SemaphoreExt`](crate::SemaphoreExt) on connections of diesel-async.
///
/// Import it with `use diesel_locks::prelude::*`. What the methods do, when they wait, what they return and their errors are
/// those of the blocking methods of the same names. Each returns a future that is `Send`; closures are `async`. A wait blocks
/// the task and not its thread, and waits in the same queue as the blocking waiters of the process. A future may be dropped
/// at every `.await`: see [Dropped futures](crate::operation::dropped_futures).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// use diesel::prelude::*;
/// use diesel_async::AsyncConnection;
/// use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
/// use diesel_locks::prelude::*;
///
/// const COLLATE: Semaphore = Semaphore::from_static("collate", 10);
///
/// let mut conn = SyncConnectionWrapper::<SqliteConnection>::establish(":memory:").await?;
/// diesel_locks::migrate_async(&mut conn).await?;
/// let lease = LeaseOptions::new(Duration::from_secs(30));
/// if let Some(slot) = conn.try_acquire_slot(&COLLATE, lease).await? {
///     // .. collate the logs
///     conn.release_slot(slot).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`diesel-locks` has no asynchronous engine for `{Self}`",
    label = "not `AsyncPgConnection`, `AsyncMysqlConnection` or `SyncConnectionWrapper<SqliteConnection>`, or the engine's \
             feature is off",
    note = "pass `&mut *conn` for a pooled connection",
    note = "enable the engine's feature of `diesel-locks`: `async-postgres`, `async-mysql` or `async-sqlite`"
)]
#[doc(alias("concurrency limit", "lease", "tokio"))]
pub trait AsyncSemaphoreExt: HasAsyncEngine {
    /// Acquires a free slot for a lease, or returns `None`. Behaves as
    /// [`SemaphoreExt::try_acquire_slot`](crate::SemaphoreExt::try_acquire_slot).
    ///
    /// If the future is dropped, a slot that it may have acquired is released. In rare cases, if a statement was running, the
    /// slot stays held until its lease ends: see [Dropped futures](crate::operation::dropped_futures#outcomes).
    ///
    /// # Errors
    ///
    /// As the blocking method.
    fn try_acquire_slot<'c>(
        &'c mut self,
        semaphore: &'c Semaphore,
        lease: LeaseOptions,
    ) -> impl Future<Output = Result<Option<Slot>, Error>> + Send + 'c {
        async move { acquire::try_acquire(self, semaphore, &lease).await }
    }

    /// Waits for a free slot, and acquires it for a lease. Behaves as
    /// [`SemaphoreExt::acquire_slot`](crate::SemaphoreExt::acquire_slot).
    ///
    /// If the future is dropped, a slot that it may have acquired is released. In rare cases, if a statement was running, the
    /// slot stays held until its lease ends: see [Dropped futures](crate::operation::dropped_futures#outcomes).
    ///
    /// # Errors
    ///
    /// As the blocking method.
    fn acquire_slot<'c>(
        &'c mut self,
        semaphore: &'c Semaphore,
        lease: LeaseOptions,
        wait: Wait,
    ) -> impl Future<Output = Result<Slot, Error>> + Send + 'c {
        async move { acquire::acquire_timeout(self, semaphore, &lease, wait).await }
    }

    /// Renews the lease of a slot: it now expires `duration` after this call. Behaves as
    /// [`SemaphoreExt::renew_slot`](crate::SemaphoreExt::renew_slot).
    ///
    /// # Errors
    ///
    /// As the blocking method.
    fn renew_slot<'c>(
        &'c mut self,
        slot: &'c mut Slot,
        duration: Duration,
    ) -> impl Future<Output = Result<LeaseState, Error>> + Send + 'c {
        async move { unless_dropped!(self, |conn| holding::renew(conn, slot, duration)) }
    }

    /// Releases a slot. Behaves as
    /// [`SemaphoreExt::release_slot`](crate::SemaphoreExt::release_slot).
    ///
    /// # Errors
    ///
    /// As the blocking method.
    fn release_slot<'c, S>(
        &'c mut self,
        slot: S,
    ) -> impl Future<Output = Result<LeaseState, Error>> + Send + 'c
    where
        S: Borrow<Slot> + Send + Sync + 'c,
    {
        async move {
            let slot = slot.borrow();
            unless_dropped!(self, |conn| holding::release(conn, slot))
        }
    }

    /// Releases all leased slots of a semaphore, whatever their tokens. Slots of transactions are not affected. Behaves as
    /// [`SemaphoreExt::force_release_all`](crate::SemaphoreExt::force_release_all).
    ///
    /// # Errors
    ///
    /// As the blocking method.
    fn force_release_all<'c, N>(
        &'c mut self,
        semaphore: N,
    ) -> impl Future<Output = Result<usize, Error>> + Send + 'c
    where
        N: AsRef<str> + Send + Sync + 'c,
    {
        async move {
            let name = semaphore.as_ref();
            unless_dropped!(self, |conn| administration::force_release_all(conn, name))
        }
    }

    /// Checks that the slot is still held, and keeps it from being granted to another holder until the open transaction
    /// ends. Behaves as
    /// [`SemaphoreExt::pin_slot`](crate::SemaphoreExt::pin_slot).
    ///
    /// # Errors
    ///
    /// As the blocking method.
    fn pin_slot<'c>(
        &'c mut self,
        slot: &'c Slot,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'c {
        async move { unless_dropped!(self, |conn| holding::pin(conn, slot)) }
    }

    /// Runs `f` in a transaction that holds a slot, or returns `None` without running it. Behaves as
    /// [`SemaphoreExt::try_with_slot`](crate::SemaphoreExt::try_with_slot).
    ///
    /// # Errors
    ///
    /// As the blocking method.
    fn try_with_slot<'c, 'f, T, E, F>(
        &'c mut self,
        semaphore: &'c Semaphore,
        f: F,
    ) -> impl Future<Output = Result<Option<T>, E>> + Send + 'c
    where
        for<'r> F: AsyncFnOnce(&'r mut Self) -> Result<T, E>
            + Work<&'r mut Self, Result<T, E>, Future: Send>
            + Send
            + 'f,
        T: Send + 'f,
        E: From<Error> + Send + 'f,
        'f: 'c,
    {
        Self::droppable(async move { acquire::try_with_slot(self, semaphore, f).await })
    }

    /// Waits for a free slot, and runs `f` in a transaction that holds it. Behaves as
    /// [`SemaphoreExt::with_slot`](crate::SemaphoreExt::with_slot).
    ///
    /// # Errors
    ///
    /// As the blocking method.
    fn with_slot<'c, 'f, T, E, F>(
        &'c mut self,
        semaphore: &'c Semaphore,
        wait: Wait,
        f: F,
    ) -> impl Future<Output = Result<T, E>> + Send + 'c
    where
        for<'r> F: AsyncFnOnce(&'r mut Self) -> Result<T, E>
            + Work<&'r mut Self, Result<T, E>, Future: Send>
            + Send
            + 'f,
        T: Send + 'f,
        E: From<Error> + Send + 'f,
        'f: 'c,
    {
        Self::droppable(async move { acquire::with_slot(self, semaphore, wait, f).await })
    }

    /// Creates the slots of semaphores. Behaves as
    /// [`SemaphoreExt::register_semaphores`](crate::SemaphoreExt::register_semaphores).
    ///
    /// # Errors
    ///
    /// As the blocking method.
    fn register_semaphores<'c, S>(
        &'c mut self,
        semaphores: impl IntoIterator<Item = S>,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'c
    where
        S: Borrow<Semaphore> + Send + Sync + 'c,
    {
        let semaphores: Vec<S> = semaphores.into_iter().collect();
        async move { unless_dropped!(self, |conn| administration::register(conn, &semaphores)) }
    }

    /// Removes slots that are free and were last leased more than this time ago. A slot of a transaction does not count as a
    /// lease. Behaves as
    /// [`SemaphoreExt::purge_slots`](crate::SemaphoreExt::purge_slots).
    ///
    /// # Errors
    ///
    /// As the blocking method.
    fn purge_slots<'c>(
        &'c mut self,
        unused_for: Duration,
    ) -> impl Future<Output = Result<usize, Error>> + Send + 'c {
        async move { unless_dropped!(self, |conn| administration::purge(conn, unused_for)) }
    }

    /// Raises all fences, after a fail-over or a restored backup that has lost grants. Behaves as
    /// [`SemaphoreExt::raise_fences`](crate::SemaphoreExt::raise_fences).
    ///
    /// # Errors
    ///
    /// As the blocking method.
    fn raise_fences<'c>(
        &'c mut self,
        by: Duration,
    ) -> impl Future<Output = Result<i64, Error>> + Send + 'c {
        async move { unless_dropped!(self, |conn| administration::raise_fences(conn, by)) }
    }
}

#[diagnostic::do_not_recommend]
impl<C: HasAsyncEngine> AsyncSemaphoreExt for C {}
