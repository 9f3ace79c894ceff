//! Slots of semaphores on SQLite. A read tells whether a slot is free, and only then a write transaction leases one.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use diesel::QueryResult;
use diesel::dsl::auto_type;
use diesel::prelude::{ExpressionMethods, QueryDsl};
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::sql_types::{BigInt, Binary, Integer, Nullable, Text};
use diesel::sqlite::Sqlite;

use uuid::Uuid;

use crate::engine::dialect::{DbNow, Dialect, LeaseRemaining};
use crate::engine::literal;
use crate::engine::slot_queries::{
    self, Key, Lease, held_slots, insert_fence_floor, list_held, list_semaphores, set_fence_floor,
    update_slot, with_slots,
};
use crate::engine::slots::{
    AttemptContext, AttemptOutcome, BatchOutcome, Change, Expiry, Grant, HeldRow, HeldSlot,
    LeaseRequest, RaiseOutcome, RegisteredPermits, ReleaseKind, SemaphoreBackend, SemaphoreRow,
    classify_refusal, lowest_grantable, renewed,
};
use crate::engine::sqlite::write_lock::{
    Deadline, acquire_write_lock, begin_change, ensure_writer,
};
use crate::engine::sqlite::{Path, SqliteEngine, end};
use crate::engine::tables::{Named, SLOTS, assert_changed, diesel_locks_slots as slots, in_range};
use crate::link::raw_sql::{push, statement};
use crate::link::{Link, depth};
use crate::values::fence;
use crate::values::lease::{RenewalRequest, RenewalResult};
use crate::values::list_options::ListRequest;
use crate::values::slot::{FirstSlot, SlotTimes};
use crate::{Error, Semaphore, Slot, Wait};

/// Awaits `$work` with the write lock, in the open transaction or in one of its own.
macro_rules! write {
    ($conn:expr, $work:expr) => {{
        let own_transaction = begin_change($conn).await?;
        let work = $work.await;
        if own_transaction {
            end($conn, work).await
        } else {
            work
        }
    }};
}

#[async_trait]
impl<C: Link<Db = Sqlite>> SemaphoreBackend for SqliteEngine<'_, C> {
    fn clock_resolution(&self) -> Duration {
        Duration::from_millis(1)
    }

    async fn database_id(&mut self) -> Result<Option<String>, Error> {
        let file: String = self.0.get_result(Path {}).await?;
        Ok((!file.is_empty()).then(|| format!("sqlite {file}")))
    }

    /// An open transaction acquires the write lock first: one that has read could not wait for another writer.
    async fn registered_permits(&mut self, name: &str) -> Result<RegisteredPermits, Error> {
        if depth::depth(self.0.status())? > 0 {
            ensure_writer(self.0).await?;
        }
        let permits = self.0.get_optional(slot_queries::permits(Named(name)));
        let permits: Option<i32> = permits.await?;
        Ok(permits.map_or(RegisteredPermits::Missing, RegisteredPermits::Number))
    }

    async fn try_lease(
        &mut self,
        request: &LeaseRequest<'_>,
        context: &AttemptContext,
    ) -> Result<AttemptOutcome, Error> {
        let conn = &mut *self.0;
        // If all slots are leased, no write is needed. An open transaction that has read could not wait for another writer.
        if !context.in_transaction
            && let Err(refusal) = find_free(conn, request.semaphore, context).await?
        {
            return Ok(refusal);
        }
        write!(conn, async {
            let free = match find_free(conn, request.semaphore, context).await? {
                Ok(free) => free,
                Err(refusal) => return Ok(refusal),
            };
            // SQLite's clock counts milliseconds, and several grants may happen in one. With one writer at a time, the
            // floor is the fence of the last grant.
            let last = fence_floor(conn).await?;
            let now_us = conn.get_result(slot_queries::now()).await?;
            let grant = Grant {
                number: free.number,
                fence: fence::next(last.max(free.fence), now_us, free.number),
            };
            let holder = Named(request.holder);
            let lease = Lease {
                request,
                holder,
                grant,
            };
            // The lease begins at this statement, after the wait for other writers.
            let since = Instant::now();
            let granted = conn.execute(GrantLease { lease }).await?;
            if granted == 0
                && let Err(refusal) = find_free(conn, request.semaphore, context).await?
            {
                return Ok(refusal);
            }
            assert_changed(granted, SLOTS)?;
            conn.execute(set_fence_floor(grant.fence)).await?;
            Ok(AttemptOutcome::LeasedSince(grant, since))
        })
    }

    async fn begin_hold(&mut self) -> Result<bool, Error> {
        let outcome = acquire_write_lock(self.0, &Deadline::new(Wait::No), None).await?;
        Ok(outcome.is_acquired())
    }

    /// No other session writes until the transaction ends, so any free slot may be granted.
    async fn try_hold(
        &mut self,
        semaphore: &Semaphore,
        context: &AttemptContext,
    ) -> Result<AttemptOutcome, Error> {
        if depth::depth(self.0.status())? > 1 {
            ensure_writer(self.0).await?;
        }
        let free = match find_free(self.0, semaphore, context).await? {
            Ok(free) => free,
            Err(refusal) => return Ok(refusal),
        };
        // The holder of an expired lease on the slot must not renew it after another has held the slot.
        let clear = slot_queries::clear_token(Named(semaphore.name()), free.number);
        self.0.execute(clear).await?;
        Ok(AttemptOutcome::Granted(free))
    }

    async fn find_candidates(&mut self, semaphore: &Semaphore) -> Result<AttemptOutcome, Error> {
        let name = Named(semaphore.name());
        let slots: i64 = self.0.get_result(slot_queries::count_slots(name)).await?;
        let free: Vec<i32> = self.0.load(slot_queries::free(name)).await?;
        let candidates = lowest_grantable(free, slots, semaphore.permits_i32());
        Ok(AttemptOutcome::Candidates(candidates))
    }

    async fn create_batch(
        &mut self,
        semaphore: &Semaphore,
        _: bool,
    ) -> Result<BatchOutcome, Error> {
        let (name, permits) = (Named(semaphore.name()), semaphore.permits_i32());
        let conn = &mut *self.0;
        write!(conn, async {
            let fence = fence_floor(conn).await?;
            let last: Option<i32> = conn.get_optional(slot_queries::last_number(name)).await?;
            for number in last.unwrap_or(0) + 1..=permits {
                let slot = slot_queries::new_slot(name, number, fence);
                let insert = diesel::insert_into(slots::table).values(slot);
                assert_changed(conn.execute(insert).await?, SLOTS)?;
            }
            Ok(BatchOutcome::Complete)
        })
    }

    async fn create_fence_floor(&mut self) -> Result<(), Error> {
        write!(self.0, async { fence_floor(self.0).await.map(drop) })
    }

    async fn raise_fence_floor(&mut self, by: Duration) -> Result<RaiseOutcome, Error> {
        let conn = &mut *self.0;
        write!(conn, async {
            let last = fence_floor(conn).await?.max(largest_fence(conn).await?);
            let Some(raised) = fence::raised(last, by) else {
                return Ok(RaiseOutcome::TooLarge);
            };
            conn.execute(set_fence_floor(raised)).await?;
            Ok(RaiseOutcome::RaisedTo(raised))
        })
    }

    async fn register(&mut self, semaphore: &Semaphore) -> Result<(), Error> {
        let register = slot_queries::register(Named(semaphore.name()), semaphore.permits_i32());
        write!(self.0, async {
            self.0.execute(register).await?;
            Ok(())
        })
    }

    async fn change(
        &mut self,
        slot: &Slot,
        change: Change<'_>,
        expiry: Expiry,
    ) -> Result<usize, Error> {
        write!(self.0, async {
            Ok(update_slot(self.0, slot, change, expiry, "").await?)
        })
    }

    fn release_unused_statement(&self, semaphore: &str, tokens: &[Uuid]) -> String {
        let mut name = String::new();
        literal::push_for_sqlite(&mut name, semaphore);
        slot_queries::release_unused::<Sqlite>(&name, tokens, ["x'", "'"])
    }

    async fn pin(&mut self, slot: &Slot) -> Result<bool, Error> {
        ensure_writer(self.0).await?;
        let key = Key::of(slot, true);
        let pinned: Option<i32> = self.0.get_optional(Pin { key }).await?;
        Ok(pinned.is_some())
    }

    async fn list_held_nowait(&mut self, name: &str) -> Result<Option<Vec<HeldSlot>>, Error> {
        Ok(Some(self.0.load(held_slots(Named(name))).await?))
    }

    async fn first_slot_nowait(&mut self, name: &str) -> Result<FirstSlot, Error> {
        let row: Option<SlotTimes> = self.0.get_optional(first_slot(Named(name))).await?;
        Ok(row.into())
    }

    async fn list_held(&mut self, request: &ListRequest) -> Result<Vec<(String, HeldRow)>, Error> {
        let query = list_held(request.limit).into_boxed::<Sqlite>();
        let query = in_range(query, slots::name, &request.names);
        Ok(self.0.load(query).await?)
    }

    async fn list_semaphores(&mut self, request: &ListRequest) -> Result<Vec<SemaphoreRow>, Error> {
        let query = list_semaphores(request.limit).into_boxed::<Sqlite>();
        let query = in_range(query, slots::name, &request.names);
        Ok(self.0.load(query).await?)
    }

    async fn now_us(&mut self) -> Result<i64, Error> {
        Ok(self.0.get_result(slot_queries::now()).await?)
    }

    async fn release_all(&mut self, name: &str) -> Result<usize, Error> {
        let (conn, name) = (&mut *self.0, Named(name));
        write!(conn, async {
            let taken: Vec<(i32, bool)> = conn.load(slot_queries::held_numbers(name)).await?;
            for (number, _) in &taken {
                let release = slot_queries::force_release(name, *number);
                conn.execute(release).await?;
            }
            Ok(taken.iter().filter(|(_, unexpired)| *unexpired).count())
        })
    }

    #[cfg(feature = "testing")]
    async fn expire(&mut self, name: &str, by_us: i64) -> Result<usize, Error> {
        let conn = &mut *self.0;
        let expire = slot_queries::expire(Named(name), by_us);
        write!(conn, async { Ok(conn.execute(expire).await?) })
    }

    async fn purge_unused_slots(&mut self, age_us: i64) -> Result<usize, Error> {
        let conn = &mut *self.0;
        write!(conn, async {
            let semaphores: Vec<String> = conn.load(with_slots()).await?;
            let mut purged = 0;
            for name in semaphores {
                let name = Named(&name);
                let retained = slot_queries::last_retained(name, age_us);
                let above = conn.get_optional(retained).await?.unwrap_or(0);
                let last_fence = slots::table
                    .filter(slots::name.eq(name))
                    .filter(slots::number.gt(above))
                    .order(slots::fence.desc())
                    .limit(1_i64)
                    .select(slots::fence);
                let last_fence: Option<i64> = conn.get_optional(last_fence).await?;
                let floor = fence_floor(conn).await?;
                if let Some(fence) = last_fence.filter(|fence| *fence > floor) {
                    conn.execute(set_fence_floor(fence)).await?;
                }
                let delete = slot_queries::delete_above(name, above);
                purged += conn.execute(delete).await?;
            }
            Ok(purged)
        })
    }

    async fn release_batch(
        &mut self,
        leases: &[RenewalRequest],
        kind: ReleaseKind,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let conn = &mut *self.0;
        write!(conn, async {
            let asked = Asked(RenewalRequest::as_json_of_texts(leases));
            conn.execute(ReleaseBatch { asked, kind }).await?;
            Ok(Vec::new())
        })
    }

    async fn renew_batch(
        &mut self,
        leases: &[RenewalRequest],
    ) -> Result<Vec<RenewalResult>, Error> {
        write!(self.0, async {
            let asked = Asked(RenewalRequest::as_json_of_texts(leases));
            let rows: Vec<(Option<Vec<u8>>, i64, i64)> = self.0.load(RenewBatch { asked }).await?;
            let of_row =
                |(token, left, asked): (Option<_>, _, _)| Some(renewed((token?, left, asked)));
            Ok(rows.into_iter().filter_map(of_row).collect())
        })
    }
}

/// Returns the largest fence granted so far. Inserts its row again if it is missing.
async fn fence_floor(conn: &mut impl Link<Db = Sqlite>) -> Result<i64, Error> {
    if let Some(fence) = conn.get_optional(slot_queries::fence_floor()).await? {
        return Ok(fence);
    }
    let fence = largest_fence(conn).await?;
    conn.execute(insert_fence_floor(fence)).await?;
    Ok(fence)
}

async fn largest_fence(conn: &mut impl Link<Db = Sqlite>) -> Result<i64, Error> {
    let last: Option<i64> = conn.get_result(slot_queries::last_fence()).await?;
    let now_us = conn.get_result(slot_queries::now()).await?;
    Ok(last.unwrap_or(0).max(fence::at(now_us)))
}

async fn find_free(
    conn: &mut impl Link<Db = Sqlite>,
    semaphore: &Semaphore,
    context: &AttemptContext,
) -> Result<Result<Grant, AttemptOutcome>, Error> {
    let (name, permits) = (semaphore.name(), semaphore.permits_i32());
    // In one statement, because between two another session may add or remove slots.
    let (slots, free) = match &context.candidates {
        None => {
            let look = FindFree { name, permits };
            let found: (_, Option<_>, Option<_>) = conn.get_result(look).await?;
            let (slots, number, fence) = found;
            (slots, number.zip(fence))
        }
        Some(open) => {
            let free = slots::table
                .filter(slots::name.eq(Named(name)))
                .filter(slots::number.eq_any(open))
                .filter(slots::expires_us.le(DbNow))
                .order(slots::number)
                .limit(1_i64)
                .select((slots::number, slots::fence));
            (None, conn.get_optional(free).await?)
        }
    };
    // Rows are not locked on SQLite, so `any_free` is false; free slots above the number of permits don't count.
    Ok(free
        .map(|(number, fence)| Grant { number, fence })
        .ok_or_else(|| classify_refusal(slots, permits, false, context)))
}

statement! {
    Sqlite;
    Pin<'a> { key: Key<'a> } -> Integer,
    |self| { "SELECT number FROM diesel_locks_slots"; [&self.key] }

    /// Reads the last slot's number; finds a free slot, unless there are more slots than permits, and reads its number and fence.
    FindFree<'a> { name: &'a str, permits: i32 } ->
        (Nullable<Integer>, Nullable<Integer>, Nullable<BigInt>),
    |self| {
        "SELECT seen.slots, free.number, free.fence FROM (SELECT (SELECT MAX(number) FROM diesel_locks_slots \
         WHERE name = ", Text = self.name;
        ") AS slots) AS seen LEFT JOIN (SELECT number, fence FROM diesel_locks_slots WHERE name = ",
        Text = self.name;
        " AND expires_us <= "; {Sqlite::NOW};
        " ORDER BY expires_us LIMIT 1) AS free ON seen.slots <= ", Integer = &self.permits;
    }

    /// Changes no row if the clock was set back after the caller found the slot free. The caller holds the write lock.
    GrantLease<'a> { lease: Lease<'a> } -> Integer,
    |self| {
        "UPDATE diesel_locks_slots"; [&self.lease];
        " WHERE name = ", Text = self.lease.request.semaphore.name();
        " AND number = ", Integer = &self.lease.grant.number;
        " AND expires_us <= "; {Sqlite::NOW};
    }

    RenewBatch { asked: Asked } -> (Nullable<Binary>, BigInt, BigInt),
    |self| {
        "UPDATE diesel_locks_slots SET expires_us = MAX(hold_until_us, "; {Sqlite::NOW}; " + asked.lease_us)";
        [&self.asked]; " AND expires_us > "; {Sqlite::NOW};
        " RETURNING diesel_locks_slots.token, expires_us - "; {Sqlite::NOW}; ", release_requested_us"
    }

    ReleaseBatch { asked: Asked, kind: ReleaseKind } -> BigInt, by text,
    |self| { "UPDATE diesel_locks_slots"; {self.kind.set()}; [&self.asked] }
}

#[auto_type]
fn first_slot<'a>(name: Named<'a>) -> _ {
    slots::table
        .filter(slots::name.eq(name))
        .filter(slots::number.eq(1_i32))
        .select((
            slots::fence,
            slots::acquired_us,
            slots::hold_until_us,
            LeaseRemaining,
        ))
}

/// The requested leases, as JSON: a table, and the condition that joins a slot with its lease.
pub(crate) struct Asked(String);

impl QueryFragment<Sqlite> for Asked {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        push!(out;
            " FROM (SELECT value ->> 'name' AS name, value ->> 'number' AS number, \
             upper(value ->> 'token') AS token, value ->> 'lease_us' AS lease_us FROM json_each(", Text = self.0.as_str();
            ")) AS asked WHERE diesel_locks_slots.name = asked.name AND diesel_locks_slots.number = asked.number \
             AND hex(diesel_locks_slots.token) = asked.token";
        );
        Ok(())
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use diesel::connection::SimpleConnection;
    use diesel::sql_types::Bool;
    use diesel::{Connection, RunQueryDsl, SqliteConnection};
    use proptest::prelude::*;

    use super::*;
    use crate::{LeaseOptions, SemaphoreExt};

    const ENCODINGS: [&str; 3] = ["UTF-8", "UTF-16le", "UTF-16be"];

    fn in_memory(encoding: &str) -> SqliteConnection {
        let mut conn = SqliteConnection::establish(":memory:").expect("a database");
        conn.batch_execute(&format!("PRAGMA encoding = '{encoding}'"))
            .expect("PRAGMA");
        conn
    }

    #[test]
    fn slot_of_a_dropped_acquisition_is_released_whatever_the_encoding() {
        for encoding in ENCODINGS {
            let mut conn = in_memory(encoding);
            crate::migrate(&mut conn).expect("migrate");
            let semaphore = Semaphore::new("a'b\"c\\d é漢🔒", 1);
            let lease = LeaseOptions::new(Duration::from_secs(60));
            let slot = conn.acquire_slot(&semaphore, lease, Wait::No);
            let token = slot.expect("free").token;
            let release =
                SqliteEngine(&mut conn).release_unused_statement(semaphore.name(), &[token]);
            let released = diesel::sql_query(&release).execute(&mut conn);
            assert_eq!(released, Ok(1), "{encoding}: {release}");
        }
    }

    proptest! {
        #[test]
        fn literals_mean_their_texts(text in prop_oneof![any::<String>(), "[ -~]{0,12}"]) {
            let text = text.replace('\0', "");
            for encoding in ENCODINGS {
                let mut literal = String::new();
                literal::push_for_sqlite(&mut literal, &text);
                let is_same = diesel::dsl::sql::<Bool>(&literal)
                    .sql(" = ")
                    .bind::<Text, _>(&text);
                let is_same = diesel::select(is_same).get_result(&mut in_memory(encoding));
                prop_assert_eq!(is_same, Ok(true), "{}: {}", encoding, literal);
            }
        }
    }
}
