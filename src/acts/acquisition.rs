//! What a waiter acquires: a lease of a slot, or a transaction that holds one.

use uuid::Uuid;

use crate::acts::cancel_guard::CancelGuard;
use crate::acts::holding;
use crate::acts::slot_attempts::{RetryBudget, acquire, begin_with_slot};
use crate::acts::slot_queue::Unused;
use crate::acts::transaction::roll_back_stopped;
use crate::acts::waiting::Waiting;
use crate::engine::Engine;
use crate::link::depth::depth;
use crate::rt::caught;
use crate::{Error, LeaseOptions, Semaphore, Slot};

pub(crate) trait Acquire: Send {
    type Granted: Send;

    /// Whether what is granted outlives the session.
    #[cfg(feature = "_pool")]
    const LEASES: bool;

    /// Returns `None` when no slot is free. Keeps nothing if the wait was stopped meanwhile.
    fn attempt(
        &mut self,
        engine: &mut dyn Engine,
        semaphore: &Semaphore,
        waiting: &Waiting,
        budget: RetryBudget,
    ) -> impl Future<Output = Result<Option<Self::Granted>, Error>> + Send;
}

pub(crate) struct Lease<'a>(pub(crate) &'a LeaseOptions);

impl Acquire for Lease<'_> {
    type Granted = Slot;

    #[cfg(feature = "_pool")]
    const LEASES: bool = true;

    async fn attempt(
        &mut self,
        engine: &mut dyn Engine,
        semaphore: &Semaphore,
        waiting: &Waiting,
        budget: RetryBudget,
    ) -> Result<Option<Slot>, Error> {
        let slot = acquire(engine, semaphore, self.0, Uuid::new_v4(), budget).await?;
        if let (Some(slot), Err(stopped)) = (&slot, waiting.check_stop()) {
            if let Err(error) = release_unused(engine, slot).await {
                tracing::warn!(semaphore = semaphore.name(), %error, "slot not released: its lease ends");
            }
            return Err(stopped);
        }
        Ok(slot)
    }
}

/// Releases the slot, also if the future is dropped.
async fn release_unused(engine: &mut dyn Engine, slot: &Slot) -> Result<(), Error> {
    let mut guard = CancelGuard::new(engine)?;
    guard.release_slot_of(&slot.semaphore, slot.token);
    let released = caught(holding::release_unused(&mut *guard, slot)).await;
    guard.finish_with(released)
}

pub(crate) struct Hold;

impl Acquire for Hold {
    type Granted = ();

    #[cfg(feature = "_pool")]
    const LEASES: bool = false;

    async fn attempt(
        &mut self,
        engine: &mut dyn Engine,
        semaphore: &Semaphore,
        waiting: &Waiting,
        budget: RetryBudget,
    ) -> Result<Option<()>, Error> {
        if begin_with_slot(engine, semaphore, budget).await?.is_none() {
            return Ok(None);
        }
        if let Err(stopped) = waiting.check_stop() {
            // On a connection that is marked as broken too: no transaction of it holds the slot.
            let outermost = !depth(engine.status()).is_ok_and(|depth| depth > 1);
            let _unused = outermost.then(|| Unused(semaphore));
            roll_back_stopped(engine).await;
            return Err(stopped);
        }
        Ok(Some(()))
    }
}
