//! Lists semaphores, slots and sequences.

use crate::engine::HasEngine;
use crate::name::NameKind;
use crate::semaphore::administration;
use crate::semaphore::backend::{SemaphoreBackend, SemaphoreRow};
use crate::sequence::backend::SequenceBackend;
use crate::{Error, ListOptions, SemaphoreInfo, SequenceInfo, SlotInfo};

pub(super) async fn semaphores<C: HasEngine>(
    conn: &mut C,
    options: &ListOptions,
) -> Result<Vec<SemaphoreInfo>, Error> {
    options.validate(NameKind::Semaphore)?;
    let rows = C::LockEngine::list_semaphores(conn, &options.by_name()).await?;
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
    options.validate(NameKind::Semaphore)?;
    let rows = C::LockEngine::list_all_held(conn, &options.by_name()).await?;
    Ok(rows
        .into_iter()
        .map(|(name, row)| administration::held_slot(&name, row))
        .collect())
}

pub(super) async fn sequences<C: HasEngine>(
    conn: &mut C,
    options: &ListOptions,
) -> Result<Vec<SequenceInfo>, Error> {
    options.validate(NameKind::Sequence)?;
    let mut rows = Vec::new();
    for mut request in options.by_name_and_key() {
        request.limit -= i64::try_from(rows.len()).unwrap_or(i64::MAX);
        if request.limit > 0 {
            rows.extend(C::LockEngine::list_sequences(conn, &request).await?);
        }
    }
    let info = |(name, key, last_number): (String, String, i64)| SequenceInfo {
        name,
        key: (!key.is_empty()).then_some(key),
        last_number,
    };
    Ok(rows.into_iter().map(info).collect())
}
