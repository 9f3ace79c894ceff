//! Object locks around a counter that is read and written.

use std::time::Duration;

use anyhow::ensure;
use diesel::QueryResult;
use diesel_locks::Retention;
use diesel_locks::prelude::*;
use torture_history::{Client, Locking, Outcome, WaitLimit, workload_spec};

use super::context::WorkerContext;
use super::errors::{Failure, classify_in_lock_pool, classify_result};
use super::operation::Operation;
use super::requests::wait;
use super::workload::Workload;
use crate::sabotage::Sabotage;
use crate::store::Store;

/// The longest pause of an operation that holds a shared lock, in milliseconds: another is to hold it at the same time.
const READING_MS: u64 = 20;

/// The locks on the counters, and on another object.
pub(super) fn request(locking: &Locking, other: Option<ObjectId>) -> LockRequest {
    let id = |counter| ObjectId::new("Counter", counter);
    let exclusive = LockRequest::all(locking.counters.iter().map(id).chain(other));
    let shared = locking.shared.iter().map(id).map(LockRequest::shared);
    let retention = if locking.kept {
        Retention::Kept
    } else {
        Retention::Transient
    };
    let requests: Vec<_> = shared.chain([exclusive]).collect();
    LockRequest::from(requests)
        .retention(retention)
        .wait(wait(locking.wait))
}

/// An error if counters have changed while their locks were shared.
pub(super) fn ensure_unchanged(
    locking: &Locking,
    before: &[i64],
    after: &[i64],
) -> Result<(), Failure> {
    let shared = &locking.shared;
    ensure!(
        before == after,
        "the counters {shared:?} changed from {before:?} to {after:?} while their locks were shared"
    );
    Ok(())
}

/// Takes a lock that was held before, and is free.
pub(super) fn is_free<C: Store>(context: &WorkerContext<C>, id: ObjectId) -> Result<(), Failure> {
    let mut conn = context.pool.get().map_err(diesel_locks::Error::from)?;
    let limit = Duration::from_millis(workload_spec::FREE_WITHIN_MS);
    let lock = LockRequest::new(id).wait(Wait::AtMost(limit));
    let taken = conn.with_object_lock(lock, |_| Ok(()));
    classify_result(&mut *conn, taken)
}

/// Adds one to the counters, by reading and writing them, and reads the shared ones.
pub(crate) fn count_up<C: Store>(
    context: &WorkerContext<C>,
    client: Client,
    operation: &Operation,
    workload: &mut Workload,
    locking: &Locking,
) -> Result<Outcome, Failure> {
    let Locking {
        counters, shared, ..
    } = locking;
    let read_all = |conn: &mut C, counters: &[u32]| -> QueryResult<Vec<i64>> {
        counters.iter().map(|&id| conn.read_counter(id)).collect()
    };
    let mut section = |conn: &mut C, read: Option<Vec<i64>>| -> Result<(), Failure> {
        operation.entered(None)?;
        let before = read_all(conn, shared)?;
        for (index, &counter) in counters.iter().enumerate() {
            let n = match &read {
                Some(read) => read[index],
                None => conn.read_counter(counter)?,
            };
            workload.pause(3);
            conn.write_counter(operation.op, counter, n + 1)?;
        }
        if !shared.is_empty() {
            workload.pause(READING_MS);
            ensure_unchanged(locking, &before, &read_all(conn, shared)?)?;
            conn.insert_step(operation.op, workload_spec::STEP_READ)?;
        }
        operation.leaves();
        Ok(())
    };
    let lock = request(locking, None);
    if client == Client::R2d2LockPool {
        let locked = context
            .locks
            .with_object_lock(lock, |conn| section(conn, None));
        locked.map_err(classify_in_lock_pool)?;
        return Ok(done_or_refused(operation));
    }
    let mut conn = context.pool.get().map_err(diesel_locks::Error::from)?;
    operation.connected()?;
    let conn = &mut *conn;
    let result = match context.job.sabotage {
        // Each statement by itself: SQLite would not let two transactions do that. One that finds a change would be there in part.
        Some(Sabotage::NoLock) if shared.is_empty() || counters.is_empty() => section(conn, None),
        Some(Sabotage::NoSharedLock) if counters.is_empty() => section(conn, None),
        Some(Sabotage::StaleRead) => {
            let read = read_all(conn, counters)?;
            conn.with_object_lock(lock, |conn| section(conn, Some(read)))
        }
        _ if locking.wait == WaitLimit::No => conn
            .try_with_object_lock(lock, |conn| section(conn, None))
            .map(|done| done.unwrap_or(())),
        _ => conn.with_object_lock(lock, |conn| section(conn, None)),
    };
    classify_result(conn, result)?;
    Ok(done_or_refused(operation))
}

/// The outcome of an operation without an error.
pub(super) fn done_or_refused(operation: &Operation) -> Outcome {
    if operation.held_until().is_some() {
        Outcome::Done
    } else {
        Outcome::Refused
    }
}
