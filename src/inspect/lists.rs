//! Lists semaphores, slots and sequences.

use std::time::Duration;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::engine::HasEngine;
use crate::name::NameKind;
use crate::semaphore::backend::{HeldRow, SemaphoreBackend, SemaphoreRow};
use crate::sequence::backend::SequenceBackend;
use crate::{Error, ListOptions, SemaphoreInfo, SequenceInfo, SlotInfo};

pub(super) async fn semaphores<C: HasEngine>(
    conn: &mut C,
    options: &ListOptions,
) -> Result<Vec<SemaphoreInfo>, Error> {
    let request = options.request(NameKind::Semaphore)?;
    let rows = C::LockEngine::list_semaphores(conn, &request).await?;
    let info = |row: SemaphoreRow| SemaphoreInfo {
        name: row.name,
        permits: row.permits.map(i32::unsigned_abs),
        slots: row.slots.map_or(0, i32::unsigned_abs),
        held: u32::try_from(row.held).unwrap_or(u32::MAX),
    };
    Ok(rows.into_iter().map(info).collect())
}

pub(super) async fn held_slots<C: HasEngine>(
    conn: &mut C,
    options: &ListOptions,
) -> Result<Vec<SlotInfo>, Error> {
    let rows = C::LockEngine::list_held(conn, &options.held_request()?).await?;
    let info = |(semaphore, row): (String, HeldRow)| SlotInfo {
        semaphore,
        number: row.number.unsigned_abs(),
        holder: row.holder,
        token: row.token.and_then(|token| Uuid::from_slice(&token).ok()),
        fence: row.fence,
        acquired_at: time(row.acquired_us),
        expires_at: time(row.expires_us),
        remaining: Duration::from_micros(u64::try_from(row.remaining_us).unwrap_or(0)),
    };
    Ok(rows.into_iter().map(info).collect())
}

/// The limits of leases keep the time within chrono's range.
fn time(micros: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(micros).unwrap_or(DateTime::<Utc>::MAX_UTC)
}

pub(super) async fn sequences<C: HasEngine>(
    conn: &mut C,
    options: &ListOptions,
) -> Result<Vec<SequenceInfo>, Error> {
    let request = options.request(NameKind::Sequence)?;
    let rows = C::LockEngine::list_sequences(conn, &request).await?;
    let info = |(name, key, last_number): (String, String, i64)| SequenceInfo {
        name,
        key: (!key.is_empty()).then_some(key),
        last_number,
    };
    Ok(rows.into_iter().map(info).collect())
}
