//! Renews, releases and pins slots that are held.

use std::time::{Duration, Instant};

use crate::acts::slot_queue;
use crate::acts::transaction::{assert_in_transaction, assert_open_if_in_transaction};
use crate::engine::Engine;
use crate::engine::slots::Expiry;
use crate::error::NameKind;
use crate::link::depth;
use crate::values::lease;
use crate::{Error, LeaseState, Slot};

/// The common case comes first.
const STATES: [(Expiry, LeaseState); 2] = [
    (Expiry::Unexpired, LeaseState::Unexpired),
    (Expiry::IncludeExpired, LeaseState::Expired),
];

pub(crate) async fn renew(
    engine: &mut dyn Engine,
    slot: &mut Slot,
    duration: Duration,
) -> Result<LeaseState, Error> {
    let lease_us = lease::micros(duration)?;
    NameKind::Semaphore.check(&slot.semaphore)?;
    assert_open_if_in_transaction(engine).await?;
    for (expiry, state) in STATES {
        let started = Instant::now();
        if engine.renew_one(slot, lease_us, expiry).await? > 0 {
            slot.deadline = started + duration.saturating_sub(engine.clock_resolution());
            return Ok(state);
        }
    }
    Err(lost(slot))
}

pub(crate) async fn release(engine: &mut dyn Engine, slot: &Slot) -> Result<LeaseState, Error> {
    NameKind::Semaphore.check(&slot.semaphore)?;
    assert_open_if_in_transaction(engine).await?;
    for (expiry, state) in STATES {
        if engine.release(slot, expiry).await? > 0 {
            if depth::depth(engine.status())? == 0 {
                slot_queue::notify_released(&slot.semaphore, 1, Some(slot.number));
            }
            return Ok(state);
        }
    }
    Err(lost(slot))
}

pub(crate) async fn release_unused(engine: &mut dyn Engine, slot: &Slot) -> Result<(), Error> {
    if engine.release_unused(slot).await? > 0 && depth::depth(engine.status())? == 0 {
        slot_queue::notify_released(&slot.semaphore, 1, Some(slot.number));
    }
    Ok(())
}

pub(crate) async fn pin(engine: &mut dyn Engine, slot: &Slot) -> Result<(), Error> {
    assert_in_transaction(engine, "pin_slot").await?;
    NameKind::Semaphore.check(&slot.semaphore)?;
    if engine.pin(slot).await? {
        Ok(())
    } else {
        Err(lost(slot))
    }
}

pub(crate) fn lost(slot: &Slot) -> Error {
    Error::SlotLost {
        semaphore: slot.semaphore.clone(),
        number: slot.number,
    }
}
