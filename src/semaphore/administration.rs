//! Lists, creates and removes slots, releases them by force, and raises fences.

use std::borrow::Borrow;
use std::time::Duration;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::name::{self, NameKind};
use crate::semaphore::backend::{HeldRow, RaiseOutcome, SemaphoreBackend};
use crate::semaphore::holding::assert_open_if_in_transaction;
use crate::semaphore::{lease, polling};
use crate::{Error, LeaseOptions, Semaphore, SlotInfo, transaction::depth};

pub(super) fn force_release_all<C: SemaphoreBackend>(
    conn: &mut C,
    name: &str,
) -> Result<usize, Error> {
    name::validate(NameKind::Semaphore, name)?;
    assert_open_if_in_transaction(conn)?;
    let released = C::release_all(conn, name)?;
    polling::notify_released(name, released, None);
    tracing::warn!(semaphore = name, released, "all slots released by force");
    Ok(released)
}

pub(super) fn held_slots<C: SemaphoreBackend>(
    conn: &mut C,
    name: &str,
) -> Result<Vec<SlotInfo>, Error> {
    name::validate(NameKind::Semaphore, name)?;
    let rows = C::list_held(conn, name)?;
    Ok(rows.into_iter().map(|row| held_slot(name, row)).collect())
}

pub(crate) fn held_slot(name: &str, row: HeldRow) -> SlotInfo {
    SlotInfo {
        semaphore: name.to_owned(),
        number: row.number.unsigned_abs(),
        holder: row.holder,
        token: row.token.and_then(|token| Uuid::from_slice(&token).ok()),
        fence: row.fence,
        acquired_at: time(row.acquired_us),
        expires_at: time(row.expires_us),
        remaining: Duration::from_micros(u64::try_from(row.remaining_us).unwrap_or(0)),
    }
}

/// The limits of leases keep the time within chrono's range.
fn time(micros: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(micros).unwrap_or(DateTime::<Utc>::MAX_UTC)
}

pub(super) fn register<C: SemaphoreBackend>(
    conn: &mut C,
    semaphores: impl IntoIterator<Item = impl Borrow<Semaphore>>,
) -> Result<(), Error> {
    let semaphores: Vec<_> = semaphores.into_iter().collect();
    for semaphore in &semaphores {
        semaphore.borrow().validate()?;
    }
    outside(conn, "register_semaphores")?;
    for semaphore in &semaphores {
        C::create_slots(conn, semaphore.borrow(), true)?;
        C::register(conn, semaphore.borrow())?;
    }
    Ok(())
}

pub(super) fn purge<C: SemaphoreBackend>(
    conn: &mut C,
    unused_for: Duration,
) -> Result<usize, Error> {
    outside(conn, "purge_slots")?;
    if unused_for > LeaseOptions::LONGEST {
        return Err(Error::InvalidLease {
            requested: unused_for,
            reason: "no slot can be unused for longer than the longest lease",
        });
    }
    C::purge_unused_slots(conn, lease::up_to_micros(unused_for))
}

pub(super) fn raise_fences<C: SemaphoreBackend>(conn: &mut C, by: Duration) -> Result<i64, Error> {
    outside(conn, "raise_fences")?;
    loop {
        match C::raise_fence_floor(conn, by)? {
            RaiseOutcome::RaisedTo(fence) => {
                tracing::warn!(fence, "fences raised");
                return Ok(fence);
            }
            RaiseOutcome::TooLarge => return Err(Error::FencesTooLarge { requested: by }),
            RaiseOutcome::NoFenceFloor => C::create_fence_floor(conn)?,
        }
    }
}

fn outside<C: SemaphoreBackend>(conn: &mut C, method: &'static str) -> Result<(), Error> {
    if depth::depth(conn)? == 0 {
        Ok(())
    } else {
        Err(Error::AlreadyInTransaction {
            method,
            reason: "others would have to wait for its end",
        })
    }
}
