//! Acquires slots, for a lease or for one transaction.

use uuid::Uuid;

use crate::acts::acquisition::{Hold, Lease};
use crate::acts::cancel_guard::CancelGuard;
use crate::acts::events::SlotRequest;
use crate::acts::pace::Pace;
use crate::acts::slot_attempts::{NO_WAIT, acquire, begin_with_slot};
use crate::acts::slot_queue::{NotifyOnDrop, poll_until, wait_for_turn};
use crate::acts::transaction;
use crate::acts::work::Work;
use crate::engine::{Engine, HasEngine};
use crate::link::depth;
use crate::rt::caught;
use crate::{Error, LeaseOptions, Semaphore, Slot, Wait};

/// Leases a slot to this token without waiting; `None` when none is free. After an error it may have been granted.
pub(crate) async fn try_acquire(
    engine: &mut dyn Engine,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
    token: Uuid,
) -> Result<Option<Slot>, Error> {
    let request = SlotRequest::new(semaphore);
    let outcome = match wait_for_turn(engine, semaphore).await {
        Ok(_turn) => acquire(engine, semaphore, lease, token, NO_WAIT).await,
        Err(error) => Err(error),
    };
    request.record(outcome.as_ref().map(Option::as_ref), |it| Some(it.number));
    outcome
}

pub(crate) async fn acquire_timeout(
    engine: &mut dyn Engine,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
    wait: Wait,
) -> Result<Slot, Error> {
    let request = SlotRequest::new(semaphore);
    let pace = Some(Pace::default());
    let outcome = poll_until(engine, semaphore, wait, pace, Lease(lease)).await;
    request.record(outcome.as_ref().map(Some), |slot| Some(slot.number));
    outcome
}

pub(crate) async fn try_with_slot<C, T, E, F>(
    conn: &mut C,
    semaphore: &Semaphore,
    work: F,
) -> Result<Option<T>, E>
where
    C: HasEngine,
    for<'r> F: Work<&'r mut C, Result<T, E>>,
    E: From<Error>,
{
    let request = SlotRequest::new(semaphore);
    let outcome = try_begin(&mut *C::engine(conn)?, semaphore).await;
    request.record(outcome.as_ref().map(Option::as_ref), |()| None);
    match outcome? {
        Some(()) => finish_with_slot(conn, semaphore, work).await.map(Some),
        None => Ok(None),
    }
}

async fn try_begin(engine: &mut dyn Engine, semaphore: &Semaphore) -> Result<Option<()>, Error> {
    let _turn = wait_for_turn(engine, semaphore).await?;
    begin_with_slot(engine, semaphore, NO_WAIT).await
}

pub(crate) async fn with_slot<C, T, E, F>(
    conn: &mut C,
    semaphore: &Semaphore,
    wait: Wait,
    work: F,
) -> Result<T, E>
where
    C: HasEngine,
    for<'r> F: Work<&'r mut C, Result<T, E>>,
    E: From<Error>,
{
    let request = SlotRequest::new(semaphore);
    let outcome = poll_until(&mut *C::engine(conn)?, semaphore, wait, None, Hold).await;
    request.record(outcome.as_ref().map(Some), |()| None);
    outcome?;
    finish_with_slot(conn, semaphore, work).await
}

async fn finish_with_slot<C, T, E, F>(conn: &mut C, semaphore: &Semaphore, work: F) -> Result<T, E>
where
    C: HasEngine,
    for<'r> F: Work<&'r mut C, Result<T, E>>,
    E: From<Error>,
{
    let outermost = depth::depth(C::engine(conn)?.status())? == 1;
    let _notify = outermost.then(|| NotifyOnDrop::new(semaphore));
    // Dropped before `_notify`: the slot is free when others are notified.
    let mut guard = CancelGuard::after_begin(conn)?;
    let outcome = caught(transaction::commit_or_rollback(&mut *guard, work, || ())).await;
    guard.finish_with(outcome)
}
