//! Object locks around a counter that is read and written.

use std::time::Duration;

use diesel_locks::Retention;
use diesel_locks::prelude::*;
use torture_history::{Outcome, WaitLimit, workload_spec};

use super::context::WorkerContext;
use super::errors::{Failure, classify_result};
use super::operation::Operation;
use super::requests::wait;
use super::workload::Workload;
use crate::sabotage::Sabotage;
use crate::store::Store;

/// The locks on the counters, and on another object.
pub(super) fn request(
    counters: &[u32],
    other: Option<ObjectId>,
    kept: bool,
    wait_limit: WaitLimit,
) -> LockRequest {
    let ids = counters
        .iter()
        .map(|counter| ObjectId::new("Counter", counter));
    let retention = if kept {
        Retention::Kept
    } else {
        Retention::Transient
    };
    LockRequest::all(ids.chain(other))
        .retention(retention)
        .wait(wait(wait_limit))
}

/// Takes a lock that was held before, and is free.
pub(super) fn is_free<C: Store>(context: &WorkerContext<C>, id: ObjectId) -> Result<(), Failure> {
    let mut conn = context.pool.get().map_err(diesel_locks::Error::from)?;
    let limit = Duration::from_millis(workload_spec::FREE_WITHIN_MS);
    let lock = LockRequest::new(id).wait(Wait::AtMost(limit));
    let taken = conn.with_object_lock(lock, |_| Ok(()));
    classify_result(&mut *conn, taken)
}

/// Adds one to the counters, by reading and writing them.
pub(crate) fn count_up<C: Store>(
    context: &WorkerContext<C>,
    operation: &Operation,
    workload: &mut Workload,
    counters: &[u32],
    kept: bool,
    wait_limit: WaitLimit,
) -> Result<Outcome, Failure> {
    let mut conn = context.pool.get().map_err(diesel_locks::Error::from)?;
    let conn = &mut *conn;
    let mut section = |conn: &mut C, read: Option<Vec<i64>>| -> Result<(), Failure> {
        operation.entered(None)?;
        for (index, &counter) in counters.iter().enumerate() {
            let n = match &read {
                Some(read) => read[index],
                None => conn.read_counter(counter)?,
            };
            workload.pause(3);
            conn.write_counter(operation.op, counter, n + 1)?;
        }
        operation.leaves();
        Ok(())
    };
    let lock = request(counters, None, kept, wait_limit);
    let result = match context.job.sabotage {
        // Each statement by itself: SQLite would not let two transactions do that.
        Some(Sabotage::NoLock) => section(conn, None),
        Some(Sabotage::StaleRead) => {
            let read = counters.iter().map(|&counter| conn.read_counter(counter));
            let read = read.collect::<Result<_, _>>()?;
            conn.with_object_lock(lock, |conn| section(conn, Some(read)))
        }
        _ if wait_limit == WaitLimit::No => conn
            .try_with_object_lock(lock, |conn| section(conn, None))
            .map(|done| done.unwrap_or(())),
        _ => conn.with_object_lock(lock, |conn| section(conn, None)),
    };
    classify_result(conn, result)?;
    Ok(if operation.held_until().is_some() {
        Outcome::Done
    } else {
        Outcome::Refused
    })
}
