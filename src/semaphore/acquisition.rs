//! What a waiter acquires: a lease of a slot, or a transaction that holds one.

use crate::cancel::CancelGuard;
use crate::engine::HasEngine;
use crate::poll::caught;
use crate::semaphore::attempts::{RetryBudget, acquire, begin_with_slot};
use crate::semaphore::holding;
use crate::semaphore::polling::Unused;
use crate::transaction::depth::depth;
use crate::transaction::run::roll_back_stopped;
use crate::waiting::Waiting;
use crate::{Error, LeaseOptions, Semaphore, Slot};

/// Acquires a slot in one way or the other.
pub(super) trait Acquire<C>: Send {
    type Granted: Send;

    /// Whether what is granted outlives the session.
    #[cfg(feature = "_pool")]
    const LEASES: bool;

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

    #[cfg(feature = "_pool")]
    const LEASES: bool = true;

    async fn attempt(
        &mut self,
        conn: &mut C,
        semaphore: &Semaphore,
        waiting: &Waiting,
        budget: RetryBudget,
    ) -> Result<Option<Slot>, Error> {
        let slot = acquire(conn, semaphore, self.0, budget).await?;
        if let (Some(slot), Err(stopped)) = (&slot, waiting.check_stop()) {
            if let Err(error) = release_unused(conn, slot).await {
                tracing::warn!(semaphore = semaphore.name(), %error, "slot not released: its lease ends");
            }
            return Err(stopped);
        }
        Ok(slot)
    }
}

/// Releases the slot, also if the future is dropped.
async fn release_unused<C: HasEngine>(conn: &mut C, slot: &Slot) -> Result<(), Error> {
    let mut guard = CancelGuard::new(conn)?;
    guard.release_slot_of(&slot.semaphore, slot.token);
    let released = caught(holding::release_unused(&mut *guard, slot)).await;
    guard.finish_with(released)
}

/// Begins a transaction, or a savepoint, that holds a slot.
pub(super) struct Hold;

impl<C: HasEngine> Acquire<C> for Hold {
    type Granted = ();

    #[cfg(feature = "_pool")]
    const LEASES: bool = false;

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
            // On a connection that is marked as broken too: no transaction of it holds the slot.
            let outermost = !depth(conn).is_ok_and(|depth| depth > 1);
            let _unused = outermost.then(|| Unused(semaphore));
            roll_back_stopped(conn).await;
            return Err(stopped);
        }
        Ok(Some(()))
    }
}
