//! Renews, releases and pins slots that are held.

use std::time::{Duration, Instant};

use crate::engine::HasEngine;
use crate::name::{self, NameKind};
use crate::semaphore::backend::{Expiry, SemaphoreBackend};
use crate::semaphore::{lease, polling};
use crate::transaction::backend::TransactionBackend;
use crate::{Error, LeaseState, Slot, transaction::depth};

/// The common case comes first.
const STATES: [(Expiry, LeaseState); 2] = [
    (Expiry::Unexpired, LeaseState::Unexpired),
    (Expiry::IncludeExpired, LeaseState::Expired),
];

pub(super) async fn renew<C: HasEngine>(
    conn: &mut C,
    slot: &mut Slot,
    duration: Duration,
) -> Result<LeaseState, Error> {
    let lease_us = lease::micros(duration)?;
    name::validate(NameKind::Semaphore, &slot.semaphore)?;
    assert_open_if_in_transaction(conn).await?;
    for (expiry, state) in STATES {
        let started = Instant::now();
        if C::LockEngine::renew_one(conn, slot, lease_us, expiry).await? > 0 {
            slot.deadline =
                started + duration.saturating_sub(C::LockEngine::clock_resolution(conn));
            return Ok(state);
        }
    }
    Err(lost(slot))
}

pub(super) async fn release<C: HasEngine>(conn: &mut C, slot: &Slot) -> Result<LeaseState, Error> {
    name::validate(NameKind::Semaphore, &slot.semaphore)?;
    assert_open_if_in_transaction(conn).await?;
    for (expiry, state) in STATES {
        if C::LockEngine::release(conn, slot, expiry).await? > 0 {
            if depth::depth(conn)? == 0 {
                polling::notify_released(&slot.semaphore, 1, Some(slot.number));
            }
            return Ok(state);
        }
    }
    Err(lost(slot))
}

/// Releases a slot that was not used, also before the end of its minimum hold time. Has no effect when it is not held.
pub(super) async fn release_unused<C: HasEngine>(conn: &mut C, slot: &Slot) -> Result<(), Error> {
    if C::LockEngine::release_unused(conn, slot).await? > 0 && depth::depth(conn)? == 0 {
        polling::notify_released(&slot.semaphore, 1, Some(slot.number));
    }
    Ok(())
}

pub(super) async fn pin<C: HasEngine>(conn: &mut C, slot: &Slot) -> Result<(), Error> {
    if depth::depth(conn)? == 0 {
        return Err(Error::NotInTransaction { method: "pin_slot" });
    }
    C::LockEngine::assert_open(conn).await?;
    name::validate(NameKind::Semaphore, &slot.semaphore)?;
    if C::LockEngine::pin(conn, slot).await? {
        Ok(())
    } else {
        Err(lost(slot))
    }
}

fn lost(slot: &Slot) -> Error {
    Error::SlotLost {
        semaphore: slot.semaphore.clone(),
        number: slot.number,
    }
}

/// Fails with [`Error::TransactionAborted`] in a transaction that the server has already ended.
pub(super) async fn assert_open_if_in_transaction<C: HasEngine>(conn: &mut C) -> Result<(), Error> {
    if depth::depth(conn)? > 0 {
        C::LockEngine::assert_open(conn).await?;
    }
    Ok(())
}
