//! The tasks on an asynchronous connection. They leave the rows that those of blocking connections leave.

use std::time::Duration;

use diesel_async::{SimpleAsyncConnection, TransactionManager};
use diesel_locks::prelude::*;
use tokio::time::sleep;
use torture_history::{Client, ErrorKind, Locking, Outcome, Task, WaitLimit, workload_spec};

use super::sections::{Counting, Visiting};
use super::ticks;
use crate::async_pools::AsyncConnections;
use crate::async_store::{AsyncStore, BoxFuture};
use crate::sabotage::Sabotage;
use crate::store::Store;
use crate::worker::context::WorkerContext;
use crate::worker::errors::{
    Failure, FailureExt, Fenced, IntentionalRollback, classify_async_result,
};
use crate::worker::leases;
use crate::worker::locks::{self, done_or_refused};
use crate::worker::operation::Operation;
use crate::worker::requests::{held_by_transactions, may_be_several, semaphore, wait};
use crate::worker::retry::retry_options;
use crate::worker::workload::Workload;

/// What an operation does, with what is left to chance.
pub(super) struct Plan {
    pub(super) task: Task,
    /// Whether its object lock includes one that no other operation takes.
    pub(super) has_own_lock: bool,
    /// Each pause.
    pub(super) pause: Duration,
    rolls_back: bool,
}

impl Plan {
    pub(super) fn draw(workload: &mut Workload, client: Client, task: Task) -> Self {
        Self {
            task,
            // Requests of a lock pool for the same objects, and no others, wait in one queue.
            has_own_lock: !client.is_lock_pool() || workload.percent(25),
            pause: workload.time(5),
            rolls_back: workload.percent(20),
        }
    }
}

/// The lock that no other operation takes.
pub(super) fn own_lock(operation: &Operation) -> ObjectId {
    ObjectId::new("Dropped", operation.op.0)
}

/// The locks on the counters, and the operation's own.
pub(super) fn lock_request(operation: &Operation, plan: &Plan, locking: &Locking) -> LockRequest {
    let own = plan.has_own_lock.then(|| own_lock(operation));
    locks::request(locking, own)
}

/// Does the task.
pub(super) fn attempt<'a, C: Store>(
    context: &'a WorkerContext<C>,
    connections: &'a dyn AsyncConnections<C::Async>,
    conn: &'a mut C::Async,
    operation: &'a Operation,
    plan: &'a Plan,
) -> BoxFuture<'a, Result<Outcome, Failure>> {
    match &plan.task {
        Task::Lock(locking) => {
            let lock = lock_request(operation, plan, locking);
            let counting = Counting {
                operation,
                plan,
                locking,
            };
            if context.job.sabotage == Some(Sabotage::NoRollbackOnDrop) {
                return in_diesel_async_transaction::<C>(conn, counting, lock);
            }
            count_up(conn, counting, lock)
        }
        Task::Slot { permits, wait } => {
            let semaphore = held_by_transactions(context);
            let several = may_be_several(context, *permits).then_some(*permits);
            use_slot(conn, operation, plan, (semaphore, several), *wait)
        }
        Task::Pass { sequence } => issue(conn, operation, plan, *sequence),
        Task::Lease {
            semaphore: name,
            permits,
            lease_ms,
            wait,
            ..
        } => {
            let leased = Leased {
                semaphore: semaphore(context, name),
                lease: leases::lease_of(context, *lease_ms, *permits),
                name,
            };
            lease(context, conn, operation, plan, leased, *wait)
        }
        Task::Tick { lease_ms } => {
            let lease = leases::lease(context, *lease_ms);
            ticks::run_one(connections, operation, plan, lease)
        }
        task => unreachable!("{task:?} is not a task for asynchronous connections"),
    }
}

/// Adds one to the counters.
fn count_up<'a, A: AsyncStore>(
    conn: &'a mut A,
    counting: Counting<'a>,
    lock: LockRequest,
) -> BoxFuture<'a, Result<Outcome, Failure>> {
    Box::pin(async move {
        let counting = &counting;
        let section = async move |conn: &mut A| counting.count(conn).await;
        if counting.locking.wait == WaitLimit::No {
            conn.try_with_object_lock(lock, section).await?;
        } else {
            conn.with_object_lock(lock, section).await?;
        }
        Ok(done_or_refused(counting.operation))
    })
}

/// Sabotage: a transaction that stays open when its future is dropped.
fn in_diesel_async_transaction<'a, C: Store>(
    conn: &'a mut C::Async,
    counting: Counting<'a>,
    lock: LockRequest,
) -> BoxFuture<'a, Result<Outcome, Failure>> {
    Box::pin(async move {
        conn.batch_execute(C::BEFORE_TRANSACTION).await?;
        let outcome = transaction(conn, &counting, lock).await;
        conn.batch_execute(C::AFTER_TRANSACTION).await?;
        outcome
    })
}

async fn transaction<A: AsyncStore>(
    conn: &mut A,
    counting: &Counting<'_>,
    lock: LockRequest,
) -> Result<Outcome, Failure> {
    A::TransactionManager::begin_transaction(conn).await?;
    let counted = async {
        conn.lock_object(lock).await?;
        counting.count(conn).await?;
        // Most futures are to be dropped here, outside of a method of diesel-locks, also where the statements before take long.
        sleep(counting.plan.pause * 50).await;
        Ok::<_, Failure>(())
    };
    if let Err(failure) = counted.await {
        A::TransactionManager::rollback_transaction(conn).await?;
        // Locks that are taken in an open transaction are not tried again, and the session's limit ends a wait without one.
        return Err(match failure.error_kind() {
            ErrorKind::Deadlock | ErrorKind::TimedOut => IntentionalRollback.into(),
            _ => failure,
        });
    }
    A::TransactionManager::commit_transaction(conn).await?;
    Ok(Outcome::Done)
}

/// Notes its visit while it holds one slot or several.
fn use_slot<'a, A: AsyncStore>(
    conn: &'a mut A,
    operation: &'a Operation,
    plan: &'a Plan,
    (semaphore, several): (Semaphore, Option<u32>),
    wait_limit: WaitLimit,
) -> BoxFuture<'a, Result<Outcome, Failure>> {
    Box::pin(async move {
        let visiting = &Visiting { operation, plan };
        let section = async move |conn: &mut A| visiting.visit(conn).await;
        if let Some(permits) = several {
            let wait = wait(wait_limit);
            conn.with_slots(&semaphore, permits, wait, section).await?;
        } else if wait_limit == WaitLimit::No {
            conn.try_with_slot(&semaphore, section).await?;
        } else {
            let wait = wait(wait_limit);
            conn.with_slot(&semaphore, wait, section).await?;
        }
        Ok(done_or_refused(operation))
    })
}

/// Draws a number and inserts a pass with it.
fn issue<'a, A: AsyncStore>(
    conn: &'a mut A,
    operation: &'a Operation,
    plan: &'a Plan,
    number: u32,
) -> BoxFuture<'a, Result<Outcome, Failure>> {
    Box::pin(async move {
        let section = async |conn: &mut A| -> Result<(), Failure> {
            let sequence = Sequence::new(workload_spec::SEQUENCES_NAME).for_key(number);
            let drawn = conn.next_number(&sequence).await?;
            operation.entered(None)?;
            operation.drew(drawn)?;
            sleep(plan.pause).await;
            conn.insert_pass(operation.op, number, drawn).await?;
            operation.leaves();
            if plan.rolls_back {
                return Err(IntentionalRollback.into());
            }
            Ok(())
        };
        conn.run_transaction(retry_options(), section).await?;
        Ok(Outcome::Done)
    })
}

/// A slot to be leased.
struct Leased<'a> {
    semaphore: Semaphore,
    lease: LeaseOptions,
    /// The semaphore's.
    name: &'a str,
}

/// Leases a slot, writes at its resource, and gives it back.
fn lease<'a, C: Store>(
    context: &'a WorkerContext<C>,
    conn: &'a mut C::Async,
    operation: &'a Operation,
    plan: &'a Plan,
    leased: Leased<'a>,
    wait_limit: WaitLimit,
) -> BoxFuture<'a, Result<Outcome, Failure>> {
    Box::pin(async move {
        let Leased {
            semaphore,
            lease,
            name,
        } = leased;
        let slot = if wait_limit == WaitLimit::No {
            conn.try_acquire_slot(&semaphore, lease).await?
        } else {
            let wait = wait(wait_limit);
            Some(conn.acquire_slot(&semaphore, lease, wait).await?)
        };
        let Some(slot) = slot else {
            return Ok(Outcome::Refused);
        };
        let held = leases::held(context, &slot);
        operation.entered(Some(held))?;
        sleep(plan.pause).await;
        leases::look(operation, &slot);
        let resource = workload_spec::resource(name, held.number);
        let accepted = write(conn, operation, resource, held.fence).await?;
        let is_held = leases::look(operation, &slot);
        let released = conn.release_slot(&slot).await.map_err(Failure::from);
        let released = classify_async_result(conn, released).await;
        operation.released(is_held, released)?;
        if !accepted {
            return Err(Fenced.into());
        }
        Ok(Outcome::Done)
    })
}

/// Writes at the slot's resource, which refuses a fence that is smaller than one it has seen.
pub(super) fn write<'a, A: AsyncStore>(
    conn: &'a mut A,
    operation: &'a Operation,
    resource: u32,
    fence: i64,
) -> BoxFuture<'a, Result<bool, Failure>> {
    Box::pin(async move {
        let section = async |conn: &mut A| -> Result<bool, Failure> {
            let written = conn.write_resource(operation.op, resource, fence).await;
            Ok(written?)
        };
        conn.run_transaction(retry_options(), section).await
    })
}
