//! Slots of transactions, waited for without a connection.

use std::sync::atomic::{AtomicUsize, Ordering};

use diesel::r2d2::R2D2Connection;

use super::LockPool;
use crate::poll::blocking;
use crate::pooled::Borrowed;
use crate::semaphore::polling::NotifyOnDrop;
use crate::semaphore::pooled;
use crate::transaction::depth::depth;
use crate::transaction::run::commit_or_rollback;
use crate::{Error, Semaphore, SemaphoreExt, Wait};

impl<C: SemaphoreExt + R2D2Connection + 'static> LockPool<C> {
    /// Begins a transaction that holds a slot with a connection of the pool, calls `f` in it, and commits. Waits without a
    /// connection while no slot is free.
    ///
    /// `f`, the transaction and its errors are as with [`SemaphoreExt::with_slot`] outside a transaction. `f` gets the
    /// connection that holds the slot; a call of this method in `f` takes another connection, and may wait for the slot of
    /// `f` until its time is up.
    ///
    /// `f` is not called for a request that has been stopped. A stop while `f` runs has no effect.
    ///
    /// # Errors
    ///
    /// Those of [`SemaphoreExt::with_slot`], and before `f`:
    ///
    /// - [`Error::LockTimeout`] when the time is up;
    /// - [`Error::Stopped`] within 50 ms of a stop, and the time of one attempt if one is running;
    /// - [`Error::Pool`] when the pool has no connection for an attempt without a wait before it, within its time-out, or
    ///   within the time of `wait` (at least 200 ms) if that is shorter.
    ///
    /// ```
    /// use diesel_locks::LockPool;
    /// use diesel_locks::prelude::*;
    /// use std::time::Duration;
    ///
    /// # mod sqlite { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sqlite/mod.rs")); }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let pool = sqlite::pool(&directory.path().join("app.db").display().to_string())?;
    /// # diesel_locks::migrate(&mut pool.get()?)?;
    /// # let locks = LockPool::new(pool);
    /// /// At most five transactions at a time recompute statistics.
    /// const STATISTICS: Semaphore = Semaphore::from_static("statistics", 5);
    ///
    /// let wait = Wait::AtMost(Duration::from_secs(2));
    /// match locks.with_slot(&STATISTICS, wait, |_conn| Ok::<_, diesel_locks::Error>("recomputed")) {
    ///     Ok(done) => println!("{done}"),
    ///     Err(error) if error.is_busy() => println!("try again later"), // 503
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_slot<T, E, F>(&self, semaphore: &Semaphore, wait: Wait, f: F) -> Result<T, E>
    where
        F: FnOnce(&mut C) -> Result<T, E>,
        E: From<Error>,
    {
        let _active = self.activity().begin();
        // Dropped after the connection, so that the next waiter finds it in the pool.
        let mut notify = None;
        let counted = CountWaiter::new(&self.shared.slot_waiters);
        let connections = &self.shared.connections;
        let conn = pooled::begin(connections, self.stop.as_ref(), semaphore, wait)?;
        drop(counted);
        finish(conn, semaphore, &mut notify, f)
    }

    /// Begins a transaction that holds a slot with a connection of the pool, calls `f` in it, and commits. Returns `None`,
    /// and does not call `f`, when no slot is free.
    ///
    /// Does not wait for a slot, but for a connection of the pool, up to its time-out. Otherwise like
    /// [`SemaphoreExt::try_with_slot`] outside a transaction.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] when the pool has no connection within its time-out; [`Error::Stopped`] after a stop, as in
    /// [`with_slot`](Self::with_slot); those of [`SemaphoreExt::try_with_slot`].
    pub fn try_with_slot<T, E, F>(&self, semaphore: &Semaphore, f: F) -> Result<Option<T>, E>
    where
        F: FnOnce(&mut C) -> Result<T, E>,
        E: From<Error>,
    {
        let _active = self.activity().begin();
        let mut notify = None;
        let connections = &self.shared.connections;
        let Some(conn) = pooled::try_begin(connections, self.stop.as_ref(), semaphore)? else {
            return Ok(None);
        };
        finish(conn, semaphore, &mut notify, f).map(Some)
    }
}

/// Calls `f` in the transaction, or savepoint, that holds a slot, ends it, and returns the connection to the pool. `notify`
/// is dropped afterwards.
fn finish<'a, C, T, E, F>(
    mut conn: Borrowed<C>,
    semaphore: &'a Semaphore,
    notify: &mut Option<NotifyOnDrop<'a>>,
    f: F,
) -> Result<T, E>
where
    C: SemaphoreExt + R2D2Connection + 'static,
    F: FnOnce(&mut C) -> Result<T, E>,
    E: From<Error>,
{
    if depth(&mut *conn)? == 1 {
        *notify = Some(NotifyOnDrop::new(semaphore));
    }
    C::block_on(commit_or_rollback(&mut *conn, blocking(&mut Some(f))))
}

/// A request that waits for a slot, until it is dropped.
struct CountWaiter<'a>(&'a AtomicUsize);

impl<'a> CountWaiter<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for CountWaiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
