//! Slots of semaphores on SQLite. A read without the write lock tells whether a slot is free, and only then a write
//! transaction leases one.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use diesel::prelude::QueryDsl;
use diesel::sqlite::Sqlite;

use crate::engine::literal;
use crate::engine::operations::SemaphoreBackend;
use crate::engine::slot_queries::{
    self, Key, Release, ReleaseUnused, Renew, list_held, list_semaphores, update_slot,
};
use crate::engine::slots::{
    AttemptContext, AttemptOutcome, BatchOutcome, Expiry, Grant, HeldRow, HeldSlot, LeaseRequest,
    RaiseOutcome, ReleaseKind, SemaphoreRow, classify_refusal, lowest_grantable, renewed,
};
use crate::engine::sqlite::slot_sql::{self, Asked};
use crate::engine::sqlite::write_lock::{
    Deadline, acquire_write_lock, begin_change, ensure_writer,
};
use crate::engine::sqlite::{SqliteEngine, end};
use crate::engine::tables::{Named, SLOTS, assert_changed, diesel_locks_slots as slots, in_range};
use crate::link::{On, depth};
use crate::values::fence;
use crate::values::lease::{RenewalRequest, RenewalResult};
use crate::values::list_options::ListRequest;
use crate::values::lock_request::LockOutcome;
use crate::values::slot::{FirstSlot, SlotTimesRow};
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
impl<C: On<Sqlite>> SemaphoreBackend for SqliteEngine<'_, C> {
    fn clock_resolution(&self) -> Duration {
        Duration::from_millis(1)
    }

    async fn database_id(&mut self) -> Result<Option<String>, Error> {
        let file: String = self.0.get_result(slot_sql::Database {}).await?;
        Ok((!file.is_empty()).then(|| format!("sqlite {file}")))
    }

    async fn try_lease(
        &mut self,
        request: &LeaseRequest<'_>,
        context: &AttemptContext,
    ) -> Result<AttemptOutcome, Error> {
        let conn = &mut *self.0;
        // If all slots are leased, no write is needed. Not in an open transaction: one that has read can't wait for
        // another writer.
        if !context.in_transaction {
            let seen = find_free(conn, request.semaphore, context).await?;
            if let Err(refusal) = seen {
                return Ok(refusal);
            }
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
            let lease = slot_sql::grant(request, grant);
            // The lease begins at this statement, after the wait for other writers.
            let since = Instant::now();
            assert_changed(conn.execute(lease).await?, SLOTS)?;
            let set = slot_queries::set_fence_floor(grant.fence);
            conn.execute(set).await?;
            Ok(AttemptOutcome::LeasedSince(grant, since))
        })
    }

    async fn begin_hold(&mut self) -> Result<bool, Error> {
        let deadline = Deadline::new(Wait::No);
        let grant = acquire_write_lock(self.0, &deadline, None).await?;
        Ok(grant == LockOutcome::Acquired)
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
        let clear = slot_sql::clear_token(Named(semaphore.name()), free.number);
        self.0.execute(clear).await?;
        Ok(AttemptOutcome::Granted(free))
    }

    async fn grantable_slots(&mut self, semaphore: &Semaphore) -> Result<Option<Vec<i32>>, Error> {
        let name = Named(semaphore.name());
        let slots: i64 = self.0.get_result(slot_queries::count_slots(name)).await?;
        let free: Vec<i32> = self.0.load(slot_sql::free(name)).await?;
        Ok(Some(lowest_grantable(free, slots, semaphore.permits_i32())))
    }

    async fn resize_in_progress(&mut self) -> Result<bool, Error> {
        Ok(false)
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
            conn.execute(slot_queries::set_fence_floor(raised)).await?;
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

    async fn renew_one(
        &mut self,
        slot: &Slot,
        lease_us: i64,
        expiry: Expiry,
    ) -> Result<usize, Error> {
        write!(self.0, async {
            Ok(update_slot(self.0, Renew { lease_us }, slot, expiry).await?)
        })
    }

    async fn release(&mut self, slot: &Slot, expiry: Expiry) -> Result<usize, Error> {
        write!(self.0, async {
            Ok(update_slot(self.0, Release, slot, expiry).await?)
        })
    }

    fn release_unused_statement(&self, semaphore: &str, token: &[u8]) -> String {
        let mut name = String::new();
        literal::push_for_sqlite(&mut name, semaphore);
        let token = literal::hexadecimal(token);
        ReleaseUnused::text::<Sqlite>(&name, &format!("x'{token}'"))
    }

    async fn release_unused(&mut self, slot: &Slot) -> Result<usize, Error> {
        write!(self.0, async {
            Ok(update_slot(self.0, ReleaseUnused, slot, Expiry::IncludeExpired).await?)
        })
    }

    async fn pin(&mut self, slot: &Slot) -> Result<bool, Error> {
        ensure_writer(self.0).await?;
        let key = Key::of(slot, true);
        let pinned: Option<i32> = self.0.get_optional(slot_sql::Pin { key }).await?;
        Ok(pinned.is_some())
    }

    async fn list_held_nowait(&mut self, name: &str) -> Result<Option<Vec<HeldSlot>>, Error> {
        let held = slot_queries::held_slots(Named(name));
        Ok(Some(self.0.load(held).await?))
    }

    async fn first_slot_nowait(&mut self, name: &str) -> Result<FirstSlot, Error> {
        let first = slot_sql::first_slot(Named(name));
        let row: Option<SlotTimesRow> = self.0.get_optional(first).await?;
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

    async fn purge_unused_slots(&mut self, age_us: i64) -> Result<usize, Error> {
        let conn = &mut *self.0;
        write!(conn, async {
            let semaphores: Vec<(String, Option<i32>)> =
                conn.load(slot_queries::registered()).await?;
            let mut purged = 0;
            for (name, permits) in semaphores {
                let (name, permits) = (Named(&name), permits.unwrap_or(0));
                let retained = slot_queries::last_retained(name, age_us, permits);
                let above = conn.get_optional(retained).await?.unwrap_or(0);
                let last_fence = slot_sql::last_fence_above(name, above);
                let last_fence: Option<i64> = conn.get_optional(last_fence).await?;
                let floor = fence_floor(conn).await?;
                if let Some(fence) = last_fence.filter(|fence| *fence > floor) {
                    conn.execute(slot_queries::set_fence_floor(fence)).await?;
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
            let json = RenewalRequest::as_json_of_texts(leases);
            let asked = Asked(&json);
            match kind {
                ReleaseKind::Used => conn.execute(slot_sql::ReleaseBatch { asked }).await?,
                ReleaseKind::Unused => conn.execute(slot_sql::ReleaseUnusedBatch { asked }).await?,
            };
            Ok(Vec::new())
        })
    }

    async fn renew_batch(
        &mut self,
        leases: &[RenewalRequest],
    ) -> Result<Vec<RenewalResult>, Error> {
        write!(self.0, async {
            let json = RenewalRequest::as_json_of_texts(leases);
            let asked = Asked(&json);
            let renew = slot_sql::RenewBatch { asked };
            let rows: Vec<(Option<Vec<u8>>, i64)> = self.0.load(renew).await?;
            let of_row = |(token, left): (Option<_>, _)| Some(renewed((token?, left)));
            Ok(rows.into_iter().filter_map(of_row).collect())
        })
    }
}

/// Returns the largest fence granted so far. Inserts its row again if it is missing.
async fn fence_floor(conn: &mut impl On<Sqlite>) -> Result<i64, Error> {
    if let Some(fence) = conn.get_optional(slot_queries::fence_floor()).await? {
        return Ok(fence);
    }
    let fence = largest_fence(conn).await?;
    let insert = slot_queries::insert_fence_floor(fence);
    conn.execute(insert).await?;
    Ok(fence)
}

async fn largest_fence(conn: &mut impl On<Sqlite>) -> Result<i64, Error> {
    let last: Option<i64> = conn.get_result(slot_queries::last_fence()).await?;
    let now_us = conn.get_result(slot_queries::now()).await?;
    Ok(last.unwrap_or(0).max(fence::at(now_us)))
}

async fn find_free(
    conn: &mut impl On<Sqlite>,
    semaphore: &Semaphore,
    context: &AttemptContext,
) -> Result<Result<Grant, AttemptOutcome>, Error> {
    let (name, permits) = (semaphore.name(), semaphore.permits_i32());
    // In one statement, because between two another session may add or remove slots.
    let (slots, free) = match &context.candidates {
        None => {
            let look = slot_sql::FindFree { name, permits };
            let (slots, number, fence): slot_sql::FoundRow = conn.get_result(look).await?;
            (slots, number.zip(fence))
        }
        Some(open) => {
            let free = slot_sql::first_free_among(Named(name), open);
            (None, conn.get_optional(free).await?)
        }
    };
    // Rows are not locked on SQLite, so `any_free` is false; free slots above the number of permits don't count.
    Ok(free
        .map(|(number, fence)| Grant { number, fence })
        .ok_or_else(|| classify_refusal(slots, permits, false, context)))
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
            let token = slot.expect("free").token.into_bytes();
            let release =
                SqliteEngine(&mut conn).release_unused_statement(semaphore.name(), &token);
            let released = diesel::sql_query(&release).execute(&mut conn);
            assert_eq!(released, Ok(1), "{encoding}: {release}");
        }
    }

    fn means_the_text(text: &str) -> Result<(), TestCaseError> {
        for encoding in ENCODINGS {
            let mut literal = String::new();
            literal::push_for_sqlite(&mut literal, text);
            let is_same = diesel::dsl::sql::<Bool>(&literal)
                .sql(" = ")
                .bind::<diesel::sql_types::Text, _>(text);
            let is_same = diesel::select(is_same).get_result(&mut in_memory(encoding));
            prop_assert_eq!(is_same, Ok(true), "{}: {}", encoding, literal);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn literals_mean_their_texts(text in any::<String>()) {
            means_the_text(&text.replace('\0', ""))?;
        }

        #[test]
        fn literals_of_ascii_mean_their_texts(text in "[ -~]{0,12}") {
            means_the_text(&text)?;
        }
    }
}
