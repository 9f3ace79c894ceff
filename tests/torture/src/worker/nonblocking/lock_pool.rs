//! The tasks with a lock pool: they wait without a connection.

use torture_history::{Outcome, Task, WaitLimit};

use super::sections::{Counting, Visiting};
use super::tasks::{Plan, lock_request};
use crate::async_pools::AsyncLocks;
use crate::store::Store;
use crate::worker::context::WorkerContext;
use crate::worker::errors::Failure;
use crate::worker::locks::done_or_refused;
use crate::worker::operation::Operation;
use crate::worker::requests::{held_by_transactions, may_be_several, wait};

/// The connections of the pool. A lock pool leaves one of them to others.
pub(super) const CONNECTIONS: u32 = 4;

/// How many connections a lock pool may borrow at the same time.
const BORROWED: u32 = CONNECTIONS - 1;

/// Does the task.
pub(super) async fn attempt<C: Store>(
    context: &WorkerContext<C>,
    locks: &dyn AsyncLocks<C::Async>,
    operation: &Operation,
    plan: &Plan,
) -> Result<Outcome, Failure> {
    // Each request that makes an attempt has a connection.
    if locks.waiting() > usize::try_from(BORROWED)? {
        operation.queued()?;
    }
    match &plan.task {
        Task::Lock(locking) => {
            let lock = lock_request(operation, plan, locking);
            let counting = Counting {
                operation,
                plan,
                locking,
            };
            locks.with_object_lock(lock, &counting).await?;
        }
        Task::Slot {
            permits,
            wait: wait_limit,
        } => {
            let semaphore = held_by_transactions(context);
            let visiting = Visiting { operation, plan };
            if may_be_several(context, *permits) {
                let wait = wait(*wait_limit);
                locks
                    .with_slots(&semaphore, *permits, wait, &visiting)
                    .await?;
            } else if *wait_limit == WaitLimit::No {
                locks.try_with_slot(&semaphore, &visiting).await?;
            } else {
                let wait = wait(*wait_limit);
                locks.with_slot(&semaphore, wait, &visiting).await?;
            }
        }
        task => unreachable!("{task:?} is not a task for lock pools"),
    }
    Ok(done_or_refused(operation))
}
