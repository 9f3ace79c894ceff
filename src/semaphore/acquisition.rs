//! What a waiter acquires: a lease of a slot, or a transaction that holds one.

use crate::engine::HasEngine;
use crate::semaphore::attempts::{RetryBudget, acquire, begin_with_slot};
use crate::semaphore::holding;
use crate::semaphore::polling::notify_released;
use crate::transaction::depth::depth;
use crate::transaction::run::roll_back;
use crate::waiting::Waiting;
use crate::{Error, LeaseOptions, Semaphore, Slot};

/// Acquires a slot in one way or the other.
pub(super) trait Acquire<C>: Send {
    type Granted: Send;

    /// Returns `None` when no slot is free. Keeps nothing if the wait was stopped meanwhile.
    fn attempt(
        &mut self,
        conn: &mut C,
        semaphore: &Semaphore,
        waiting: &Waiting,
        budget: RetryBudget,
    ) -> impl Future<Output = Result<Option<Self::Granted>, Error>> + Send;
}

/// Leases a slot.
pub(super) struct Lease<'a>(pub(super) &'a LeaseOptions);

impl<C: HasEngine> Acquire<C> for Lease<'_> {
    type Granted = Slot;

    async fn attempt(
        &mut self,
        conn: &mut C,
        semaphore: &Semaphore,
        waiting: &Waiting,
        budget: RetryBudget,
    ) -> Result<Option<Slot>, Error> {
        let slot = acquire(conn, semaphore, self.0, budget).await?;
        if let (Some(slot), Err(stopped)) = (&slot, waiting.check_stop()) {
            if let Err(error) = holding::release_unused(conn, slot).await {
                tracing::warn!(semaphore = semaphore.name(), %error, "slot not released: its lease ends");
            }
            return Err(stopped);
        }
        Ok(slot)
    }
}

/// Begins a transaction, or a savepoint, that holds a slot.
pub(super) struct Hold;

impl<C: HasEngine> Acquire<C> for Hold {
    type Granted = ();

    async fn attempt(
        &mut self,
        conn: &mut C,
        semaphore: &Semaphore,
        waiting: &Waiting,
        budget: RetryBudget,
    ) -> Result<Option<()>, Error> {
        if !begin_with_slot(conn, semaphore, budget).await? {
            return Ok(None);
        }
        if let Err(stopped) = waiting.check_stop() {
            roll_back(conn).await;
            if depth(conn)? == 0 {
                notify_released(semaphore.name(), 1, None);
            }
            return Err(stopped);
        }
        Ok(Some(()))
    }
}
