//! Slots of semaphores on PostgreSQL. One call of a function finds a free slot that is not locked and acquires it, or
//! returns why there is none.

use std::cell::Cell;
use std::time::Duration;

use diesel::pg::Pg;
use diesel::{OptionalExtension, QueryResult};

use super::slot_sql::batch::{Asked, ReleaseBatch, ReleaseUnusedBatch, RenewBatch};
use super::slot_sql::{self, Acquired};
use super::{lists, sql, unsuitable_isolation};
use crate::engine::literal;
use crate::engine::slot_methods::{locking_slot_methods, slot_methods};
use crate::error::classify::{ErrorClass, classify};
use crate::inspect::list_options::ListRequest;
use crate::link::{self, Link};
use crate::semaphore::backend::{
    AttemptContext, AttemptOutcome, BatchOutcome, Grant, HeldRow, LeaseRequest, RaiseOutcome,
    ReleaseKind, SemaphoreBackend, SemaphoreRow, classify_refusal, lowest_grantable,
};
use crate::semaphore::renewal::{RenewalRequest, RenewalResult};
use crate::semaphore::slot_times::{FirstSlot, SlotTimesRow};
use crate::{Error, Semaphore, Slot, backoff, transaction::depth};

/// Runs `$work` in a transaction in which each statement sees what was committed before it.
macro_rules! at_read_committed {
    ($conn:expr, $work:expr) => {
        match $conn.begin(sql::BEGIN_READ_COMMITTED).await {
            Ok(()) => {
                let work = $work;
                crate::link::end($conn, work).await.map_err(Error::from)
            }
            Err(error) => Err(Error::from(error)),
        }
    };
}

slot_methods!(impl Link<Backend = Pg>, link, diesel::result::Error);
locking_slot_methods!(
    impl Link<Backend = Pg>,
    str,
    String,
    link,
    slot_sql::delete_above,
    diesel::result::Error
);

impl<C: Link<Backend = Pg>> SemaphoreBackend<C> for Pg {
    async fn database_id(conn: &mut C) -> Result<Option<String>, Error> {
        let (name, table, started): (String, i64, i64) =
            autocommit_retry!(conn, conn.get_result(slot_sql::Database {}).await)?;
        Ok(Some(format!("postgres {name} {table} {started}")))
    }

    async fn try_lease(
        conn: &mut C,
        request: &LeaseRequest<'_>,
        context: &AttemptContext,
    ) -> Result<AttemptOutcome, Error> {
        let row = lease(conn, request, context).await;
        outcome(row, request.semaphore, context)
    }

    async fn begin_hold(conn: &mut C) -> Result<bool, Error> {
        super::begin(conn, sql::BEGIN).await?;
        Ok(true)
    }

    async fn try_hold(
        conn: &mut C,
        semaphore: &Semaphore,
        context: &AttemptContext,
    ) -> Result<AttemptOutcome, Error> {
        let row = slot_sql::acquire_slot(conn, None, &filter(semaphore, context)).await;
        outcome(row.map_err(Error::from), semaphore, context)
    }

    async fn grantable_slots(
        conn: &mut C,
        semaphore: &Semaphore,
        in_transaction: bool,
    ) -> Result<Vec<i32>, Error> {
        // The savepoint's rollback unlocks the rows, which would otherwise stay locked until the transaction ends.
        if in_transaction {
            conn.batch(slot_sql::SAVEPOINT).await?;
        }
        let looked = look(conn, semaphore).await;
        if in_transaction {
            conn.batch(sql::ROLLBACK_TO_SAVEPOINT).await?;
        }
        looked
    }

    async fn resize_in_progress(conn: &mut C) -> Result<bool, Error> {
        autocommit_retry!(conn, floor_is_locked(conn).await)
    }

    async fn create_batch(
        conn: &mut C,
        semaphore: &Semaphore,
        block: bool,
    ) -> Result<BatchOutcome, Error> {
        let (name, permits) = (semaphore.name(), semaphore.permits_i32());
        at_read_committed!(conn, create_batch(conn, name, permits, block).await)
    }

    async fn create_fence_floor(conn: &mut C) -> Result<(), Error> {
        insert_fence_floor(conn).await
    }

    async fn raise_fence_floor(conn: &mut C, by: Duration) -> Result<RaiseOutcome, Error> {
        at_read_committed!(conn, raise_fence_floor(conn, by).await)
    }

    async fn register(conn: &mut C, semaphore: &Semaphore) -> Result<(), Error> {
        let register = || slot_sql::register(semaphore.name(), semaphore.permits_i32());
        autocommit_retry!(conn, conn.execute(register()).await)?;
        Ok(())
    }

    async fn renew_one(
        conn: &mut C,
        slot: &Slot,
        lease_us: i64,
        expiry: Expiry,
    ) -> Result<usize, Error> {
        autocommit_retry!(conn, renew(conn, slot, lease_us, expiry).await)
    }

    async fn release(conn: &mut C, slot: &Slot, expiry: Expiry) -> Result<usize, Error> {
        let own_transaction = depth::depth(conn)? == 0;
        if own_transaction && expiry == Expiry::Unexpired {
            let release = || slot_sql::ReleaseAsync { key: key(slot) };
            autocommit_retry!(conn, conn.execute(release()).await)
        } else {
            autocommit_retry!(conn, release(conn, slot, expiry).await)
        }
    }

    fn release_unused_statement(semaphore: &str, token: &[u8]) -> String {
        let mut name = String::new();
        literal::push_for_postgres(&mut name, semaphore);
        let token = literal::hexadecimal(token);
        slot_sql::release_unused_text(&name, &format!("decode('{token}', 'hex')"))
    }

    async fn release_unused(conn: &mut C, slot: &Slot) -> Result<usize, Error> {
        autocommit_retry!(conn, release_unused(conn, slot).await)
    }

    async fn pin(conn: &mut C, slot: &Slot) -> Result<bool, Error> {
        let pin = slot_sql::Pin { key: key(slot) };
        let pinned: Option<i32> = conn.get_result(pin).await.optional()?;
        Ok(pinned.is_some())
    }

    async fn list_held(conn: &mut C, name: &str) -> Result<Vec<HeldRow>, Error> {
        autocommit_retry!(conn, conn.load(slot_sql::held_slots(name)).await)
    }

    async fn list_held_nowait(conn: &mut C, name: &str) -> Result<Option<Vec<HeldRow>>, Error> {
        let own_transaction = begin_nowait(conn).await?;
        let rows = conn.load(slot_sql::held_slots(name)).await;
        end_nowait(conn, own_transaction, rows).await
    }

    async fn first_slot_nowait(conn: &mut C, name: &str) -> Result<FirstSlot, Error> {
        let own_transaction = begin_nowait(conn).await?;
        let row = conn.get_result(slot_sql::first_slot(name)).await;
        let row = end_nowait(conn, own_transaction, row.optional()).await?;
        let row: Option<Option<SlotTimesRow>> = row;
        Ok(row.map_or(FirstSlot::TableLocked, FirstSlot::from))
    }

    async fn list_all_held(
        conn: &mut C,
        request: &ListRequest,
    ) -> Result<Vec<(String, HeldRow)>, Error> {
        lists::list_all_held(conn, request).await
    }

    async fn list_semaphores(
        conn: &mut C,
        request: &ListRequest,
    ) -> Result<Vec<SemaphoreRow>, Error> {
        lists::list_semaphores(conn, request).await
    }

    async fn now_us(conn: &mut C) -> Result<i64, Error> {
        autocommit_retry!(conn, conn.get_result(slot_sql::now()).await)
    }

    async fn release_all(conn: &mut C, name: &str) -> Result<usize, Error> {
        force_release(conn, name).await
    }

    async fn purge_unused_slots(conn: &mut C, age_us: i64) -> Result<usize, Error> {
        purge(conn, age_us).await
    }

    async fn release_batch(
        conn: &mut C,
        leases: &[RenewalRequest],
        kind: ReleaseKind,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let asked = || Asked::new(leases);
        match kind {
            ReleaseKind::Used => {
                let release = || ReleaseBatch { asked: asked() };
                autocommit_retry!(conn, conn.load(release()).await)
            }
            ReleaseKind::Unused => {
                let release = || ReleaseUnusedBatch { asked: asked() };
                autocommit_retry!(conn, conn.load(release()).await)
            }
        }
    }

    async fn renew_batch(
        conn: &mut C,
        leases: &[RenewalRequest],
    ) -> Result<Vec<RenewalResult>, Error> {
        let renew = || RenewBatch {
            asked: Asked::new(leases),
        };
        let rows: Vec<(Vec<u8>, i64)> = autocommit_retry!(conn, conn.load(renew()).await)?;
        Ok(rows
            .into_iter()
            .map(|(token, remaining_us)| RenewalResult {
                token,
                remaining_us,
            })
            .collect())
    }
}

/// Begins a transaction or savepoint for a query that fails instead of waiting while another session has the table locked.
/// The limit ends with it. Returns whether it is a transaction.
async fn begin_nowait(conn: &mut impl Link<Backend = Pg>) -> Result<bool, Error> {
    let own_transaction = depth::depth(conn)? == 0;
    if own_transaction {
        super::begin(conn, slot_sql::BEGIN_NOWAIT).await?;
    } else {
        conn.batch(slot_sql::SAVEPOINT_NOWAIT).await?;
    }
    Ok(own_transaction)
}

/// Rolls back what [`begin_nowait`] has begun. Returns `None` if another session has the table locked.
async fn end_nowait<T>(
    conn: &mut impl Link<Backend = Pg>,
    own_transaction: bool,
    rows: QueryResult<T>,
) -> Result<Option<T>, Error> {
    let ended = if own_transaction {
        conn.roll_back().await
    } else {
        conn.batch(sql::ROLLBACK_TO_SAVEPOINT).await
    };
    let rows = match rows {
        Err(error) if classify(&error) == ErrorClass::LockTimeout => None,
        rows => Some(rows?),
    };
    ended?;
    Ok(rows)
}

async fn lease(
    conn: &mut impl Link<Backend = Pg>,
    request: &LeaseRequest<'_>,
    context: &AttemptContext,
) -> Result<i64, Error> {
    let filter = filter(request.semaphore, context);
    if context.in_transaction {
        autocommit_retry!(
            conn,
            slot_sql::acquire_slot_in_transaction(conn, request, &filter).await
        )
    } else {
        autocommit_retry!(
            conn,
            slot_sql::acquire_slot(conn, Some(request), &filter).await
        )
    }
}

/// The slots that may be granted.
async fn look(
    conn: &mut impl Link<Backend = Pg>,
    semaphore: &Semaphore,
) -> Result<Vec<i32>, Error> {
    let name = semaphore.name();
    let slots: i64 = autocommit_retry!(conn, conn.get_result(slot_sql::count(name)).await)?;
    let free: Vec<i32> =
        autocommit_retry!(conn, conn.load(slot_sql::free_and_unlocked(name)).await)?;
    Ok(lowest_grantable(free, slots, semaphore.permits_i32()))
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
