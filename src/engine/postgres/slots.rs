//! Slots of semaphores on PostgreSQL. One call of a function finds a free slot that is not locked and acquires it, or
//! returns why there is none.

use std::cell::Cell;
use std::time::{Duration, Instant};

use diesel::pg::Pg;
use diesel::{OptionalExtension, QueryResult};

use super::protected::{
    SLOTS, ensure_changed, ensure_floor_is_lockable, ensure_slot_is_lockable, ensure_visible,
};
use super::slot_sql::batch::{Asked, ReleaseBatch, ReleaseUnusedBatch, RenewBatch};
use super::slot_sql::{self, Acquired, LOCK_TIMEOUT};
use super::{is_own_lock_timeout, lists, sql, unsuitable_isolation};
use crate::engine::literal;
use crate::engine::slot_methods::{locking_slot_methods, slot_methods};
use crate::inspect::list_options::ListRequest;
use crate::link::{self, Link};
use crate::semaphore::backend::{
    AttemptContext, AttemptOutcome, BatchOutcome, Grant, HeldRow, HeldSlot, LeaseRequest,
    RaiseOutcome, ReleaseKind, SemaphoreBackend, SemaphoreRow, classify_refusal, lowest_grantable,
};
use crate::semaphore::renewal::{RenewalRequest, RenewalResult};
use crate::semaphore::slot_times::{FirstSlot, SlotTimesRow};
use crate::{Error, Semaphore, Slot, backoff, transaction::depth};

/// Runs `$work` in a transaction in which each statement sees what was committed before it.
macro_rules! at_read_committed {
    ($conn:expr, $work:expr) => {
        match super::begin($conn, sql::BEGIN).await {
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
    Pg,
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
        if let Err(Error::UntrackedTransaction { .. }) = &row {
            let (name, token) = (request.semaphore.name(), &request.token);
            let undo = <Self as SemaphoreBackend<C>>::release_unused_statement(name, token);
            if let Err(error) = conn.batch(&undo).await {
                tracing::debug!(%error, "the application's transaction has failed");
            }
        }
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
    ) -> Result<Option<Vec<i32>>, Error> {
        // The rollback unlocks the rows, which would otherwise stay locked until the transaction ends.
        let begun = begin_nowait(conn).await?;
        let looked = look(conn, semaphore).await;
        end_nowait(conn, begun, looked).await
    }

    async fn resize_in_progress(conn: &mut C) -> Result<bool, Error> {
        let begun = begin_nowait(conn).await?;
        let locked = floor_is_locked(conn).await;
        // The table is locked, for an unknown time.
        Ok(end_nowait(conn, begun, locked).await? == Some(true))
    }

    async fn create_batch(
        conn: &mut C,
        semaphore: &Semaphore,
        block: bool,
    ) -> Result<BatchOutcome, Error> {
        let (name, permits) = (semaphore.name(), semaphore.permits_i32());
        let begin = if block {
            sql::BEGIN
        } else {
            slot_sql::BEGIN_NOWAIT
        };
        super::begin(conn, begin).await?;
        let since = Instant::now();
        let added = match create_batch(conn, name, permits, block).await {
            Err(error) if !block && is_own_lock_timeout(&error, since, LOCK_TIMEOUT) => {
                conn.roll_back().await?;
                return Ok(BatchOutcome::TableLocked);
            }
            added => link::end(conn, added).await?,
        };
        if added == BatchOutcome::Contended {
            ensure_floor_is_lockable(conn).await?;
        }
        Ok(added)
    }

    async fn create_fence_floor(conn: &mut C) -> Result<(), Error> {
        insert_fence_floor(conn).await?;
        let floor: Vec<i64> = autocommit_retry!(conn, conn.load(slot_sql::fence_floor()).await)?;
        assert_changed(floor.len(), FENCES_TABLE)?;
        ensure_floor_is_lockable(conn).await
    }

    async fn raise_fence_floor(conn: &mut C, by: Duration) -> Result<RaiseOutcome, Error> {
        at_read_committed!(conn, raise_fence_floor(conn, by).await)
    }

    async fn register(conn: &mut C, semaphore: &Semaphore) -> Result<(), Error> {
        let register = || slot_sql::register(semaphore.name(), semaphore.permits_i32());
        let registered = autocommit_retry!(conn, conn.execute(register()).await)?;
        assert_changed(registered, "diesel_locks_semaphores")?;
        Ok(())
    }

    async fn renew_one(
        conn: &mut C,
        slot: &Slot,
        lease_us: i64,
        expiry: Expiry,
    ) -> Result<usize, Error> {
        let renewed = autocommit_retry!(conn, renew(conn, slot, lease_us, expiry).await)?;
        ensure_changed(conn, slot, expiry, renewed).await
    }

    async fn release(conn: &mut C, slot: &Slot, expiry: Expiry) -> Result<usize, Error> {
        let own_transaction = depth::depth(conn)? == 0;
        let released = if own_transaction && expiry == Expiry::Unexpired {
            let release = || slot_sql::ReleaseAsync { key: key(slot) };
            autocommit_retry!(conn, conn.execute(release()).await)
        } else {
            autocommit_retry!(conn, release(conn, slot, expiry).await)
        };
        ensure_changed(conn, slot, expiry, released?).await
    }

    fn release_unused_statement(semaphore: &str, token: &[u8]) -> String {
        let mut name = String::new();
        literal::push_for_postgres(&mut name, semaphore);
        let token = literal::hexadecimal(token);
        slot_sql::release_unused_text(&name, &format!("decode('{token}', 'hex')"))
    }

    async fn release_unused(conn: &mut C, slot: &Slot) -> Result<usize, Error> {
        let released = autocommit_retry!(conn, release_unused(conn, slot).await)?;
        ensure_changed(conn, slot, Expiry::IncludeExpired, released).await
    }

    async fn pin(conn: &mut C, slot: &Slot) -> Result<bool, Error> {
        let pin = slot_sql::Pin { key: key(slot) };
        let pinned: Option<i32> = conn.get_result(pin).await.optional()?;
        let pinned = usize::from(pinned.is_some());
        Ok(ensure_changed(conn, slot, Expiry::IncludeExpired, pinned).await? > 0)
    }

    async fn list_held_nowait(conn: &mut C, name: &str) -> Result<Option<Vec<HeldSlot>>, Error> {
        let begun = begin_nowait(conn).await?;
        let rows = conn.load(slot_sql::held_slots(name)).await;
        end_nowait(conn, begun, rows).await
    }

    async fn first_slot_nowait(conn: &mut C, name: &str) -> Result<FirstSlot, Error> {
        let begun = begin_nowait(conn).await?;
        let row = conn.get_result(slot_sql::first_slot(name)).await;
        let row = end_nowait(conn, begun, row.optional()).await?;
        let row: Option<Option<SlotTimesRow>> = row;
        Ok(row.map_or(FirstSlot::TableLocked, FirstSlot::from))
    }

    async fn list_held(
        conn: &mut C,
        request: &ListRequest,
    ) -> Result<Vec<(String, HeldRow)>, Error> {
        let rows = autocommit_retry!(conn, lists::held_slots(conn, request).await)?;
        ensure_visible(conn, SLOTS, !rows.is_empty()).await?;
        Ok(rows)
    }

    async fn list_semaphores(
        conn: &mut C,
        request: &ListRequest,
    ) -> Result<Vec<SemaphoreRow>, Error> {
        let rows = autocommit_retry!(conn, lists::semaphores(conn, request).await)?;
        ensure_visible(conn, SLOTS, !rows.is_empty()).await?;
        Ok(rows)
    }

    async fn now_us(conn: &mut C) -> Result<i64, Error> {
        autocommit_retry!(conn, conn.get_result(slot_sql::now()).await)
    }

    async fn release_all(conn: &mut C, name: &str) -> Result<usize, Error> {
        let released = force_release(conn, name).await?;
        if released == 0 {
            let held: Vec<(i32, bool)> =
                autocommit_retry!(conn, conn.load(slot_sql::held_numbers(name)).await)?;
            let held = held
                .into_iter()
                .map(|(number, _)| (name.to_owned(), number));
            ensure_slot_is_lockable(conn, held.collect()).await?;
        }
        Ok(released)
    }

    async fn purge_unused_slots(conn: &mut C, age_us: i64) -> Result<usize, Error> {
        let purged = purge(conn, age_us).await?;
        if purged == 0 {
            let free = autocommit_retry!(conn, conn.load(slot_sql::any_free()).await)?;
            ensure_slot_is_lockable(conn, free).await?;
        }
        Ok(purged)
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

/// What [`begin_nowait`] has begun.
pub(super) struct Nowait {
    own_transaction: bool,
    since: Instant,
}

/// Begins a transaction or savepoint for queries that fail instead of waiting while another session has the table locked.
/// The limit ends with it.
pub(super) async fn begin_nowait(conn: &mut impl Link<Backend = Pg>) -> Result<Nowait, Error> {
    let own_transaction = depth::depth(conn)? == 0;
    if own_transaction {
        super::begin(conn, slot_sql::BEGIN_NOWAIT).await?;
    } else {
        conn.batch(slot_sql::SAVEPOINT_NOWAIT).await?;
    }
    Ok(Nowait {
        own_transaction,
        since: Instant::now(),
    })
}

/// Rolls back what [`begin_nowait`] has begun. Returns `None` if another session has the table locked.
pub(super) async fn end_nowait<T>(
    conn: &mut impl Link<Backend = Pg>,
    begun: Nowait,
    rows: QueryResult<T>,
) -> Result<Option<T>, Error> {
    // Before the rollback, which takes time too.
    let table_is_locked = rows
        .as_ref()
        .is_err_and(|error| is_own_lock_timeout(error, begun.since, LOCK_TIMEOUT));
    let ended = if begun.own_transaction {
        conn.roll_back().await
    } else {
        conn.batch(sql::ROLLBACK_TO_SAVEPOINT).await
    };
    let rows = if table_is_locked { None } else { Some(rows?) };
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
async fn look(conn: &mut impl Link<Backend = Pg>, semaphore: &Semaphore) -> QueryResult<Vec<i32>> {
    let name = semaphore.name();
    let slots: i64 = conn.get_result(slot_sql::count(name)).await?;
    let free: Vec<i32> = conn.load(slot_sql::free_and_unlocked(name)).await?;
    Ok(lowest_grantable(free, slots, semaphore.permits_i32()))
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
    let answer = answer?;
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
            return Err(unsuitable_isolation(semaphore.slot_resource(), level));
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
