//! Adds and removes slots on PostgreSQL, and raises the floor of all fences, which a session locks meanwhile.

use std::time::Duration;

use diesel::QueryResult;
use diesel::dsl::{auto_type, select};
use diesel::pg::Pg;
use diesel::prelude::{ExpressionMethods, QueryDsl};

use crate::engine::clock::DbNow;
use crate::engine::ending::autocommit_retry;
use crate::engine::operations::SemaphoreBackend;
use crate::engine::postgres::slot_sql::diesel_locks_timeline_us;
use crate::engine::postgres::{PostgresEngine, begin, sql};
use crate::engine::slot_queries::{self, lock_fence_floor};
use crate::engine::slots::{BATCH_SIZE, BatchOutcome, RaiseOutcome, slots_to_add, slots_to_delete};
use crate::engine::tables::{FENCES, Named, SLOTS, assert_changed, diesel_locks_slots as slots};
use crate::link::{self, On};
use crate::values::fence;
use crate::{Error, Semaphore};

#[auto_type]
fn lock_free_above<'a>(name: Named<'a>, above: i32, limit: i64) -> _ {
    let now: DbNow = DbNow {};
    slots::table
        .filter(slots::name.eq(name))
        .filter(slots::number.gt(above))
        .filter(slots::expires_us.le(now))
        .order(slots::number.desc())
        .limit(limit)
        .select((slots::number, slots::fence))
        .for_update()
        .skip_locked()
}

pub(crate) async fn add_slots(
    conn: &mut impl On<Pg>,
    semaphore: &Semaphore,
    block: bool,
) -> QueryResult<BatchOutcome> {
    let (name, permits) = (Named(semaphore.name()), semaphore.permits_i32());
    let floor: Option<i64> = if block {
        conn.get_optional(lock_fence_floor()).await?
    } else {
        conn.get_optional(lock_fence_floor().skip_locked()).await?
    };
    let Some(fence) = floor else {
        return Ok(if floor_exists(conn).await? {
            BatchOutcome::Contended
        } else {
            BatchOutcome::NoFenceFloor
        });
    };
    let last = conn.get_optional(slot_queries::last_number(name)).await?;
    let numbers = slots_to_add(last, permits);
    let is_last = *numbers.end() == permits;
    if !numbers.is_empty() {
        let insert = slot_queries::insert_slots(name, numbers, fence);
        assert_changed(conn.execute(insert).await?, SLOTS)?;
    }
    Ok(if is_last {
        BatchOutcome::Complete
    } else {
        BatchOutcome::Partial
    })
}

pub(crate) async fn floor_is_locked(conn: &mut impl On<Pg>) -> QueryResult<bool> {
    let free: Option<i64> = conn.get_optional(lock_fence_floor().skip_locked()).await?;
    Ok(free.is_none() && floor_exists(conn).await?)
}

async fn floor_exists(conn: &mut impl On<Pg>) -> QueryResult<bool> {
    let floor: Option<i64> = conn.get_optional(slot_queries::fence_floor()).await?;
    Ok(floor.is_some())
}

pub(crate) async fn largest_fence(conn: &mut impl On<Pg>) -> QueryResult<i64> {
    let last: Option<i64> = conn.get_result(slot_queries::last_fence()).await?;
    let now_us: i64 = conn.get_result(slot_queries::now()).await?;
    let timeline_us: i64 = conn.get_result(select(diesel_locks_timeline_us())).await?;
    Ok(last.unwrap_or(0).max(fence::at(now_us + timeline_us)))
}

pub(crate) async fn raise(conn: &mut impl On<Pg>, by: Duration) -> QueryResult<RaiseOutcome> {
    let Some(floor) = conn.get_optional(lock_fence_floor()).await? else {
        return Ok(RaiseOutcome::NoFenceFloor);
    };
    let last = largest_fence(conn).await?.max(floor);
    let Some(raised) = fence::raised(last, by) else {
        return Ok(RaiseOutcome::TooLarge);
    };
    if raised > floor {
        let set = slot_queries::set_fence_floor(raised);
        assert_changed(conn.execute(set).await?, FENCES)?;
    }
    Ok(RaiseOutcome::RaisedTo(raised))
}

pub(crate) async fn purge(conn: &mut impl On<Pg>, age_us: i64) -> Result<usize, Error> {
    let semaphores: Vec<(String, Option<i32>)> =
        autocommit_retry!(conn, conn.load(slot_queries::registered()).await)?;
    let mut purged = 0;
    for (name, permits) in semaphores {
        loop {
            begin(conn, &sql::BEGIN).await?;
            let removed = delete_last(conn, Named(&name), age_us, permits.unwrap_or(0)).await;
            match link::end(conn, removed).await? {
                None => PostgresEngine(conn).create_fence_floor().await?,
                Some(0) => break,
                Some(removed) => purged += removed,
            }
        }
    }
    Ok(purged)
}

/// Returns how many slots were deleted, or `None` when the row of `diesel_locks_fences` is missing.
async fn delete_last(
    conn: &mut impl On<Pg>,
    name: Named<'_>,
    age_us: i64,
    permits: i32,
) -> QueryResult<Option<usize>> {
    let Some(floor) = conn.get_optional(lock_fence_floor()).await? else {
        return Ok(None);
    };
    let last = conn.get_optional(slot_queries::last_number(name)).await?;
    let retained = slot_queries::last_retained(name, age_us, permits);
    let retained: Option<i32> = conn.get_optional(retained).await?;
    let free = lock_free_above(name, retained.unwrap_or(0), BATCH_SIZE.into());
    let Some(deletion) = slots_to_delete(last, &conn.load(free).await?, floor) else {
        return Ok(Some(0));
    };
    if deletion.fence > floor {
        let raise = slot_queries::set_fence_floor(deletion.fence);
        assert_changed(conn.execute(raise).await?, FENCES)?;
    }
    let delete = slot_queries::delete_above(name, deletion.above);
    let deleted = conn.execute(delete).await?;
    assert_changed(deleted, SLOTS)?;
    Ok(Some(deleted))
}
