//! Slots of semaphores on PostgreSQL. One call of a function finds a free slot that is not locked and acquires it, or
//! returns why there is none.

use std::cell::Cell;
use std::time::Duration;

use diesel::connection::{Connection, SimpleConnection};
use diesel::pg::PgConnection;
use diesel::prelude::*;

use super::slot_sql::{self, Acquired};
use super::{isolation_reason, sql};
use crate::engine::slot_resize::{BATCH_SIZE, slots_to_delete};
use crate::error::classify::{ErrorClass, classify};
use crate::semaphore::backend::{
    AttemptContext, AttemptOutcome, BatchOutcome, Expiry, Grant, HeldRow, LeaseRequest,
    RaiseOutcome, RenewalRequest, RenewalResult, SemaphoreBackend, classify_refusal,
    lowest_grantable,
};
use crate::{Error, Semaphore, Slot, backoff, transaction::depth};

impl SemaphoreBackend for PgConnection {
    fn database_id(conn: &mut Self) -> Result<Option<String>, Error> {
        let (name, table, started) = autocommit_retry(conn, |conn| {
            slot_sql::Database {}.get_result::<(String, i64, i64)>(conn)
        })?;
        Ok(Some(format!("postgres {name} {table} {started}")))
    }

    fn try_lease(
        conn: &mut Self,
        request: &LeaseRequest<'_>,
        context: &AttemptContext,
    ) -> Result<AttemptOutcome, Error> {
        let row = autocommit_retry(conn, |conn| {
            let filter = filter(request.semaphore, context);
            if context.in_transaction {
                slot_sql::acquire_slot_in_transaction(conn, request, &filter)
            } else {
                slot_sql::acquire_slot(conn, request, &filter)
            }
        });
        outcome(row, request.semaphore, context)
    }

    fn begin_hold(conn: &mut Self) -> Result<bool, Error> {
        super::begin(conn, sql::BEGIN)?;
        Ok(true)
    }

    fn try_hold(
        conn: &mut Self,
        semaphore: &Semaphore,
        context: &AttemptContext,
    ) -> Result<AttemptOutcome, Error> {
        let filter = filter(semaphore, context);
        let row = slot_sql::hold_slot(conn, &filter);
        outcome(row.map_err(Error::from), semaphore, context)
    }

    fn grantable_slots(
        conn: &mut Self,
        semaphore: &Semaphore,
        in_transaction: bool,
    ) -> Result<Vec<i32>, Error> {
        // The savepoint's rollback unlocks the rows, which would otherwise stay locked until the transaction ends.
        if in_transaction {
            conn.batch_execute(slot_sql::SAVEPOINT)?;
        }
        let looked = autocommit_retry(conn, |conn| {
            let slots: i64 = slot_sql::count(semaphore.name()).get_result(conn)?;
            let free: Vec<i32> = slot_sql::free_and_unlocked(semaphore.name()).load(conn)?;
            Ok(lowest_grantable(free, slots, semaphore.permits_i32()))
        });
        if in_transaction {
            conn.batch_execute(sql::ROLLBACK_TO_SAVEPOINT)?;
        }
        looked
    }

    fn resize_in_progress(conn: &mut Self) -> Result<bool, Error> {
        autocommit_retry(conn, slot_sql::floor_is_locked)
    }

    fn create_batch(
        conn: &mut Self,
        semaphore: &Semaphore,
        block: bool,
    ) -> Result<BatchOutcome, Error> {
        let (name, permits) = (semaphore.name(), semaphore.permits_i32());
        at_read_committed(conn, |conn| {
            slot_sql::create_batch(conn, name, permits, block)
        })
    }

    fn create_fence_floor(conn: &mut Self) -> Result<(), Error> {
        let last = autocommit_retry(conn, slot_sql::largest_fence)?;
        autocommit_retry(conn, |conn| {
            conn.execute_returning_count(&slot_sql::insert_fence_floor(last))
        })?;
        Ok(())
    }

    fn raise_fence_floor(conn: &mut Self, by: Duration) -> Result<RaiseOutcome, Error> {
        at_read_committed(conn, |conn| slot_sql::raise_fence_floor(conn, by))
    }

    fn register(conn: &mut Self, semaphore: &Semaphore) -> Result<(), Error> {
        autocommit_retry(conn, |conn| {
            conn.execute_returning_count(&slot_sql::register(
                semaphore.name(),
                semaphore.permits_i32(),
            ))
        })?;
        Ok(())
    }

    fn renew_one(
        conn: &mut Self,
        slot: &Slot,
        lease_us: i64,
        state: Expiry,
    ) -> Result<usize, Error> {
        autocommit_retry(conn, |conn| match state {
            Expiry::Unexpired => slot_sql::RenewUnexpired {
                key: key(slot),
                lease_us,
            }
            .execute(conn),
            Expiry::IncludeExpired => slot_sql::Renew {
                key: key(slot),
                lease_us,
            }
            .execute(conn),
        })
    }

    fn release(conn: &mut Self, slot: &Slot, state: Expiry) -> Result<usize, Error> {
        let own_transaction = depth::depth(conn)? == 0;
        autocommit_retry(conn, |conn| match state {
            Expiry::Unexpired if own_transaction => {
                slot_sql::ReleaseAsync { key: key(slot) }.execute(conn)
            }
            Expiry::Unexpired => slot_sql::ReleaseUnexpired { key: key(slot) }.execute(conn),
            Expiry::IncludeExpired => slot_sql::Release { key: key(slot) }.execute(conn),
        })
    }

    fn pin(conn: &mut Self, slot: &Slot) -> Result<bool, Error> {
        let pin = slot_sql::Pin { key: key(slot) };
        let pinned: Option<i32> = pin.get_result(conn).optional()?;
        Ok(pinned.is_some())
    }

    fn list_held(conn: &mut Self, name: &str) -> Result<Vec<HeldRow>, Error> {
        autocommit_retry(conn, |conn| slot_sql::held_slots(name).load(conn))
    }

    fn release_all(conn: &mut Self, name: &str) -> Result<usize, Error> {
        let taken: Vec<(i32, bool)> =
            autocommit_retry(conn, |conn| slot_sql::held_numbers(name).load(conn))?;
        let mut held = 0;
        for (number, unexpired) in taken {
            let freed = autocommit_retry(conn, |conn| {
                conn.execute_returning_count(&slot_sql::force_release(name, number))
            })?;
            held += if unexpired { freed } else { 0 };
        }
        Ok(held)
    }

    fn purge_unused_slots(conn: &mut Self, age_us: i64) -> Result<usize, Error> {
        let semaphores: Vec<(String, Option<i32>)> =
            autocommit_retry(conn, |conn| slot_sql::semaphores().load(conn))?;
        let mut purged = 0;
        for (name, permits) in semaphores {
            loop {
                let removed = at_read_committed(conn, |conn| {
                    delete_last(conn, &name, age_us, permits.unwrap_or(0))
                })?;
                match removed {
                    None => Self::create_fence_floor(conn)?,
                    Some(0) => break,
                    Some(removed) => purged += removed,
                }
            }
        }
        Ok(purged)
    }

    fn release_batch(conn: &mut Self, leases: &[RenewalRequest]) -> Result<Vec<Vec<u8>>, Error> {
        autocommit_retry(conn, |conn| slot_sql::ReleaseBatch::of(leases).load(conn))
    }

    fn renew_batch(
        conn: &mut Self,
        leases: &[RenewalRequest],
    ) -> Result<Vec<RenewalResult>, Error> {
        let rows: Vec<(Vec<u8>, i64)> =
            autocommit_retry(conn, |conn| slot_sql::RenewBatch::of(leases).load(conn))?;
        Ok(rows
            .into_iter()
            .map(|(token, remaining_us)| RenewalResult {
                token,
                remaining_us,
            })
            .collect())
    }
}

/// Deletes the last slots that are free, unused for `age_us` and not locked, down to the first that is not, so that the
/// numbers have no gaps. Returns how many, or `None` when the row of `diesel_locks_fences` is missing.
fn delete_last(
    conn: &mut PgConnection,
    name: &str,
    age_us: i64,
    permits: i32,
) -> QueryResult<Option<usize>> {
    let Some(floor): Option<i64> = slot_sql::lock_fence_floor().get_result(conn).optional()? else {
        return Ok(None);
    };
    let last: Option<i32> = slot_sql::last_number(name).get_result(conn).optional()?;
    let retained: Option<i32> = slot_sql::last_retained(name, age_us, permits)
        .get_result(conn)
        .optional()?;
    let rows: Vec<(i32, i64)> =
        slot_sql::lock_free_above(name, retained.unwrap_or(0), BATCH_SIZE.into()).load(conn)?;
    let Some(deletion) = slots_to_delete(last, &rows, floor) else {
        return Ok(Some(0));
    };
    if deletion.fence > floor {
        conn.execute_returning_count(&slot_sql::set_fence_floor(deletion.fence))?;
    }
    conn.execute_returning_count(&slot_sql::delete_above(name, deletion.above))
        .map(Some)
}

/// Runs `work` in a transaction in which each statement sees what was committed before it.
fn at_read_committed<T>(
    conn: &mut PgConnection,
    work: impl Fn(&mut PgConnection) -> QueryResult<T>,
) -> Result<T, Error> {
    Ok(conn
        .build_transaction()
        .read_committed()
        .run(|conn| work(conn))?)
}

/// Retries a statement, if it is its own transaction, until no deadlock or serialization failure aborts it. At a
/// session's default level above READ COMMITTED a single statement can fail with the latter. In an open transaction the
/// statement runs once.
fn autocommit_retry<T>(
    conn: &mut PgConnection,
    statement: impl Fn(&mut PgConnection) -> QueryResult<T>,
) -> Result<T, Error> {
    let autocommit_retry = depth::depth(conn)? == 0;
    loop {
        match statement(conn) {
            Err(error) if autocommit_retry && is_retryable(&error) => {}
            result => return Ok(result?),
        }
    }
}

fn is_retryable(error: &diesel::result::Error) -> bool {
    matches!(
        classify(error),
        ErrorClass::SerializationFailure | ErrorClass::Deadlock
    )
}

/// Whether the statement ended by the `lock_timeout` that `diesel_locks_acquire_slot` sets.
fn is_lock_timeout(error: &Error) -> bool {
    matches!(error, Error::StatementTimeout { source } if classify(source) == ErrorClass::LockTimeout)
}

fn key(slot: &Slot) -> slot_sql::Key<'_> {
    slot_sql::Key {
        name: &slot.semaphore,
        number: slot.number_i32(),
        token: slot.token.as_bytes(),
    }
}

thread_local! {
    /// The slot that this thread acquired last, where its next search starts. It is usually free again, so threads that
    /// share a semaphore rarely compete for the same slot.
    static LAST_ACQUIRED: Cell<i32> = Cell::new(random_first());
}

fn random_first() -> i32 {
    i32::try_from(backoff::random_below(100)).map_or(1, |below| below + 1)
}

fn filter<'a>(semaphore: &'a Semaphore, context: &'a AttemptContext) -> slot_sql::SlotFilter<'a> {
    let permits = semaphore.permits_i32();
    let first = context.preferred.unwrap_or_else(|| LAST_ACQUIRED.get());
    slot_sql::SlotFilter {
        semaphore: semaphore.name(),
        permits,
        first: 1 + (first.max(1) - 1) % permits.max(1),
        candidates: context.candidates.as_deref(),
    }
}

fn outcome(
    answer: Result<i64, Error>,
    semaphore: &Semaphore,
    context: &AttemptContext,
) -> Result<AttemptOutcome, Error> {
    let answer = match answer {
        Err(error) if is_lock_timeout(&error) => return Ok(AttemptOutcome::TableLocked),
        answer => answer?,
    };
    let acquired = slot_sql::decode(answer).ok_or_else(|| {
        diesel::result::Error::DeserializationError(
            format!("diesel_locks_acquire_slot returned {answer}").into(),
        )
    })?;
    let (number, fence) = match acquired {
        Acquired::Leased { number, fence } => (number, fence),
        Acquired::Locked { number } => (number, 0),
        Acquired::TableLocked => return Ok(AttemptOutcome::TableLocked),
        Acquired::UnsuitableIsolation(level) => {
            return Err(Error::UnsuitableIsolation {
                resource: semaphore.to_string(),
                reason: isolation_reason(level),
            });
        }
        Acquired::Refused { slots, any_free } => {
            return Ok(classify_refusal(
                Some(slots),
                semaphore.permits_i32(),
                any_free,
                context,
            ));
        }
    };
    LAST_ACQUIRED.set(number);
    Ok(AttemptOutcome::Granted(Grant { number, fence }))
}
