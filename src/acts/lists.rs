//! Lists semaphores, slots and sequences.

use std::time::Duration;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::engine::Engine;
use crate::engine::slots::{HeldRow, SemaphoreRow};
use crate::error::NameKind;
use crate::{Error, ListOptions, SemaphoreInfo, SequenceInfo, SlotInfo};

pub(crate) async fn semaphores(
    engine: &mut dyn Engine,
    options: &ListOptions,
) -> Result<Vec<SemaphoreInfo>, Error> {
    let request = options.request(NameKind::Semaphore)?;
    let rows = engine.list_semaphores(&request).await?;
    let info = |row: SemaphoreRow| SemaphoreInfo {
        name: row.name,
        permits: row.permits.map(i32::unsigned_abs),
        slots: row.slots.map_or(0, i32::unsigned_abs),
        held: u32::try_from(row.held).unwrap_or(u32::MAX),
    };
    Ok(rows.into_iter().map(info).collect())
}

pub(crate) async fn held_slots(
    engine: &mut dyn Engine,
    options: &ListOptions,
) -> Result<Vec<SlotInfo>, Error> {
    let rows = engine.list_held(&options.held_request()?).await?;
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

pub(crate) async fn sequences(
    engine: &mut dyn Engine,
    options: &ListOptions,
) -> Result<Vec<SequenceInfo>, Error> {
    let request = options.request(NameKind::Sequence)?;
    let rows = engine.list_sequences(&request).await?;
    let info = |(name, key, last_number): (String, String, i64)| SequenceInfo {
        name,
        key: (!key.is_empty()).then_some(key),
        last_number,
    };
    Ok(rows.into_iter().map(info).collect())
}
