//! Slots that are held by a transaction.

use torture_history::{Outcome, WaitLimit, workload_spec};

use super::context::WorkerContext;
use super::errors::{Failure, classify_result};
use super::operation::Operation;
use super::requests::{held_by_transactions, may_be_several, wait};
use super::workload::Workload;
use crate::store::Store;

/// Sets the number of permits of a semaphore, of which other workers hold slots.
pub(crate) fn set_permits<C: Store>(
    context: &WorkerContext<C>,
    permits: u32,
) -> Result<Outcome, Failure> {
    let mut conn = context.pool.get().map_err(diesel_locks::Error::from)?;
    let set = conn.set_permits(workload_spec::LIMITED.name, permits);
    classify_result(&mut *conn, set.map_err(Failure::from))?;
    Ok(Outcome::Done)
}

/// Notes its visit while it holds one slot or two.
pub(crate) fn use_slot<C: Store>(
    context: &WorkerContext<C>,
    operation: &Operation,
    workload: &mut Workload,
    permits: u32,
    wait_limit: WaitLimit,
) -> Result<Outcome, Failure> {
    let gate = workload_spec::HELD_BY_TRANSACTIONS;
    let semaphore = held_by_transactions(context);
    let mut conn = context.pool.get().map_err(diesel_locks::Error::from)?;
    operation.connected()?;
    let conn = &mut *conn;
    let mut section = |conn: &mut C| -> Result<(), Failure> {
        operation.entered(None)?;
        // Long enough for all permits to be in use at times.
        workload.pause(15);
        conn.insert_slot_use(operation.op, gate.name)?;
        operation.leaves();
        Ok(())
    };
    let result = if may_be_several(context, permits) {
        conn.with_slots(&semaphore, permits, wait(wait_limit), &mut section)
            .map(|()| true)
    } else if wait_limit == WaitLimit::No {
        conn.try_with_slot(&semaphore, section)
            .map(|done| done.is_some())
    } else {
        conn.with_slot(&semaphore, wait(wait_limit), &mut section)
            .map(|()| true)
    };
    Ok(if classify_result(conn, result)? {
        Outcome::Done
    } else {
        Outcome::Refused
    })
}
