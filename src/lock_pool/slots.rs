//! Slots of transactions, waited for without a connection.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::shared::Shared;
use crate::cancel::CancelGuard;
use crate::lender::Lender;
use crate::poll::{Work, caught};
use crate::pooled::Borrowed;
use crate::semaphore::polling::NotifyOnDrop;
use crate::semaphore::pooled;
use crate::stop::StopToken;
use crate::transaction::depth::depth;
use crate::transaction::run::commit_or_rollback;
use crate::{Error, Semaphore, Wait};

/// A connection whose transaction, or savepoint, holds a slot.
pub(super) struct HeldSlot<'a, L: Lender> {
    conn: Borrowed<L>,
    /// Dropped after the connection, so that the next waiter finds it in the pool. `None` in a savepoint.
    _notify: Option<NotifyOnDrop<'a>>,
}

/// Waits for a slot, and begins a transaction that holds it. The caller runs the work, without an await in between.
pub(super) async fn begin<'a, L: Lender>(
    shared: &Shared<L>,
    stop: Option<&StopToken>,
    semaphore: &'a Semaphore,
    wait: Wait,
) -> Result<HeldSlot<'a, L>, Error> {
    let _counted = CountWaiter::new(&shared.slot_waiters);
    let conn = pooled::begin(&shared.connections, stop, semaphore, wait).await?;
    HeldSlot::new(conn, semaphore)
}

/// [`begin`] without waiting; `None` when no slot is free.
pub(super) async fn try_begin<'a, L: Lender>(
    shared: &Shared<L>,
    stop: Option<&StopToken>,
    semaphore: &'a Semaphore,
) -> Result<Option<HeldSlot<'a, L>>, Error> {
    let conn = pooled::try_begin(&shared.connections, stop, semaphore).await?;
    conn.map(|conn| HeldSlot::new(conn, semaphore)).transpose()
}

impl<'a, L: Lender> HeldSlot<'a, L> {
    fn new(mut conn: Borrowed<L>, semaphore: &'a Semaphore) -> Result<Self, Error> {
        let outermost = depth(&mut *conn)? == 1;
        Ok(Self {
            conn,
            _notify: outermost.then(|| NotifyOnDrop::new(semaphore)),
        })
    }

    /// Runs the work in the transaction, and ends it.
    pub(super) async fn run<T, E, F>(&mut self, work: F) -> Result<T, E>
    where
        for<'r> F: Work<&'r mut L::Connection, Result<T, E>>,
        E: From<Error>,
    {
        let mut guard = CancelGuard::after_begin(&mut *self.conn)?;
        let outcome = caught(commit_or_rollback(&mut *guard, work)).await;
        guard.finish_with(outcome)
    }
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
