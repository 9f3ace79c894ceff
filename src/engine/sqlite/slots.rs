//! Slots of semaphores on SQLite. A read without the write lock tells whether a slot is free, and only then a write
//! transaction leases one.

use std::time::{Duration, Instant};

use diesel::OptionalExtension;
use diesel::sqlite::Sqlite;

use super::deadline::Deadline;
use super::lists;
use super::slot_sql;
use super::{Acquisition, BUSY_STEP, acquire_write_lock, begin_write, end, sql};
use crate::engine::literal;
use crate::engine::slot_methods::slot_methods;
use crate::inspect::list_options::ListRequest;
use crate::link::{self, Link};
use crate::object_lock::backend::LockOutcome;
use crate::semaphore::backend::{
    AttemptContext, AttemptOutcome, BatchOutcome, Grant, HeldRow, HeldSlot, LeaseRequest,
    RaiseOutcome, ReleaseKind, SemaphoreBackend, SemaphoreRow, classify_refusal, lowest_grantable,
};
use crate::semaphore::renewal::{RenewalRequest, RenewalResult};
use crate::semaphore::slot_times::{FirstSlot, SlotTimesRow};
use crate::{Error, Semaphore, Slot, Wait, semaphore::fence, transaction::depth};

/// The time that a change waits for the write lock, unless `busy_timeout` is longer.
const DEFAULT_WRITE_TIMEOUT: Duration = Duration::from_secs(5);

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

slot_methods!(impl Link<Backend = Sqlite>, link, diesel::result::Error);

impl<C: Link<Backend = Sqlite>> SemaphoreBackend<C> for Sqlite {
    fn clock_resolution(_: &mut C) -> Duration {
        Duration::from_millis(1)
    }

    /// Returns the path of the file, and `None` for a database in memory.
    async fn database_id(conn: &mut C) -> Result<Option<String>, Error> {
        let file: String = conn.get_result(slot_sql::Database {}).await?;
        Ok((!file.is_empty()).then(|| format!("sqlite {file}")))
    }

    async fn try_lease(
        conn: &mut C,
        request: &LeaseRequest<'_>,
        context: &AttemptContext,
    ) -> Result<AttemptOutcome, Error> {
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
            let now_us = conn.get_result(slot_sql::now()).await?;
            let grant = Grant {
                number: free.number,
                fence: fence::next(last.max(free.fence), now_us, free.number),
            };
            // The lease begins at this statement, after the wait for other writers.
            let since = Instant::now();
            let granted = conn.execute(slot_sql::grant(request, &grant)).await?;
            assert_changed(granted, SLOTS_TABLE)?;
            conn.execute(slot_sql::set_fence_floor(grant.fence)).await?;
            Ok(AttemptOutcome::LeasedSince(grant, since))
        })
    }

    async fn begin_hold(conn: &mut C) -> Result<bool, Error> {
        let deadline = Deadline::new(Wait::No);
        let grant = acquire_write_lock(conn, &deadline, Acquisition::Begin).await?;
        Ok(grant == LockOutcome::Acquired)
    }

    /// No other session writes until the transaction ends, so any free slot may be granted.
    async fn try_hold(
        conn: &mut C,
        semaphore: &Semaphore,
        context: &AttemptContext,
    ) -> Result<AttemptOutcome, Error> {
        if depth::depth(conn)? > 1 {
            ensure_writer(conn).await?;
        }
        let free = match find_free(conn, semaphore, context).await? {
            Ok(free) => free,
            Err(refusal) => return Ok(refusal),
        };
        // The holder of an expired lease on the slot must not renew it after another has held the slot.
        let clear = slot_sql::clear_token(semaphore.name(), free.number);
        conn.execute(clear).await?;
        Ok(AttemptOutcome::Granted(free))
    }

    async fn grantable_slots(
        conn: &mut C,
        semaphore: &Semaphore,
    ) -> Result<Option<Vec<i32>>, Error> {
        let slots: i64 = conn.get_result(slot_sql::count(semaphore.name())).await?;
        let free: Vec<i32> = conn.load(slot_sql::free(semaphore.name())).await?;
        Ok(Some(lowest_grantable(free, slots, semaphore.permits_i32())))
    }

    async fn resize_in_progress(_: &mut C) -> Result<bool, Error> {
        Ok(false)
    }

    async fn create_batch(
        conn: &mut C,
        semaphore: &Semaphore,
        _: bool,
    ) -> Result<BatchOutcome, Error> {
        let (name, permits) = (semaphore.name(), semaphore.permits_i32());
        write!(conn, async {
            let fence = fence_floor(conn).await?;
            let last: Option<i32> = conn
                .get_result(slot_sql::last_number(name))
                .await
                .optional()?;
            for number in last.unwrap_or(0) + 1..=permits {
                let added = conn.execute(slot_sql::insert(name, number, fence)).await?;
                assert_changed(added, SLOTS_TABLE)?;
            }
            Ok(BatchOutcome::Complete)
        })
    }

    async fn create_fence_floor(conn: &mut C) -> Result<(), Error> {
        write!(conn, async { fence_floor(conn).await.map(drop) })
    }

    async fn raise_fence_floor(conn: &mut C, by: Duration) -> Result<RaiseOutcome, Error> {
        write!(conn, async {
            let last = fence_floor(conn).await?.max(largest_fence(conn).await?);
            let Some(raised) = fence::raised(last, by) else {
                return Ok(RaiseOutcome::TooLarge);
            };
            conn.execute(slot_sql::set_fence_floor(raised)).await?;
            Ok(RaiseOutcome::RaisedTo(raised))
        })
    }

    async fn register(conn: &mut C, semaphore: &Semaphore) -> Result<(), Error> {
        write!(conn, async {
            conn.execute(slot_sql::register(
                semaphore.name(),
                semaphore.permits_i32(),
            ))
            .await?;
            Ok(())
        })
    }

    async fn renew_one(
        conn: &mut C,
        slot: &Slot,
        lease_us: i64,
        expiry: Expiry,
    ) -> Result<usize, Error> {
        write!(conn, async {
            Ok(renew(conn, slot, lease_us, expiry).await?)
        })
    }

    async fn release(conn: &mut C, slot: &Slot, expiry: Expiry) -> Result<usize, Error> {
        write!(conn, async { Ok(release(conn, slot, expiry).await?) })
    }

    fn release_unused_statement(semaphore: &str, token: &[u8]) -> String {
        let mut name = String::new();
        literal::push_for_sqlite(&mut name, semaphore);
        let token = literal::hexadecimal(token);
        slot_sql::release_unused_text(&name, &format!("x'{token}'"))
    }

    async fn release_unused(conn: &mut C, slot: &Slot) -> Result<usize, Error> {
        write!(conn, async { Ok(release_unused(conn, slot).await?) })
    }

    async fn pin(conn: &mut C, slot: &Slot) -> Result<bool, Error> {
        ensure_writer(conn).await?;
        let pin = slot_sql::Pin { key: key(slot) };
        let pinned: Option<i32> = conn.get_result(pin).await.optional()?;
        Ok(pinned.is_some())
    }

    async fn list_held_nowait(conn: &mut C, name: &str) -> Result<Option<Vec<HeldSlot>>, Error> {
        Ok(Some(conn.load(slot_sql::held_slots(name)).await?))
    }

    async fn first_slot_nowait(conn: &mut C, name: &str) -> Result<FirstSlot, Error> {
        let row = conn.get_result(slot_sql::first_slot(name)).await;
        let row: Option<SlotTimesRow> = row.optional()?;
        Ok(row.into())
    }

    async fn list_held(
        conn: &mut C,
        request: &ListRequest,
    ) -> Result<Vec<(String, HeldRow)>, Error> {
        Ok(lists::held_slots(conn, request).await?)
    }

    async fn list_semaphores(
        conn: &mut C,
        request: &ListRequest,
    ) -> Result<Vec<SemaphoreRow>, Error> {
        Ok(lists::semaphores(conn, request).await?)
    }

    async fn now_us(conn: &mut C) -> Result<i64, Error> {
        Ok(conn.get_result(slot_sql::now()).await?)
    }

    async fn release_all(conn: &mut C, name: &str) -> Result<usize, Error> {
        write!(conn, async {
            let taken: Vec<(i32, bool)> = conn.load(slot_sql::held_numbers(name)).await?;
            for (number, _) in &taken {
                conn.execute(slot_sql::force_release(name, *number)).await?;
            }
            Ok(taken.iter().filter(|(_, unexpired)| *unexpired).count())
        })
    }

    async fn purge_unused_slots(conn: &mut C, age_us: i64) -> Result<usize, Error> {
        write!(conn, async {
            let semaphores: Vec<(String, Option<i32>)> = conn.load(slot_sql::semaphores()).await?;
            let mut purged = 0;
            for (name, permits) in semaphores {
                let retained: Option<i32> = conn
                    .get_result(slot_sql::last_retained(&name, age_us, permits.unwrap_or(0)))
                    .await
                    .optional()?;
                let above = retained.unwrap_or(0);
                let last_fence: Option<i64> = conn
                    .get_result(slot_sql::last_fence_above(&name, above))
                    .await
                    .optional()?;
                let floor = fence_floor(conn).await?;
                if let Some(fence) = last_fence.filter(|fence| *fence > floor) {
                    conn.execute(slot_sql::set_fence_floor(fence)).await?;
                }
                purged += conn.execute(slot_sql::delete_above(&name, above)).await?;
            }
            Ok(purged)
        })
    }

    async fn release_batch(
        conn: &mut C,
        leases: &[RenewalRequest],
        kind: ReleaseKind,
    ) -> Result<Vec<Vec<u8>>, Error> {
        write!(conn, async {
            let asked = &RenewalRequest::as_json_of_texts(leases);
            match kind {
                ReleaseKind::Used => conn.execute(slot_sql::ReleaseBatch { asked }).await?,
                ReleaseKind::Unused => conn.execute(slot_sql::ReleaseUnusedBatch { asked }).await?,
            };
            Ok(Vec::new())
        })
    }

    async fn renew_batch(
        conn: &mut C,
        leases: &[RenewalRequest],
    ) -> Result<Vec<RenewalResult>, Error> {
        write!(conn, async {
            let asked = RenewalRequest::as_json_of_texts(leases);
            let rows: Vec<(Option<Vec<u8>>, i64)> =
                conn.load(slot_sql::RenewBatch { asked: &asked }).await?;
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
async fn fence_floor(conn: &mut impl Link<Backend = Sqlite>) -> Result<i64, Error> {
    let floor = conn.get_result(slot_sql::fence_floor()).await;
    if let Some(fence) = floor.optional()? {
        return Ok(fence);
    }
    let fence = largest_fence(conn).await?;
    conn.execute(slot_sql::insert_fence_floor(fence)).await?;
    Ok(fence)
}

/// Searches for a free slot. Returns the outcome of the attempt if there is none.
async fn find_free(
    conn: &mut impl Link<Backend = Sqlite>,
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
            let free = slot_sql::first_free_among(name, open);
            (None, conn.get_result(free).await.optional()?)
        }
    };
    // Rows are not locked on SQLite, so `any_free` is false; free slots above the number of permits don't count.
    Ok(free
        .map(|(number, fence)| Grant { number, fence })
        .ok_or_else(|| classify_refusal(slots, permits, false, context)))
}

/// Prepares for a change: acquires the write lock in the open transaction, or begins one of its own and returns `true`.
async fn begin_change(conn: &mut impl Link<Backend = Sqlite>) -> Result<bool, Error> {
    if depth::depth(conn)? > 0 {
        ensure_writer(conn).await?;
        return Ok(false);
    }
    let deadline = write_deadline(conn).await?;
    begin_write(conn, &deadline).await?;
    Ok(true)
}

async fn ensure_writer(conn: &mut impl Link<Backend = Sqlite>) -> Result<(), Error> {
    let deadline = write_deadline(conn).await?;
    let acquisition = Acquisition::Upgrade { step: BUSY_STEP };
    deadline.require(acquire_write_lock(conn, &deadline, acquisition).await?)
}

async fn write_deadline(
    conn: &mut impl Link<Backend = Sqlite>,
) -> Result<Deadline<'static>, Error> {
    let busy_timeout: i32 = conn.get_result(sql::BusyTimeout {}).await?;
    let busy_timeout = Duration::from_millis(busy_timeout.unsigned_abs().into());
    Ok(Deadline::new(Wait::AtMost(
        busy_timeout.max(DEFAULT_WRITE_TIMEOUT),
    )))
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
            let release = <Sqlite as SemaphoreBackend<SqliteConnection>>::release_unused_statement(
                semaphore.name(),
                &token,
            );
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
