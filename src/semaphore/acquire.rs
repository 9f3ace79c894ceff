//! Acquires slots, for a lease or for one transaction.

use crate::semaphore::attempts::{NO_WAIT, acquire, begin_with_slot};
use crate::semaphore::backend::SemaphoreBackend;
use crate::semaphore::polling::{OwnConnection, notify_released, poll_until, wait_for_turn};
use crate::{Error, LeaseOptions, Semaphore, Slot, Wait, transaction::depth, transaction::run};

/// Leases a slot without waiting; `None` when none is free.
pub(super) fn try_acquire<C: SemaphoreBackend>(
    conn: &mut C,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
) -> Result<Option<Slot>, Error> {
    let _turn = wait_for_turn(conn, semaphore)?;
    acquire(conn, semaphore, lease, NO_WAIT)
}

/// Leases a slot within a time limit.
pub(super) fn acquire_timeout<C: SemaphoreBackend>(
    conn: &mut C,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
    wait: Wait,
) -> Result<Slot, Error> {
    poll_until(&mut OwnConnection(conn), semaphore, wait, |conn, budget| {
        acquire(&mut *conn.0, semaphore, lease, budget)
    })
}

/// Runs `work` in a transaction that holds a slot; returns `None`, without running `work`, when none is free.
pub(super) fn try_with_slot<C, T, E, F>(
    conn: &mut C,
    semaphore: &Semaphore,
    work: F,
) -> Result<Option<T>, E>
where
    C: SemaphoreBackend,
    F: FnOnce(&mut C) -> Result<T, E>,
    E: From<Error>,
{
    let turn = wait_for_turn(conn, semaphore)?;
    let started = begin_with_slot(conn, semaphore, NO_WAIT)?;
    drop(turn);
    if started {
        finish_with_slot(conn, semaphore, work).map(Some)
    } else {
        Ok(None)
    }
}

/// Runs `work` in a transaction that holds a slot, which it acquires within a time limit.
pub(super) fn with_slot<C, T, E, F>(
    conn: &mut C,
    semaphore: &Semaphore,
    wait: Wait,
    work: F,
) -> Result<T, E>
where
    C: SemaphoreBackend,
    F: FnOnce(&mut C) -> Result<T, E>,
    E: From<Error>,
{
    poll_until(&mut OwnConnection(conn), semaphore, wait, |conn, budget| {
        Ok(begin_with_slot(&mut *conn.0, semaphore, budget)?.then_some(()))
    })?;
    finish_with_slot(conn, semaphore, work)
}

/// Runs `work` in the transaction, or savepoint, that holds a slot, and ends it.
fn finish_with_slot<C, T, E, F>(conn: &mut C, semaphore: &Semaphore, work: F) -> Result<T, E>
where
    C: SemaphoreBackend,
    F: FnOnce(&mut C) -> Result<T, E>,
    E: From<Error>,
{
    let outermost = depth::depth(conn)? == 1;
    let _notify = NotifyOnDrop(outermost.then_some(semaphore));
    run::commit_or_rollback(conn, work)
}

/// Notifies waiters when the transaction that holds a slot has ended, whatever its outcome.
struct NotifyOnDrop<'a>(Option<&'a Semaphore>);

impl Drop for NotifyOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(semaphore) = self.0 {
            notify_released(semaphore.name(), 1, None);
        }
    }
}
