//! Lists semaphores, slots and sequences.

use crate::name::NameKind;
use crate::semaphore::administration;
use crate::semaphore::backend::{SemaphoreBackend, SemaphoreRow};
use crate::sequence::backend::SequenceBackend;
use crate::{Error, ListOptions, SemaphoreInfo, SequenceInfo, SlotInfo};

pub(super) fn semaphores<C: SemaphoreBackend>(
    conn: &mut C,
    options: &ListOptions,
) -> Result<Vec<SemaphoreInfo>, Error> {
    options.validate(NameKind::Semaphore)?;
    let rows = C::list_semaphores(conn, &options.by_name())?;
    let info = |row: SemaphoreRow| SemaphoreInfo {
        name: row.name,
        permits: row.permits.map(i32::unsigned_abs),
        slots: row.slots.map_or(0, i32::unsigned_abs),
        held: u32::try_from(row.held).unwrap_or(u32::MAX),
    };
    Ok(rows.into_iter().map(info).collect())
}

pub(super) fn held_slots<C: SemaphoreBackend>(
    conn: &mut C,
    options: &ListOptions,
) -> Result<Vec<SlotInfo>, Error> {
    options.validate(NameKind::Semaphore)?;
    let rows = C::list_all_held(conn, &options.by_name())?.into_iter();
    Ok(rows
        .map(|(name, row)| administration::held_slot(&name, row))
        .collect())
}

pub(super) fn sequences<C: SequenceBackend>(
    conn: &mut C,
    options: &ListOptions,
) -> Result<Vec<SequenceInfo>, Error> {
    options.validate(NameKind::Sequence)?;
    let mut rows = Vec::new();
    for mut request in options.by_name_and_key() {
        request.limit -= i64::try_from(rows.len()).unwrap_or(i64::MAX);
        if request.limit > 0 {
            rows.extend(C::list_sequences(conn, &request)?);
        }
    }
    let info = |(name, key, last_number): (String, String, i64)| SequenceInfo {
        name,
        key: (!key.is_empty()).then_some(key),
        last_number,
    };
    Ok(rows.into_iter().map(info).collect())
}
