//! Slots of semaphores on SQLite. A read without the write lock tells whether a slot is free, and only then a write
//! transaction leases one.

use std::time::Duration;

use diesel::connection::Connection;
use diesel::prelude::*;

use super::deadline::Deadline;
use super::lists;
use super::slot_sql;
use super::{
    BUSY_STEP, begin_immediate, sql, upgrade_to_writer, with_busy_timeout, with_write_lock,
};
use crate::engine::slot_methods::slot_methods;
use crate::inspect::list_options::ListRequest;
use crate::object_lock::backend::LockOutcome;
use crate::semaphore::backend::{
    AttemptContext, AttemptOutcome, BatchOutcome, Grant, HeldRow, LeaseRequest, RaiseOutcome,
    RenewalRequest, RenewalResult, SemaphoreBackend, SemaphoreRow, classify_refusal,
    lowest_grantable,
};
use crate::semaphore::slot_times::{FirstSlot, SlotTimesRow};
use crate::{Error, Semaphore, Slot, Wait, semaphore::fence, transaction::depth};

/// The time that a change waits for the write lock, unless `busy_timeout` is longer.
const DEFAULT_WRITE_TIMEOUT: Duration = Duration::from_secs(5);

slot_methods!(SqliteConnection, RunQueryDsl, diesel::result::Error);

impl SemaphoreBackend for SqliteConnection {
    fn clock_resolution(_: &mut Self) -> Duration {
        Duration::from_millis(1)
    }

    /// Returns the path of the file, and `None` for a database in memory.
    fn database_id(conn: &mut Self) -> Result<Option<String>, Error> {
        let file: String = slot_sql::Database {}.get_result(conn)?;
        Ok((!file.is_empty()).then(|| format!("sqlite {file}")))
    }

    fn try_lease(
        conn: &mut Self,
        request: &LeaseRequest<'_>,
        context: &AttemptContext,
    ) -> Result<AttemptOutcome, Error> {
        // If all slots are leased, no write is needed. Not in an open transaction: one that has read can't wait for
        // another writer.
        if !context.in_transaction {
            let seen = attempt(conn, request.semaphore, context, |_, free| Ok(free))?;
            if !matches!(seen, AttemptOutcome::Granted(_)) {
                return Ok(seen);
            }
        }
        write(conn, |conn| {
            attempt(conn, request.semaphore, context, |conn, free| {
                // SQLite's clock counts milliseconds, and several grants may happen in one. With one writer at a time,
                // the floor is the fence of the last grant.
                let last = fence_floor(conn)?;
                let now_us = slot_sql::now().get_result(conn)?;
                let grant = Grant {
                    number: free.number,
                    fence: fence::next(last.max(free.fence), now_us, free.number),
                };
                conn.execute_returning_count(&slot_sql::grant(request, &grant))?;
                conn.execute_returning_count(&slot_sql::set_fence_floor(grant.fence))?;
                Ok(grant)
            })
        })
    }

    fn begin_hold(conn: &mut Self) -> Result<bool, Error> {
        let deadline = Deadline::new(Wait::No);
        let grant = with_busy_timeout(conn, Duration::ZERO, |conn| {
            begin_immediate(conn, &deadline)
        })?;
        Ok(grant == LockOutcome::Acquired)
    }

    /// No other session writes until the transaction ends, so any free slot may be granted.
    fn try_hold(
        conn: &mut Self,
        semaphore: &Semaphore,
        context: &AttemptContext,
    ) -> Result<AttemptOutcome, Error> {
        if depth::depth(conn)? > 1 {
            ensure_writer(conn)?;
        }
        attempt(conn, semaphore, context, |conn, free| {
            // The holder of an expired lease on the slot must not renew it after another has held the slot.
            conn.execute_returning_count(&slot_sql::clear_token(semaphore.name(), free.number))?;
            Ok(free)
        })
    }

    fn grantable_slots(conn: &mut Self, semaphore: &Semaphore, _: bool) -> Result<Vec<i32>, Error> {
        let slots: i64 = slot_sql::count(semaphore.name()).get_result(conn)?;
        let free: Vec<i32> = slot_sql::free(semaphore.name()).load(conn)?;
        Ok(lowest_grantable(free, slots, semaphore.permits_i32()))
    }

    fn resize_in_progress(_: &mut Self) -> Result<bool, Error> {
        Ok(false)
    }

    fn create_batch(
        conn: &mut Self,
        semaphore: &Semaphore,
        _: bool,
    ) -> Result<BatchOutcome, Error> {
        let (name, permits) = (semaphore.name(), semaphore.permits_i32());
        write(conn, |conn| {
            let fence = fence_floor(conn)?;
            let last: Option<i32> = slot_sql::last_number(name).get_result(conn).optional()?;
            for number in last.unwrap_or(0) + 1..=permits {
                conn.execute_returning_count(&slot_sql::insert(name, number, fence))?;
            }
            Ok(BatchOutcome::Complete)
        })
    }

    fn create_fence_floor(conn: &mut Self) -> Result<(), Error> {
        write(conn, |conn| fence_floor(conn).map(drop))
    }

    fn raise_fence_floor(conn: &mut Self, by: Duration) -> Result<RaiseOutcome, Error> {
        write(conn, |conn| {
            let last = fence_floor(conn)?.max(largest_fence(conn)?);
            let Some(raised) = fence::raised(last, by) else {
                return Ok(RaiseOutcome::TooLarge);
            };
            conn.execute_returning_count(&slot_sql::set_fence_floor(raised))?;
            Ok(RaiseOutcome::RaisedTo(raised))
        })
    }

    fn register(conn: &mut Self, semaphore: &Semaphore) -> Result<(), Error> {
        write(conn, |conn| {
            conn.execute_returning_count(&slot_sql::register(
                semaphore.name(),
                semaphore.permits_i32(),
            ))?;
            Ok(())
        })
    }

    fn renew_one(
        conn: &mut Self,
        slot: &Slot,
        lease_us: i64,
        expiry: Expiry,
    ) -> Result<usize, Error> {
        write(conn, |conn| Ok(renew(conn, slot, lease_us, expiry)?))
    }

    fn release(conn: &mut Self, slot: &Slot, expiry: Expiry) -> Result<usize, Error> {
        write(conn, |conn| Ok(release(conn, slot, expiry)?))
    }

    fn release_unused(conn: &mut Self, slot: &Slot) -> Result<usize, Error> {
        write(conn, |conn| Ok(release_unused(conn, slot)?))
    }

    fn pin(conn: &mut Self, slot: &Slot) -> Result<bool, Error> {
        ensure_writer(conn)?;
        let pin = slot_sql::Pin { key: key(slot) };
        let pinned: Option<i32> = pin.get_result(conn).optional()?;
        Ok(pinned.is_some())
    }

    fn list_held(conn: &mut Self, name: &str) -> Result<Vec<HeldRow>, Error> {
        Ok(slot_sql::held_slots(name).load(conn)?)
    }

    fn first_slot_nowait(conn: &mut Self, name: &str) -> Result<FirstSlot, Error> {
        let row: Option<SlotTimesRow> = slot_sql::first_slot(name).get_result(conn).optional()?;
        Ok(row.into())
    }

    fn list_all_held(
        conn: &mut Self,
        request: &ListRequest,
    ) -> Result<Vec<(String, HeldRow)>, Error> {
        lists::list_all_held(conn, request)
    }

    fn list_semaphores(conn: &mut Self, request: &ListRequest) -> Result<Vec<SemaphoreRow>, Error> {
        lists::list_semaphores(conn, request)
    }

    fn now_us(conn: &mut Self) -> Result<i64, Error> {
        Ok(slot_sql::now().get_result(conn)?)
    }

    fn release_all(conn: &mut Self, name: &str) -> Result<usize, Error> {
        write(conn, |conn| {
            let taken: Vec<(i32, bool)> = slot_sql::held_numbers(name).load(conn)?;
            for (number, _) in &taken {
                conn.execute_returning_count(&slot_sql::force_release(name, *number))?;
            }
            Ok(taken.iter().filter(|(_, unexpired)| *unexpired).count())
        })
    }

    fn purge_unused_slots(conn: &mut Self, age_us: i64) -> Result<usize, Error> {
        write(conn, |conn| {
            let semaphores: Vec<(String, Option<i32>)> = slot_sql::semaphores().load(conn)?;
            let mut purged = 0;
            for (name, permits) in semaphores {
                let retained: Option<i32> =
                    slot_sql::last_retained(&name, age_us, permits.unwrap_or(0))
                        .get_result(conn)
                        .optional()?;
                let above = retained.unwrap_or(0);
                let last_fence: Option<i64> = slot_sql::last_fence_above(&name, above)
                    .get_result(conn)
                    .optional()?;
                let floor = fence_floor(conn)?;
                if let Some(fence) = last_fence.filter(|fence| *fence > floor) {
                    conn.execute_returning_count(&slot_sql::set_fence_floor(fence))?;
                }
                purged += conn.execute_returning_count(&slot_sql::delete_above(&name, above))?;
            }
            Ok(purged)
        })
    }

    fn release_batch(conn: &mut Self, leases: &[RenewalRequest]) -> Result<Vec<Vec<u8>>, Error> {
        write(conn, |conn| {
            let asked = RenewalRequest::as_json(leases);
            slot_sql::ReleaseBatch { asked: &asked }.execute(conn)?;
            Ok(Vec::new())
        })
    }

    fn renew_batch(
        conn: &mut Self,
        leases: &[RenewalRequest],
    ) -> Result<Vec<RenewalResult>, Error> {
        write(conn, |conn| {
            let asked = RenewalRequest::as_json(leases);
            let rows: Vec<(Option<Vec<u8>>, i64)> =
                slot_sql::RenewBatch { asked: &asked }.load(conn)?;
            Ok(rows
                .into_iter()
                .filter_map(|(token, remaining_us)| {
                    Some(RenewalResult {
                        token: token?,
                        remaining_us,
                    })
                })
                .collect())
        })
    }
}

/// Returns the largest fence granted so far. Inserts its row again if it is missing.
fn fence_floor(conn: &mut SqliteConnection) -> Result<i64, Error> {
    if let Some(fence) = slot_sql::fence_floor().get_result(conn).optional()? {
        return Ok(fence);
    }
    let fence = largest_fence(conn)?;
    conn.execute_returning_count(&slot_sql::insert_fence_floor(fence))?;
    Ok(fence)
}

/// Searches for a free slot and calls `take` with it.
fn attempt(
    conn: &mut SqliteConnection,
    semaphore: &Semaphore,
    context: &AttemptContext,
    take: impl FnOnce(&mut SqliteConnection, Grant) -> Result<Grant, Error>,
) -> Result<AttemptOutcome, Error> {
    let (name, permits) = (semaphore.name(), semaphore.permits_i32());
    // In one statement, because between two another session may add or remove slots.
    let (slots, free) = match &context.candidates {
        None => {
            let look = slot_sql::FindFree { name, permits };
            let (slots, number, fence): slot_sql::FoundRow = look.get_result(conn)?;
            (slots, number.zip(fence))
        }
        Some(open) => {
            let free = slot_sql::first_free_among(name, open);
            (None, free.get_result(conn).optional()?)
        }
    };
    match free {
        Some((number, fence)) => take(conn, Grant { number, fence }).map(AttemptOutcome::Granted),
        // Rows are not locked on SQLite, so `any_free` is false; free slots above the number of permits don't count.
        None => Ok(classify_refusal(slots, permits, false, context)),
    }
}

/// Runs `work` with the write lock, in the open transaction or in one of its own.
fn write<T>(
    conn: &mut SqliteConnection,
    work: impl FnOnce(&mut SqliteConnection) -> Result<T, Error>,
) -> Result<T, Error> {
    if depth::depth(conn)? > 0 {
        ensure_writer(conn)?;
        work(conn)
    } else {
        let deadline = write_deadline(conn)?;
        with_write_lock(conn, &deadline, work)
    }
}

fn ensure_writer(conn: &mut SqliteConnection) -> Result<(), Error> {
    let deadline = write_deadline(conn)?;
    with_busy_timeout(conn, BUSY_STEP, |conn| {
        upgrade_to_writer(conn, &deadline, BUSY_STEP)
    })?;
    Ok(())
}

fn write_deadline(conn: &mut SqliteConnection) -> Result<Deadline<'static>, Error> {
    let busy_timeout: i32 = (sql::BusyTimeout {}).get_result(conn)?;
    let busy_timeout = Duration::from_millis(busy_timeout.unsigned_abs().into());
    Ok(Deadline::new(Wait::AtMost(
        busy_timeout.max(DEFAULT_WRITE_TIMEOUT),
    )))
}
