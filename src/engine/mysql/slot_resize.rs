//! Adds and removes slots on MySQL and MariaDB, and raises the floor of all fences, which a session locks meanwhile.

use std::time::Duration;

use diesel::mysql::Mysql;
use diesel::sql_types::{BigInt, Binary, Integer};

use crate::engine::clock::Clock;
use crate::engine::ending::autocommit_retry;
use crate::engine::mysql::execute::{self, MysqlError, end_or_restart};
use crate::engine::mysql::lists::assert_read;
use crate::engine::mysql::sql::{
    self, ANY_JOIN, ANY_JOIN_HINT, AS_AN_UPDATE, LIMIT_HINT, UNLESS_TABLE_LOCKED,
};
use crate::engine::mysql::{MysqlEngine, session};
use crate::engine::operations::SemaphoreBackend;
use crate::engine::slot_queries;
use crate::engine::slots::{BATCH_SIZE, BatchOutcome, RaiseOutcome, slots_to_add, slots_to_delete};
use crate::engine::tables::{FENCES, Named, SLOTS, assert_changed};
use crate::link::On;
use crate::link::raw_sql::statement;
use crate::values::fence;
use crate::{Error, Semaphore};

statement! {
    Mysql;
    /// Locks the row of `diesel_locks_fences`, unless another session has locked the row, its table or the table of
    /// slots.
    LockFenceFloorIfFree {} -> BigInt,
    |self| {
        {UNLESS_TABLE_LOCKED}; "SELECT "; {LIMIT_HINT};
        {AS_AN_UPDATE}; "fence FROM diesel_locks_fences WHERE id = 1 FOR UPDATE SKIP LOCKED";
    }
}

statement! {
    Mysql;
    LockFreeAbove<'a> { name: &'a [u8], above: i32, limit: i64 } -> (Integer, BigInt),
    |self| {
        "SELECT number, fence FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ", Binary = self.name;
        " AND number > ", Integer = &self.above;
        " AND expires_us <= "; {Mysql::NOW};
        " ORDER BY number DESC LIMIT ", BigInt = &self.limit; " FOR UPDATE SKIP LOCKED";
    }
}

statement! {
    Mysql;
    /// Deletes the slots above a number, which this session has locked. By the whole key of each: a DELETE with a range
    /// also locks the next row, which is another semaphore's, and waits for it.
    DeleteLockedAbove<'a> { name: &'a [u8], above: i32 } -> Integer,
    |self| {
        {ANY_JOIN}; "DELETE "; {ANY_JOIN_HINT}; "slot FROM (SELECT name, number FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ",
        Binary = self.name;
        " AND number > ", Integer = &self.above;
        " LIMIT 1000000 FOR UPDATE SKIP LOCKED) AS gone STRAIGHT_JOIN diesel_locks_slots AS slot \
         FORCE INDEX (PRIMARY) ON slot.name = gone.name AND slot.number = gone.number";
    }
}

pub(crate) async fn register(
    conn: &mut impl On<Mysql>,
    semaphore: &Semaphore,
) -> Result<usize, MysqlError> {
    // Serializes sessions that register at the same time.
    let _: Vec<i64> = execute::load(conn, slot_queries::lock_fence_floor()).await?;
    let register = slot_queries::register(Named(semaphore.name()), semaphore.permits_i32());
    execute::execute(conn, register).await
}

pub(crate) async fn add_slots(
    conn: &mut impl On<Mysql>,
    semaphore: &Semaphore,
    block: bool,
) -> Result<BatchOutcome, MysqlError> {
    let (name, permits) = (Named(semaphore.name()), semaphore.permits_i32());
    let floor: Option<i64> = if block {
        execute::get_optional(conn, slot_queries::lock_fence_floor()).await?
    } else {
        execute::get_optional(conn, LockFenceFloorIfFree {}).await?
    };
    let Some(fence) = floor else {
        return Ok(if floor_exists(conn).await? {
            BatchOutcome::Contended
        } else {
            BatchOutcome::NoFenceFloor
        });
    };
    let last = execute::get_optional(conn, slot_queries::last_number(name)).await?;
    let numbers = slots_to_add(last, permits);
    let is_last = *numbers.end() == permits;
    if !numbers.is_empty() {
        // Changed, so that a session on another node (Galera) that adds or deletes slots at the same time does not commit.
        set_fence_floor(conn, fence + 1).await?;
        let insert = slot_queries::insert_slots(name, numbers, fence);
        let added = execute::execute(conn, insert).await?;
        assert_changed(added, SLOTS).map_err(MysqlError::of)?;
    }
    Ok(if is_last {
        BatchOutcome::Complete
    } else {
        BatchOutcome::Partial
    })
}

pub(crate) async fn floor_is_locked(conn: &mut impl On<Mysql>) -> Result<bool, MysqlError> {
    let free: Option<i64> = execute::get_optional(conn, LockFenceFloorIfFree {}).await?;
    Ok(free.is_none() && floor_exists(conn).await?)
}

async fn floor_exists(conn: &mut impl On<Mysql>) -> Result<bool, MysqlError> {
    let floor: Option<i64> = execute::get_optional(conn, slot_queries::fence_floor()).await?;
    Ok(floor.is_some())
}

pub(crate) async fn largest_fence(conn: &mut impl On<Mysql>) -> Result<i64, MysqlError> {
    let last: Option<i64> = execute::get_result(conn, slot_queries::last_fence()).await?;
    let now_us = execute::get_result(conn, slot_queries::now()).await?;
    Ok(last.unwrap_or(0).max(fence::at(now_us)))
}

pub(crate) async fn raise(
    conn: &mut impl On<Mysql>,
    by: Duration,
) -> Result<RaiseOutcome, MysqlError> {
    let floor = execute::get_optional(conn, slot_queries::lock_fence_floor()).await?;
    let Some(floor) = floor else {
        return Ok(RaiseOutcome::NoFenceFloor);
    };
    let last = largest_fence(conn).await?.max(floor);
    let Some(raised) = fence::raised(last, by) else {
        return Ok(RaiseOutcome::TooLarge);
    };
    if raised > floor {
        set_fence_floor(conn, raised).await?;
    }
    Ok(RaiseOutcome::RaisedTo(raised))
}

async fn set_fence_floor(conn: &mut impl On<Mysql>, fence: i64) -> Result<(), MysqlError> {
    let changed = execute::execute(conn, slot_queries::set_fence_floor(fence)).await?;
    assert_changed(changed, FENCES).map_err(MysqlError::of)
}

pub(crate) async fn purge(conn: &mut impl On<Mysql>, age_us: i64) -> Result<usize, Error> {
    let registered = slot_queries::registered;
    let semaphores: Vec<(String, Option<i32>)> =
        autocommit_retry!(conn, execute::load(conn, registered()).await)?;
    assert_read(semaphores.iter().map(|(name, _)| name.as_bytes()))?;
    let mut purged = 0;
    for (name, permits) in semaphores {
        loop {
            session::begin(conn, &sql::BEGIN).await?;
            let removed = delete_last(conn, &name, age_us, permits.unwrap_or(0)).await;
            match end_or_restart(conn, removed).await? {
                None => {}
                Some(None) => MysqlEngine(conn).create_fence_floor().await?,
                Some(Some(0)) => break,
                Some(Some(removed)) => purged += removed,
            }
        }
    }
    Ok(purged)
}

/// Returns how many slots were deleted, or `None` when the row of `diesel_locks_fences` is missing.
async fn delete_last(
    conn: &mut impl On<Mysql>,
    name: &str,
    age_us: i64,
    permits: i32,
) -> Result<Option<usize>, MysqlError> {
    let floor = execute::get_optional(conn, slot_queries::lock_fence_floor()).await?;
    let Some(floor) = floor else {
        return Ok(None);
    };
    let last = execute::get_optional(conn, slot_queries::last_number(Named(name))).await?;
    let retained = slot_queries::last_retained(Named(name), age_us, permits);
    let retained: Option<i32> = execute::get_optional(conn, retained).await?;
    let (name, above, limit) = (name.as_bytes(), retained.unwrap_or(0), BATCH_SIZE.into());
    let free = LockFreeAbove { name, above, limit };
    let free: Vec<(i32, i64)> = execute::load(conn, free).await?;
    let Some(deletion) = slots_to_delete(last, &free, floor) else {
        return Ok(Some(0));
    };
    // Changed in any case, as by `add_slots`.
    set_fence_floor(conn, deletion.fence.max(floor + 1)).await?;
    let above = deletion.above;
    let deleted = execute::execute(conn, DeleteLockedAbove { name, above }).await?;
    assert_changed(deleted, SLOTS).map_err(MysqlError::of)?;
    Ok(Some(deleted))
}
