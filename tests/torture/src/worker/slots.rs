//! Slots that are held by a transaction.

use torture_history::{Outcome, Waiting, workload_spec};

use super::WorkerContext;
use super::errors::{Failure, classify_result};
use super::operation::Operation;
use super::requests::{semaphore, wait};
use super::workload::Workload;
use crate::store::Store;

/// Notes its visit while it holds a slot.
pub(crate) fn visit<C: Store>(
    context: &WorkerContext<C>,
    operation: &Operation,
    workload: &mut Workload,
    waiting: Waiting,
) -> Result<Outcome, Failure> {
    let gate = workload_spec::HELD_BY_TRANSACTIONS;
    let semaphore = semaphore(context, gate.name);
    let mut conn = context.pool.get().map_err(diesel_locks::Error::from)?;
    let conn = &mut *conn;
    let mut section = |conn: &mut C| -> Result<(), Failure> {
        operation.entered(None)?;
        // Long enough for all permits to be in use at times.
        workload.pause(15);
        conn.insert_visit(operation.op, gate.name)?;
        operation.leaves();
        Ok(())
    };
    let result = if waiting == Waiting::No {
        conn.try_with_slot(&semaphore, section)
            .map(|done| done.is_some())
    } else {
        conn.with_slot(&semaphore, wait(waiting), &mut section)
            .map(|()| true)
    };
    Ok(if classify_result(conn, result)? {
        Outcome::Done
    } else {
        Outcome::Refused
    })
}
