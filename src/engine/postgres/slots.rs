//! Slots of semaphores on PostgreSQL. One call of a function acquires a free slot, or returns why there is none.

use std::cell::Cell;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use diesel::QueryResult;
use diesel::dsl::select;
use diesel::pg::Pg;
use diesel::prelude::{ExpressionMethods, QueryDsl};

use uuid::Uuid;

use crate::engine::ending::autocommit_retry;
use crate::engine::literal;
use crate::engine::postgres::protection::{
    ensure_changed, ensure_floor_is_lockable, ensure_slot_is_lockable, ensure_visible,
};
use crate::engine::postgres::slot_sql::{
    self, AcquireSlot, Acquired, Asked, LOCK_TIMEOUT, ReleaseBatch, RenewBatch, WITHOUT_DISK,
    acquire_slot, add_slots, diesel_locks_permits, diesel_locks_unlocked, floor_is_locked,
    largest_fence, purge, raise,
};
use crate::engine::postgres::{
    PostgresEngine, begin, is_own_lock_timeout, sql, unsuitable_isolation,
};
use crate::engine::slot_queries::{
    self, FENCE_ROW_ID, Key, held_numbers, list_held, list_semaphores, update_slot,
};
use crate::engine::slots::SemaphoreBackend;
use crate::engine::slots::{
    AttemptContext, AttemptOutcome, BatchOutcome, Change, Expiry, HeldRow, HeldSlot, LeaseRequest,
    RaiseOutcome, RegisteredPermits, ReleaseKind, SemaphoreRow, all_slots, classify_refusal,
    lowest_grantable, renewed,
};
use crate::engine::tables::{
    FENCES, Named, SEMAPHORES, SLOTS, assert_changed, diesel_locks_fences as fences,
    diesel_locks_semaphores as semaphores, diesel_locks_slots as slots, in_range,
};
use crate::link::{self, Link, depth};
use crate::rt::backoff;
use crate::values::lease::{RenewalRequest, RenewalResult};
use crate::values::list_options::ListRequest;
use crate::values::slot::{FirstSlot, SlotTimes};
use crate::{Error, Semaphore, Slot};

#[async_trait]
impl<C: Link<Db = Pg>> SemaphoreBackend for PostgresEngine<'_, C> {
    async fn database_id(&mut self) -> Result<Option<String>, Error> {
        let (name, table, started): (String, i64, i64) =
            autocommit_retry!(self.0, self.0.get_result(slot_sql::Database {}).await)?;
        Ok(Some(format!("postgres {name} {table} {started}")))
    }

    async fn registered_permits(&mut self, name: &str) -> Result<RegisteredPermits, Error> {
        let read = || select(diesel_locks_permits(name));
        let permits: Option<i32> = autocommit_retry!(self.0, self.0.get_result(read()).await)?;
        ensure_visible(self.0, SEMAPHORES, permits.is_some()).await?;
        Ok(match permits {
            Some(..=-1) => RegisteredPermits::TableLocked,
            Some(permits) => RegisteredPermits::Number(permits),
            None => RegisteredPermits::Missing,
        })
    }

    async fn try_lease(
        &mut self,
        request: &LeaseRequest<'_>,
        context: &AttemptContext,
    ) -> Result<AttemptOutcome, Error> {
        let acquire = AcquireSlot {
            in_transaction: context.in_transaction,
            token: Some(&request.token),
            holder: Some(request.holder),
            lease_us: request.lease_us,
            min_hold_us: request.min_hold_us,
            ..hold(request.semaphore, context)
        };
        let row = autocommit_retry!(self.0, acquire_slot(self.0, &acquire).await);
        outcome(row, request.semaphore, context)
    }

    async fn begin_hold(&mut self) -> Result<bool, Error> {
        begin(self.0, &sql::BEGIN).await?;
        Ok(true)
    }

    async fn try_hold(
        &mut self,
        semaphore: &Semaphore,
        context: &AttemptContext,
    ) -> Result<AttemptOutcome, Error> {
        let row = acquire_slot(self.0, &hold(semaphore, context)).await;
        outcome(row.map_err(Error::from), semaphore, context)
    }

    async fn find_candidates(&mut self, semaphore: &Semaphore) -> Result<AttemptOutcome, Error> {
        let begun = begin_nowait(self.0).await?;
        let found = find_candidates(self.0, semaphore).await;
        let found = end_nowait(self.0, begun, found).await?;
        Ok(found.unwrap_or(AttemptOutcome::TableLocked))
    }

    async fn resize_in_progress(&mut self) -> Result<bool, Error> {
        let begun = begin_nowait(self.0).await?;
        let locked = floor_is_locked(self.0).await;
        // The table is locked, for an unknown time.
        Ok(end_nowait(self.0, begun, locked).await? == Some(true))
    }

    async fn create_batch(
        &mut self,
        semaphore: &Semaphore,
        block: bool,
    ) -> Result<BatchOutcome, Error> {
        let conn = &mut *self.0;
        let message = if block {
            &sql::BEGIN
        } else {
            &slot_sql::BEGIN_NOWAIT
        };
        begin(conn, message).await?;
        let since = Instant::now();
        let added = match add_slots(conn, semaphore, block).await {
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

    async fn create_fence_floor(&mut self) -> Result<(), Error> {
        let conn = &mut *self.0;
        let last = autocommit_retry!(conn, largest_fence(conn).await)?;
        let insert = || {
            diesel::insert_into(fences::table)
                .values((fences::id.eq(FENCE_ROW_ID), fences::fence.eq(last)))
                .on_conflict_do_nothing()
        };
        autocommit_retry!(conn, conn.execute(insert()).await)?;
        let floor: Vec<i64> =
            autocommit_retry!(conn, conn.load(slot_queries::fence_floor()).await)?;
        assert_changed(floor.len(), FENCES)?;
        ensure_floor_is_lockable(conn).await
    }

    async fn raise_fence_floor(&mut self, by: Duration) -> Result<RaiseOutcome, Error> {
        begin(self.0, &sql::BEGIN).await?;
        let raised = raise(self.0, by).await;
        Ok(link::end(self.0, raised).await?)
    }

    async fn register(&mut self, semaphore: &Semaphore) -> Result<(), Error> {
        let permits = semaphores::permits.eq(semaphore.permits_i32());
        let register = || {
            diesel::insert_into(semaphores::table)
                .values((semaphores::name.eq(Named(semaphore.name())), permits))
                .on_conflict(semaphores::name)
                .do_update()
                .set(permits)
        };
        let registered = autocommit_retry!(self.0, self.0.execute(register()).await)?;
        assert_changed(registered, SEMAPHORES)
    }

    async fn change(
        &mut self,
        slot: &Slot,
        change: Change<'_>,
        expiry: Expiry,
    ) -> Result<usize, Error> {
        let conn = &mut *self.0;
        let is_release = change == Change::Release(ReleaseKind::Used);
        let own_transaction = depth::depth(conn.status())? == 0;
        let and = if is_release && own_transaction && expiry == Expiry::Unexpired {
            WITHOUT_DISK
        } else {
            ""
        };
        let changed = autocommit_retry!(conn, update_slot(conn, slot, change, expiry, and).await)?;
        ensure_changed(conn, slot, expiry, changed).await
    }

    fn release_unused_statement(&self, semaphore: &str, tokens: &[Uuid]) -> String {
        let mut name = String::new();
        literal::push_for_postgres(&mut name, semaphore);
        slot_queries::release_unused::<Pg>(&name, tokens, ["decode('", "', 'hex')"])
    }

    async fn pin(&mut self, slot: &Slot) -> Result<bool, Error> {
        let key = Key::of(slot, true);
        let pinned: Option<i32> = self.0.get_optional(slot_sql::Pin { key }).await?;
        let pinned = usize::from(pinned.is_some());
        Ok(ensure_changed(self.0, slot, Expiry::IncludeExpired, pinned).await? > 0)
    }

    async fn list_held_nowait(&mut self, name: &str) -> Result<Option<Vec<HeldSlot>>, Error> {
        let begun = begin_nowait(self.0).await?;
        let rows = self.0.load(slot_queries::held_slots(Named(name))).await;
        end_nowait(self.0, begun, rows).await
    }

    async fn first_slot_nowait(&mut self, name: &str) -> Result<FirstSlot, Error> {
        let conn = &mut *self.0;
        let begun = begin_nowait(conn).await?;
        let row = conn.get_optional(slot_sql::first_slot(Named(name))).await;
        let row: Option<Option<SlotTimes>> = end_nowait(conn, begun, row).await?;
        Ok(row.map_or(FirstSlot::TableLocked, FirstSlot::from))
    }

    async fn list_held(&mut self, request: &ListRequest) -> Result<Vec<(String, HeldRow)>, Error> {
        let query = || list_held(request.limit).into_boxed::<Pg>();
        let query = || in_range(query(), slots::name, &request.names);
        let rows: Vec<_> = autocommit_retry!(self.0, self.0.load(query()).await)?;
        ensure_visible(self.0, SLOTS, !rows.is_empty()).await?;
        Ok(rows)
    }

    async fn list_semaphores(&mut self, request: &ListRequest) -> Result<Vec<SemaphoreRow>, Error> {
        let query = || list_semaphores(request.limit).into_boxed::<Pg>();
        let query = || in_range(query(), slots::name, &request.names);
        let rows: Vec<_> = autocommit_retry!(self.0, self.0.load(query()).await)?;
        ensure_visible(self.0, SLOTS, !rows.is_empty()).await?;
        Ok(rows)
    }

    async fn now_us(&mut self) -> Result<i64, Error> {
        autocommit_retry!(self.0, self.0.get_result(slot_queries::now()).await)
    }

    async fn release_all(&mut self, name: &str) -> Result<usize, Error> {
        let conn = &mut *self.0;
        if depth::depth(conn.status())? > 0 {
            let refusal: Option<String> = conn
                .get_result(sql::acquire(Vec::new(), false, Vec::new()))
                .await?;
            if let Some(level) = refusal {
                return Err(unsuitable_isolation(all_slots(name), &level));
            }
        }
        let (semaphore, mut released) = (Named(name), 0);
        let held: Vec<_> = autocommit_retry!(conn, conn.load(held_numbers(semaphore)).await)?;
        for (number, unexpired) in held {
            let release = || slot_queries::force_release(semaphore, number);
            let freed = autocommit_retry!(conn, conn.execute(release()).await)?;
            released += if unexpired { freed } else { 0 };
        }
        if released == 0 {
            let held: Vec<(i32, bool)> =
                autocommit_retry!(conn, conn.load(held_numbers(semaphore)).await)?;
            let first = held.first().map(|(number, _)| (name.to_owned(), *number));
            ensure_slot_is_lockable(conn, first).await?;
        }
        Ok(released)
    }

    #[cfg(feature = "testing")]
    async fn expire(&mut self, name: &str, by_us: i64) -> Result<usize, Error> {
        let expire = || slot_queries::expire(Named(name), by_us);
        autocommit_retry!(self.0, self.0.execute(expire()).await)
    }

    async fn purge_unused_slots(&mut self, age_us: i64) -> Result<usize, Error> {
        let purged = purge(self.0, age_us).await?;
        if purged == 0 {
            let free = autocommit_retry!(self.0, self.0.load(slot_sql::any_free()).await)?;
            ensure_slot_is_lockable(self.0, free.into_iter().next()).await?;
        }
        Ok(purged)
    }

    async fn release_batch(
        &mut self,
        leases: &[RenewalRequest],
        kind: ReleaseKind,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let release = || ReleaseBatch {
            asked: Asked::new(leases),
            kind,
        };
        autocommit_retry!(self.0, self.0.load(release()).await)
    }

    async fn renew_batch(
        &mut self,
        leases: &[RenewalRequest],
    ) -> Result<Vec<RenewalResult>, Error> {
        let renew = || RenewBatch {
            asked: Asked::new(leases),
        };
        let rows: Vec<_> = autocommit_retry!(self.0, self.0.load(renew()).await)?;
        Ok(rows.into_iter().map(renewed).collect())
    }
}

pub(crate) struct Nowait {
    own_transaction: bool,
    since: Instant,
}

/// Begins a transaction or savepoint, in which queries fail instead of waiting while another session has the table locked.
pub(crate) async fn begin_nowait(conn: &mut impl Link<Db = Pg>) -> Result<Nowait, Error> {
    let own_transaction = depth::depth(conn.status())? == 0;
    if own_transaction {
        begin(conn, &slot_sql::BEGIN_NOWAIT).await?;
    } else {
        conn.batch(slot_sql::SAVEPOINT_NOWAIT).await?;
    }
    Ok(Nowait {
        own_transaction,
        since: Instant::now(),
    })
}

/// Rolls back what [`begin_nowait`] has begun. Returns `None` if another session has the table locked.
pub(crate) async fn end_nowait<T>(
    conn: &mut impl Link<Db = Pg>,
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

async fn find_candidates(
    conn: &mut impl Link<Db = Pg>,
    semaphore: &Semaphore,
) -> QueryResult<AttemptOutcome> {
    let name = semaphore.name();
    let slots: i64 = conn
        .get_result(slot_queries::count_slots(Named(name)))
        .await?;
    let grantable = |free| lowest_grantable(free, slots, semaphore.permits_i32());
    // Shows whether any may be granted, and locks, and so writes, nothing.
    let free = conn.load(slot_queries::free(Named(name))).await?;
    if grantable(free).is_empty() {
        return Ok(AttemptOutcome::AllLeased);
    }
    let unlocked: Vec<i32> = conn.get_result(select(diesel_locks_unlocked(name))).await?;
    Ok(AttemptOutcome::candidates(grantable(unlocked)))
}

thread_local! {
    /// The slot that this thread acquired last, where its next search starts. It is usually free again, so threads that
    /// share a semaphore rarely compete for the same slot.
    static LAST_ACQUIRED: Cell<i32> =
        Cell::new(i32::try_from(backoff::random_below(100)).map_or(1, |below| below + 1));
}

fn hold<'a>(semaphore: &'a Semaphore, context: &'a AttemptContext) -> AcquireSlot<'a> {
    let permits = semaphore.permits_i32();
    let first = context.preferred.unwrap_or_else(|| LAST_ACQUIRED.get());
    AcquireSlot {
        in_transaction: false,
        semaphore: semaphore.name(),
        permits,
        first: 1 + (first.max(1) - 1) % permits.max(1),
        candidates: context.candidates.as_deref(),
        token: None,
        holder: None,
        lease_us: 0,
        min_hold_us: 0,
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
    Ok(match acquired {
        Acquired::Granted(grant) => {
            LAST_ACQUIRED.set(grant.number);
            AttemptOutcome::Granted(grant)
        }
        Acquired::TableLocked => AttemptOutcome::TableLocked,
        Acquired::UnsuitableIsolation(level) => {
            return Err(unsuitable_isolation(semaphore.slot_resource(), level));
        }
        Acquired::Refused { slots, any_free } => {
            classify_refusal(Some(slots), semaphore.permits_i32(), any_free, context)
        }
    })
}
