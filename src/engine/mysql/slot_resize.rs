//! Adds and removes slots on MySQL and MariaDB, and raises the floor of all fences, which a session locks meanwhile.

use std::time::Duration;

use diesel::mysql::Mysql;
use diesel::sql_types::{BigInt, Binary, Integer};

use crate::engine::dialect::Dialect;
use crate::engine::ending::autocommit_retry;
use crate::engine::mysql::MysqlEngine;
use crate::engine::mysql::execute::{MysqlError, assert_read};
use crate::engine::mysql::sql::{
    ANY_JOIN, ANY_JOIN_HINT, ANY_SIZE, ANY_SIZE_HINT, AS_AN_UPDATE, BEGIN, LIMIT_HINT,
    UNLESS_TABLE_LOCKED,
};
use crate::engine::slot_queries;
use crate::engine::slots::{
    BATCH_SIZE, BatchOutcome, RaiseOutcome, SemaphoreBackend, slots_to_add, slots_to_delete,
};
use crate::engine::tables::{FENCES, Named, SLOTS, assert_changed};
use crate::link::Link;
use crate::link::raw_sql::statement;
use crate::values::fence;
use crate::{Error, Semaphore};

statement! {
    Mysql;
    /// Locks the row of `diesel_locks_fences`, unless another session has locked it, its table or the table of slots.
    LockFenceFloorIfFree {} -> BigInt,
    |self| {
        {UNLESS_TABLE_LOCKED}; "SELECT "; {LIMIT_HINT};
        {AS_AN_UPDATE}; "fence FROM diesel_locks_fences WHERE id = 1 FOR UPDATE SKIP LOCKED";
    }

    /// Raw for its prefix and its hint.
    LastNumber<'a> { name: &'a [u8] } -> Integer,
    |self| {
        {ANY_SIZE}; "SELECT "; {ANY_SIZE_HINT};
        "number FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ", Binary = self.name;
        " ORDER BY number DESC LIMIT 1";
    }

    LockFreeAbove<'a> { name: &'a [u8], above: i32, limit: i64 } -> (Integer, BigInt),
    |self| {
        "SELECT number, fence FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ", Binary = self.name;
        " AND number > ", Integer = &self.above;
        " AND expires_us <= "; {Mysql::NOW};
        " ORDER BY number DESC LIMIT ", BigInt = &self.limit; " FOR UPDATE SKIP LOCKED";
    }

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

impl<C: Link<Db = Mysql>> MysqlEngine<'_, C> {
    pub(crate) async fn store_permits(
        &mut self,
        semaphore: &Semaphore,
    ) -> Result<usize, MysqlError> {
        // Serializes sessions that register at the same time.
        let _: Option<i64> = self.lock_fence_floor().await?;
        let register = slot_queries::register(Named(semaphore.name()), semaphore.permits_i32());
        self.execute(register).await
    }

    async fn lock_fence_floor(&mut self) -> Result<Option<i64>, MysqlError> {
        self.get_optional(slot_queries::lock_fence_floor()).await
    }

    pub(crate) async fn add_slots(
        &mut self,
        semaphore: &Semaphore,
        block: bool,
    ) -> Result<BatchOutcome, MysqlError> {
        let (name, permits) = (Named(semaphore.name()), semaphore.permits_i32());
        let floor = if block {
            self.lock_fence_floor().await?
        } else {
            self.get_optional(LockFenceFloorIfFree {}).await?
        };
        let Some(fence) = floor else {
            return Ok(if self.floor_exists().await? {
                BatchOutcome::Contended
            } else {
                BatchOutcome::NoFenceFloor
            });
        };
        let last = LastNumber {
            name: semaphore.name().as_bytes(),
        };
        let last = self.get_optional(last).await?;
        let numbers = slots_to_add(last, permits);
        let is_last = *numbers.end() == permits;
        if !numbers.is_empty() {
            // Changed, so that a session on another node (Galera) that adds or deletes slots at the same time does not commit.
            self.set_fence_floor(fence + 1).await?;
            let insert = slot_queries::insert_slots(name, numbers, fence);
            let added = self.execute(insert).await?;
            assert_changed(added, SLOTS).map_err(MysqlError::of)?;
        }
        Ok(if is_last {
            BatchOutcome::Complete
        } else {
            BatchOutcome::Partial
        })
    }

    pub(crate) async fn floor_is_locked(&mut self) -> Result<bool, MysqlError> {
        let free: Option<i64> = self.get_optional(LockFenceFloorIfFree {}).await?;
        Ok(free.is_none() && self.floor_exists().await?)
    }

    async fn floor_exists(&mut self) -> Result<bool, MysqlError> {
        let floor: Option<i64> = self.get_optional(slot_queries::fence_floor()).await?;
        Ok(floor.is_some())
    }

    pub(crate) async fn largest_fence(&mut self) -> Result<i64, MysqlError> {
        let last: Option<i64> = self.get_result(slot_queries::last_fence()).await?;
        let now_us = self.get_result(slot_queries::now()).await?;
        Ok(last.unwrap_or(0).max(fence::at(now_us)))
    }

    pub(crate) async fn raise(&mut self, by: Duration) -> Result<RaiseOutcome, MysqlError> {
        let Some(floor) = self.lock_fence_floor().await? else {
            return Ok(RaiseOutcome::NoFenceFloor);
        };
        let last = self.largest_fence().await?.max(floor);
        let Some(raised) = fence::raised(last, by) else {
            return Ok(RaiseOutcome::TooLarge);
        };
        if raised > floor {
            self.set_fence_floor(raised).await?;
        }
        Ok(RaiseOutcome::RaisedTo(raised))
    }

    async fn set_fence_floor(&mut self, fence: i64) -> Result<(), MysqlError> {
        let changed = self.execute(slot_queries::set_fence_floor(fence)).await?;
        assert_changed(changed, FENCES).map_err(MysqlError::of)
    }

    pub(crate) async fn purge(&mut self, age_us: i64) -> Result<usize, Error> {
        let semaphores: Vec<String> =
            autocommit_retry!(self.0, self.load(slot_queries::with_slots()).await)?;
        assert_read(semaphores.iter().map(String::as_bytes))?;
        let mut purged = 0;
        for name in semaphores {
            loop {
                self.begin_by(&BEGIN).await?;
                let removed = self.delete_last(&name, age_us).await;
                match self.end_or_restart(removed).await? {
                    None => {}
                    Some(None) => self.create_fence_floor().await?,
                    Some(Some(0)) => break,
                    Some(Some(removed)) => purged += removed,
                }
            }
        }
        Ok(purged)
    }

    /// Returns how many slots were deleted, or `None` when the row of `diesel_locks_fences` is missing.
    async fn delete_last(&mut self, name: &str, age_us: i64) -> Result<Option<usize>, MysqlError> {
        let Some(floor) = self.lock_fence_floor().await? else {
            return Ok(None);
        };
        let retained = slot_queries::last_retained(Named(name), age_us);
        let retained: Option<i32> = self.get_optional(retained).await?;
        let (name, above, limit) = (name.as_bytes(), retained.unwrap_or(0), BATCH_SIZE.into());
        let last = self.get_optional(LastNumber { name }).await?;
        let free: Vec<(i32, i64)> = self.load(LockFreeAbove { name, above, limit }).await?;
        let Some(deletion) = slots_to_delete(last, &free, floor) else {
            return Ok(Some(0));
        };
        // Changed in any case, as by `add_slots`.
        self.set_fence_floor(deletion.fence.max(floor + 1)).await?;
        let above = deletion.above;
        let deleted = self.execute(DeleteLockedAbove { name, above }).await?;
        assert_changed(deleted, SLOTS).map_err(MysqlError::of)?;
        Ok(Some(deleted))
    }
}
