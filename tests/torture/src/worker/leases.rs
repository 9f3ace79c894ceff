//! Slots that are leased, with writes that a fence or the slot itself guards.

use std::time::Duration;

use diesel_locks::prelude::*;
use diesel_locks::{LeaseState, SlotGuard};
use torture_history::{Moment, Outcome, SlotHeld, Waiting, scene};

use super::Shift;
use super::asked::{semaphore, wait};
use super::dice::Dice;
use super::operation::Operation;
use super::retried::retried;
use super::trouble::{Failure, Fenced, judged, unpooled};
use crate::sabotage::Sabotage;
use crate::store::Store;

/// How much smaller the fences of each slot are than those of the one before, for sabotage: more than what passes
/// between two grants.
const FAR_US: i64 = 3_600_000_000;

fn lease<C: Store>(shift: &Shift<C>, milliseconds: u64) -> LeaseOptions {
    LeaseOptions::new(Duration::from_millis(milliseconds))
        .holder(format!("process {}", shift.job.process))
}

/// The slot, with its fence.
fn held<C: Store>(shift: &Shift<C>, slot: &Slot) -> SlotHeld {
    let number = slot.number();
    let back = if shift.job.sabotage == Some(Sabotage::FencePerSlot) {
        i64::from(number) * FAR_US
    } else {
        0
    };
    SlotHeld {
        number,
        fence: slot.fence() - back,
    }
}

/// Notes that the slot is held now, if its lease has not ended by this process's clock, and says so.
fn look(operation: &Operation, slot: &Slot) -> bool {
    let now = Moment::now();
    let is_held = !slot.remaining().is_zero();
    if is_held {
        operation.still_held(now);
    }
    is_held
}

/// What renews a slot, or does not.
enum Grip {
    Guard(SlotGuard),
    /// Sabotage: nobody does.
    Bare(Slot),
}

impl Grip {
    fn acquire<C: Store>(
        shift: &Shift<C>,
        semaphore: &Semaphore,
        lease: LeaseOptions,
        waiting: Waiting,
    ) -> Result<Option<Self>, Failure> {
        if shift.job.sabotage == Some(Sabotage::NoRenewal) {
            return Ok(acquired(shift, semaphore, lease, waiting)?.map(Self::Bare));
        }
        let guard = if waiting == Waiting::No {
            shift.renewer.try_acquire(semaphore, &lease)
        } else {
            let wait = wait(waiting);
            shift.renewer.acquire(semaphore, &lease, wait).map(Some)
        };
        Ok(guard.map_err(unpooled)?.map(Self::Guard))
    }

    fn slot(&self) -> &Slot {
        match self {
            Self::Guard(guard) => guard.slot(),
            Self::Bare(slot) => slot,
        }
    }

    fn look(&self, operation: &Operation) -> bool {
        match self {
            Self::Guard(guard) => {
                let now = Moment::now();
                let is_held = guard.is_held();
                if is_held {
                    operation.still_held(now);
                }
                is_held
            }
            Self::Bare(slot) => look(operation, slot),
        }
    }

    fn release<C: Store>(self, shift: &Shift<C>) -> Result<LeaseState, Failure> {
        match self {
            Self::Guard(guard) => guard.release().map_err(unpooled),
            Self::Bare(slot) => release(shift, &slot),
        }
    }
}

/// A slot with a guard, which renews it.
pub(crate) fn renewed<C: Store>(
    shift: &Shift<C>,
    operation: &Operation,
    dice: &mut Dice,
    name: &str,
    lease_ms: u64,
    waiting: Waiting,
) -> Result<Outcome, Failure> {
    let semaphore = semaphore(shift, name);
    let lease = lease(shift, lease_ms);
    let Some(grip) = Grip::acquire(shift, &semaphore, lease, waiting)? else {
        return Ok(Outcome::Refused);
    };
    operation.entered(Some(held(shift, grip.slot())))?;
    // One of twenty is at it for about two leases.
    let steps = if dice.percent(5) { lease_ms / 5 * 2 } else { 2 };
    for _ in 0..steps {
        dice.pause(10);
        grip.look(operation);
    }
    finish(shift, operation, dice, name, grip)
}

/// A slot that is renewed by hand, or not, and held beyond its lease at times.
pub(crate) fn plain<C: Store>(
    shift: &Shift<C>,
    operation: &Operation,
    dice: &mut Dice,
    name: &str,
    lease_ms: u64,
    waiting: Waiting,
) -> Result<Outcome, Failure> {
    let semaphore = semaphore(shift, name);
    let Some(mut slot) = acquired(shift, &semaphore, lease(shift, lease_ms), waiting)? else {
        return Ok(Outcome::Refused);
    };
    operation.entered(Some(held(shift, &slot)))?;
    if dice.percent(10) {
        dice.pause(lease_ms * 3 / 2);
    } else {
        dice.pause(5);
    }
    look(operation, &slot);
    if dice.percent(30) {
        let mut conn = shift.pool.get().map_err(diesel_locks::Error::from)?;
        let asked = Moment::now();
        let refreshed = conn.renew_slot(&mut slot, Duration::from_millis(lease_ms));
        // The lease may have ended before this: then nobody else had the slot between.
        let state = judged(&mut *conn, refreshed.map_err(Failure::from))?;
        operation.refreshed(asked, state)?;
        look(operation, &slot);
        dice.pause(20);
        look(operation, &slot);
    }
    finish(shift, operation, dice, name, Grip::Bare(slot))
}

/// Writes at the slot's resource, and gives the slot back whether that was accepted or not. One of four is only
/// dropped: a guard releases its slot then, as soon as it can; any other slot is taken until its lease ends.
fn finish<C: Store>(
    shift: &Shift<C>,
    operation: &Operation,
    dice: &mut Dice,
    name: &str,
    grip: Grip,
) -> Result<Outcome, Failure> {
    let written = write(shift, operation, name, held(shift, grip.slot()));
    let is_held = grip.look(operation);
    if !dice.percent(25) {
        let released = grip.release(shift);
        operation.released(is_held, released)?;
    }
    written?;
    Ok(Outcome::Done)
}

fn release<C: Store>(shift: &Shift<C>, slot: &Slot) -> Result<LeaseState, Failure> {
    let mut conn = shift.pool.get().map_err(diesel_locks::Error::from)?;
    let released = conn.release_slot(slot).map_err(Failure::from);
    judged(&mut *conn, released)
}

/// A slot whose counter is changed in a transaction that makes sure of the slot.
pub(crate) fn ensured<C: Store>(
    shift: &Shift<C>,
    operation: &Operation,
    dice: &mut Dice,
    lease_ms: u64,
) -> Result<Outcome, Failure> {
    let semaphore = Semaphore::new(scene::ENSURED.name, scene::ENSURED.permits);
    let lease = lease(shift, lease_ms);
    let waiting = Waiting::AtMost(scene::ENSURED_WAIT_MS);
    let Some(slot) = acquired(shift, &semaphore, lease, waiting)? else {
        return Ok(Outcome::Refused);
    };
    operation.entered(Some(held(shift, &slot)))?;
    let entered = Moment::now();
    if dice.percent(2) {
        dice.pause(lease_ms * 3 / 2);
    }
    let counter = scene::ENSURED_COUNTERS.start + slot.number() - 1;
    let mut conn = shift.pool.get().map_err(diesel_locks::Error::from)?;
    let conn = &mut *conn;
    let changed = conn.run_transaction(retried(), |conn| -> Result<(), Failure> {
        conn.pin_slot(&slot)?;
        let n = conn.read_counter(counter)?;
        dice.pause(3);
        conn.write_counter(operation.op, counter, n + 1)?;
        if !look(operation, &slot) {
            // Nobody else has got it since: that is what is ensured.
            operation.still_held(entered);
        }
        Ok(())
    });
    judged(conn, changed)?;
    let is_held = !slot.remaining().is_zero();
    let released = conn.release_slot(&slot).map_err(Failure::from);
    operation.released(is_held, judged(conn, released))?;
    Ok(Outcome::Done)
}

fn acquired<C: Store>(
    shift: &Shift<C>,
    semaphore: &Semaphore,
    lease: LeaseOptions,
    waiting: Waiting,
) -> Result<Option<Slot>, Failure> {
    let mut conn = shift.pool.get().map_err(diesel_locks::Error::from)?;
    let slot = if waiting == Waiting::No {
        conn.try_acquire_slot(semaphore, lease)
    } else {
        conn.acquire_slot(semaphore, lease, wait(waiting)).map(Some)
    };
    judged(&mut *conn, slot.map_err(Failure::from))
}

/// Writes at the slot's resource, which refuses a fence that is smaller than one it has seen.
fn write<C: Store>(
    shift: &Shift<C>,
    operation: &Operation,
    name: &str,
    slot: SlotHeld,
) -> Result<(), Failure> {
    let resource = scene::resource(name, slot.number);
    let is_careless = shift.job.sabotage == Some(Sabotage::NoFence);
    let mut conn = shift.pool.get().map_err(diesel_locks::Error::from)?;
    let conn = &mut *conn;
    let accepted = conn.run_transaction(retried(), |conn| -> Result<bool, Failure> {
        Ok(if is_careless {
            conn.write_careless_resource(operation.op, resource, slot.fence)?
        } else {
            conn.write_resource(operation.op, resource, slot.fence)?
        })
    });
    if judged(conn, accepted)? {
        Ok(())
    } else {
        Err(Fenced.into())
    }
}
