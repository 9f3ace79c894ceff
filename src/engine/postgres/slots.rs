//! Slots of semaphores on PostgreSQL. One call of a function finds a free slot that is not locked and acquires it, or
//! returns why there is none.

use std::cell::Cell;
use std::time::Duration;

use diesel::connection::{
    AnsiTransactionManager, Connection, SimpleConnection, TransactionManager,
};
use diesel::pg::PgConnection;
use diesel::prelude::*;

use super::slot_sql::batch::{Asked, ReleaseBatch, RenewBatch};
use super::slot_sql::{self, Acquired};
use super::{lists, sql, unsuitable_isolation};
use crate::engine::slot_methods::{locking_slot_methods, slot_methods};
use crate::error::classify::{ErrorClass, classify};
use crate::inspect::list_options::ListRequest;
use crate::semaphore::backend::{
    AttemptContext, AttemptOutcome, BatchOutcome, Grant, HeldRow, LeaseRequest, RaiseOutcome,
    RenewalRequest, RenewalResult, SemaphoreBackend, SemaphoreRow, classify_refusal,
    lowest_grantable,
};
use crate::semaphore::slot_times::{FirstSlot, SlotTimesRow};
use crate::{Error, Semaphore, Slot, backoff, transaction::depth};

slot_methods!(PgConnection, RunQueryDsl, diesel::result::Error);
locking_slot_methods!(
    PgConnection,
    str,
    String,
    RunQueryDsl,
    count,
    slot_sql::delete_above,
    diesel::result::Error
);

fn count(statement: impl slot_sql::ExecutableQuery, conn: &mut PgConnection) -> QueryResult<usize> {
    conn.execute_returning_count(&statement)
}

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
                slot_sql::acquire_slot(conn, Some(request), &filter)
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
        let row = slot_sql::acquire_slot(conn, None, &filter(semaphore, context));
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
            QueryResult::Ok(lowest_grantable(free, slots, semaphore.permits_i32()))
        });
        if in_transaction {
            conn.batch_execute(sql::ROLLBACK_TO_SAVEPOINT)?;
        }
        looked
    }

    fn resize_in_progress(conn: &mut Self) -> Result<bool, Error> {
        autocommit_retry(conn, floor_is_locked)
    }

    fn create_batch(
        conn: &mut Self,
        semaphore: &Semaphore,
        block: bool,
    ) -> Result<BatchOutcome, Error> {
        let (name, permits) = (semaphore.name(), semaphore.permits_i32());
        at_read_committed(conn, |conn| create_batch(conn, name, permits, block))
    }

    fn create_fence_floor(conn: &mut Self) -> Result<(), Error> {
        insert_fence_floor(conn)
    }

    fn raise_fence_floor(conn: &mut Self, by: Duration) -> Result<RaiseOutcome, Error> {
        at_read_committed(conn, |conn| raise_fence_floor(conn, by))
    }

    fn register(conn: &mut Self, semaphore: &Semaphore) -> Result<(), Error> {
        autocommit_retry(conn, |conn| {
            count(
                slot_sql::register(semaphore.name(), semaphore.permits_i32()),
                conn,
            )
        })?;
        Ok(())
    }

    fn renew_one(
        conn: &mut Self,
        slot: &Slot,
        lease_us: i64,
        expiry: Expiry,
    ) -> Result<usize, Error> {
        autocommit_retry(conn, |conn| renew(conn, slot, lease_us, expiry))
    }

    fn release(conn: &mut Self, slot: &Slot, expiry: Expiry) -> Result<usize, Error> {
        let own_transaction = depth::depth(conn)? == 0;
        autocommit_retry(conn, |conn| {
            if own_transaction && expiry == Expiry::Unexpired {
                slot_sql::ReleaseAsync { key: key(slot) }.execute(conn)
            } else {
                release(conn, slot, expiry)
            }
        })
    }

    fn release_unused(conn: &mut Self, slot: &Slot) -> Result<usize, Error> {
        autocommit_retry(conn, |conn| release_unused(conn, slot))
    }

    fn pin(conn: &mut Self, slot: &Slot) -> Result<bool, Error> {
        let pin = slot_sql::Pin { key: key(slot) };
        let pinned: Option<i32> = pin.get_result(conn).optional()?;
        Ok(pinned.is_some())
    }

    fn list_held(conn: &mut Self, name: &str) -> Result<Vec<HeldRow>, Error> {
        autocommit_retry(conn, |conn| slot_sql::held_slots(name).load(conn))
    }

    fn list_held_nowait(conn: &mut Self, name: &str) -> Result<Option<Vec<HeldRow>>, Error> {
        nowait(conn, |conn| slot_sql::held_slots(name).load(conn))
    }

    fn first_slot_nowait(conn: &mut Self, name: &str) -> Result<FirstSlot, Error> {
        let row: Option<Option<SlotTimesRow>> = nowait(conn, |conn| {
            slot_sql::first_slot(name).get_result(conn).optional()
        })?;
        Ok(row.map_or(FirstSlot::TableLocked, FirstSlot::from))
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
        autocommit_retry(conn, |conn| slot_sql::now().get_result(conn))
    }

    fn release_all(conn: &mut Self, name: &str) -> Result<usize, Error> {
        force_release(conn, name)
    }

    fn purge_unused_slots(conn: &mut Self, age_us: i64) -> Result<usize, Error> {
        purge(conn, age_us)
    }

    fn release_batch(conn: &mut Self, leases: &[RenewalRequest]) -> Result<Vec<Vec<u8>>, Error> {
        autocommit_retry(conn, |conn| {
            let asked = Asked::new(leases);
            ReleaseBatch { asked }.load(conn)
        })
    }

    fn renew_batch(
        conn: &mut Self,
        leases: &[RenewalRequest],
    ) -> Result<Vec<RenewalResult>, Error> {
        let rows: Vec<(Vec<u8>, i64)> = autocommit_retry(conn, |conn| {
            let asked = Asked::new(leases);
            RenewBatch { asked }.load(conn)
        })?;
        Ok(rows
            .into_iter()
            .map(|(token, remaining_us)| RenewalResult {
                token,
                remaining_us,
            })
            .collect())
    }
}

/// Runs a query that returns `None` instead of waiting while another session has the table locked. The limit ends with the
/// transaction or savepoint, which is always rolled back.
fn nowait<T>(
    conn: &mut PgConnection,
    query: impl FnOnce(&mut PgConnection) -> QueryResult<T>,
) -> Result<Option<T>, Error> {
    let own_transaction = depth::depth(conn)? == 0;
    if own_transaction {
        super::begin(conn, slot_sql::BEGIN_NOWAIT)?;
    } else {
        conn.batch_execute(slot_sql::SAVEPOINT_NOWAIT)?;
    }
    let rows = query(conn);
    let ended = if own_transaction {
        AnsiTransactionManager::rollback_transaction(conn)
    } else {
        conn.batch_execute(sql::ROLLBACK_TO_SAVEPOINT)
    };
    let rows = match rows {
        Err(error) if classify(&error) == ErrorClass::LockTimeout => None,
        rows => Some(rows?),
    };
    ended?;
    Ok(rows)
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

/// Whether the statement ended by the `lock_timeout` that `diesel_locks_acquire_slot` sets.
fn is_lock_timeout(error: &Error) -> bool {
    matches!(error, Error::StatementTimeout { source } if classify(source) == ErrorClass::LockTimeout)
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
            return Err(unsuitable_isolation(semaphore.to_string(), level));
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
