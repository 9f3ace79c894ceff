//! Acquires slots, for a lease or for one transaction.

use uuid::Uuid;

use crate::cancel::CancelGuard;
use crate::engine::HasEngine;
use crate::poll::{Work, caught};
use crate::semaphore::acquisition::{Hold, Lease};
use crate::semaphore::attempts::{NO_WAIT, acquire_as, begin_with_slot};
use crate::semaphore::events::SlotRequest;
use crate::semaphore::pace::Pace;
use crate::semaphore::polling::{NotifyOnDrop, poll_until, wait_for_turn};
use crate::{Error, LeaseOptions, Semaphore, Slot, Wait, transaction::depth, transaction::run};

/// Leases a slot without waiting; `None` when none is free.
pub(super) async fn try_acquire<C: HasEngine>(
    conn: &mut C,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
) -> Result<Option<Slot>, Error> {
    try_acquire_as(conn, semaphore, lease, Uuid::new_v4()).await
}

/// [`try_acquire`] with this token: after an error the slot may have been granted to it.
pub(super) async fn try_acquire_as<C: HasEngine>(
    conn: &mut C,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
    token: Uuid,
) -> Result<Option<Slot>, Error> {
    let request = SlotRequest::new(semaphore);
    let outcome = match wait_for_turn(conn, semaphore).await {
        Ok(_turn) => acquire_as(conn, semaphore, lease, token, NO_WAIT).await,
        Err(error) => Err(error),
    };
    match &outcome {
        Ok(Some(slot)) => request.record_granted(Some(slot.number)),
        Ok(None) => request.record_refused(),
        Err(error) => request.record_error(error),
    }
    outcome
}

/// Leases a slot within a time limit.
pub(super) async fn acquire_timeout<C: HasEngine>(
    conn: &mut C,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
    wait: Wait,
) -> Result<Slot, Error> {
    let request = SlotRequest::new(semaphore);
    let pace = Some(Pace::default());
    let outcome = poll_until(conn, semaphore, wait, pace, Lease(lease)).await;
    request.record_outcome(outcome)
}

/// Runs `work` in a transaction that holds a slot; returns `None`, without running `work`, when none is free.
pub(super) async fn try_with_slot<C, T, E, F>(
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
    let outcome = match wait_for_turn(conn, semaphore).await {
        Ok(_turn) => begin_with_slot(conn, semaphore, NO_WAIT).await,
        Err(error) => Err(error),
    };
    match &outcome {
        Ok(true) => request.record_granted(None),
        Ok(false) => request.record_refused(),
        Err(error) => request.record_error(error),
    }
    if outcome? {
        finish_with_slot(conn, semaphore, work).await.map(Some)
    } else {
        Ok(None)
    }
}

/// Runs `work` in a transaction that holds a slot, which it acquires within a time limit.
pub(super) async fn with_slot<C, T, E, F>(
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
    let outcome = poll_until(conn, semaphore, wait, None, Hold).await;
    match &outcome {
        Ok(()) => request.record_granted(None),
        Err(error) => request.record_error(error),
    }
    outcome?;
    finish_with_slot(conn, semaphore, work).await
}

/// Runs `work` in the transaction, or savepoint, that holds a slot, and ends it.
async fn finish_with_slot<C, T, E, F>(conn: &mut C, semaphore: &Semaphore, work: F) -> Result<T, E>
where
    C: HasEngine,
    for<'r> F: Work<&'r mut C, Result<T, E>>,
    E: From<Error>,
{
    let outermost = depth::depth(conn)? == 1;
    let _notify = outermost.then(|| NotifyOnDrop::new(semaphore));
    // Dropped before `_notify`: the slot is free when others are notified.
    let mut guard = CancelGuard::after_begin(conn)?;
    let outcome = caught(run::commit_or_rollback(&mut *guard, work)).await;
    guard.finish_with(outcome)
}
