//! Slots that are leased, with writes that a fence or the slot itself guards.

use std::thread::sleep;
use std::time::Duration;

use anyhow::Context;
use diesel_locks::prelude::*;
use diesel_locks::{LeaseState, Slot, SlotGuard};
use torture_history::{Moment, Outcome, SlotHeld, WaitLimit, workload_spec};

use super::context::WorkerContext;
use super::errors::{Failure, Fenced, classify_result, classify_without_connection};
use super::operation::Operation;
use super::requests::{may_be_several, semaphore, wait};
use super::retry::retry_options;
use super::workload::Workload;
use crate::engine::Engine;
use crate::sabotage::Sabotage;
use crate::store::Store;

/// How much smaller the fences of each slot are than those of the one before, for sabotage: more than what passes
/// between two grants.
const FAR_US: i64 = 3_600_000_000;

pub(super) fn lease<C: Store>(context: &WorkerContext<C>, milliseconds: u64) -> LeaseOptions {
    LeaseOptions::new(Duration::from_millis(milliseconds))
        .holder(format!("process {}", context.job.process))
}

/// A lease of one or two permits.
pub(super) fn lease_of<C: Store>(
    context: &WorkerContext<C>,
    milliseconds: u64,
    permits: u32,
) -> LeaseOptions {
    let lease = lease(context, milliseconds);
    if may_be_several(context, permits) {
        return lease.permits(permits);
    }
    lease
}

/// The slot, with its fence.
pub(super) fn held<C: Store>(context: &WorkerContext<C>, slot: &Slot) -> SlotHeld {
    let number = slot.number();
    let back = if context.job.sabotage == Some(Sabotage::FencePerSlot) {
        i64::from(number) * FAR_US
    } else {
        0
    };
    let is_partial = context.job.sabotage == Some(Sabotage::PartialPermits);
    let other = slot.clone().split().get(1).map(Slot::number);
    SlotHeld {
        number,
        other: other.or((is_partial && number > 1).then_some(1)),
        fence: slot.fence() - back,
        due_us: None,
    }
}

/// Notes that the slot is held now, if its lease has not ended by this process's clock, and says so.
pub(super) fn look(operation: &Operation, slot: &Slot) -> bool {
    operation.look(|| !slot.remaining().is_zero())
}

/// What renews a slot, or does not.
enum LeasedSlot {
    Guard(SlotGuard),
    /// Sabotage: not renewed.
    Unguarded(Slot),
}

impl LeasedSlot {
    fn acquire<C: Store>(
        context: &WorkerContext<C>,
        operation: &Operation,
        semaphore: &Semaphore,
        lease: LeaseOptions,
        wait_limit: WaitLimit,
    ) -> Result<Option<Self>, Failure> {
        if context.job.sabotage == Some(Sabotage::NoRenewal) {
            let slot = acquired(context, operation, semaphore, lease, wait_limit)?;
            return Ok(slot.map(Self::Unguarded));
        }
        let guard = if wait_limit == WaitLimit::No {
            context.renewer.try_acquire(semaphore, &lease)
        } else {
            let wait = wait(wait_limit);
            context.renewer.acquire(semaphore, &lease, wait).map(Some)
        };
        let guard = guard.map_err(classify_without_connection);
        Ok(guard.context("acquiring")?.map(Self::Guard))
    }

    fn slot(&self) -> &Slot {
        match self {
            Self::Guard(guard) => guard.slot(),
            Self::Unguarded(slot) => slot,
        }
    }

    fn look(&self, operation: &Operation) -> bool {
        match self {
            Self::Guard(guard) => operation.look(|| guard.is_held()),
            Self::Unguarded(slot) => look(operation, slot),
        }
    }

    fn release<C: Store>(self, context: &WorkerContext<C>) -> Result<LeaseState, Failure> {
        match self {
            Self::Guard(guard) => guard
                .release()
                .map_err(classify_without_connection)
                .context("releasing"),
            Self::Unguarded(slot) => release(context, &slot),
        }
    }
}

/// A slot with a guard, which renews it.
pub(crate) fn with_guard<C: Store>(
    context: &WorkerContext<C>,
    operation: &Operation,
    workload: &mut Workload,
    name: &str,
    (lease_ms, permits): (u64, u32),
    wait_limit: WaitLimit,
) -> Result<Outcome, Failure> {
    let semaphore = semaphore(context, name);
    let lease = lease_of(context, lease_ms, permits);
    let leased_slot = LeasedSlot::acquire(context, operation, &semaphore, lease, wait_limit)?;
    let Some(leased_slot) = leased_slot else {
        return Ok(Outcome::Refused);
    };
    operation.entered(Some(held(context, leased_slot.slot())))?;
    // One of twenty is at it for about two leases.
    let steps = if workload.percent(5) {
        lease_ms / 5 * 2
    } else {
        2
    };
    for _ in 0..steps {
        workload.pause(10);
        leased_slot.look(operation);
    }
    finish(context, operation, workload, name, leased_slot)
}

/// A slot that is renewed by hand, or not, and held beyond its lease at times.
pub(crate) fn without_guard<C: Store>(
    context: &WorkerContext<C>,
    operation: &Operation,
    workload: &mut Workload,
    name: &str,
    (lease_ms, permits): (u64, u32),
    wait_limit: WaitLimit,
) -> Result<Outcome, Failure> {
    let semaphore = semaphore(context, name);
    let lease = lease_of(context, lease_ms, permits);
    let Some(mut slot) = acquired(context, operation, &semaphore, lease, wait_limit)? else {
        return Ok(Outcome::Refused);
    };
    operation.entered(Some(held(context, &slot)))?;
    if workload.percent(10) {
        // Longer than the lease by the time that the next holder needs to acquire the slot and write, also on a busy machine.
        workload.pause(lease_ms * 3);
    } else {
        workload.pause(5);
    }
    look(operation, &slot);
    if workload.percent(30) {
        let mut conn = context.pool.get().map_err(diesel_locks::Error::from)?;
        let requested = Moment::now();
        let renewed = conn.renew_slot(&mut slot, Duration::from_millis(lease_ms));
        // The lease may have ended before: then no other holder had the slot in between.
        let renewed = classify_result(&mut *conn, renewed.map_err(Failure::from));
        let state = renewed.context("renewing")?;
        operation.renewed(requested, state)?;
        look(operation, &slot);
        workload.pause(20);
        look(operation, &slot);
    }
    finish(
        context,
        operation,
        workload,
        name,
        LeasedSlot::Unguarded(slot),
    )
}

/// Writes at the slot's resource, and gives the slot back whether that was accepted or not. One of four is only
/// dropped: a guard releases its slot then, as soon as it can; any other slot is taken until its lease ends.
fn finish<C: Store>(
    context: &WorkerContext<C>,
    operation: &Operation,
    workload: &mut Workload,
    name: &str,
    leased_slot: LeasedSlot,
) -> Result<Outcome, Failure> {
    let written = write(context, operation, name, held(context, leased_slot.slot()));
    let is_held = leased_slot.look(operation);
    if !workload.percent(25) {
        let released = leased_slot.release(context);
        operation.released(is_held, released)?;
    }
    written?;
    Ok(Outcome::Done)
}

fn release<C: Store>(context: &WorkerContext<C>, slot: &Slot) -> Result<LeaseState, Failure> {
    let mut conn = context.pool.get().map_err(diesel_locks::Error::from)?;
    let released = conn.release_slot(slot).map_err(Failure::from);
    classify_result(&mut *conn, released).context("releasing")
}

/// A slot whose counter is changed in a transaction that makes sure of the slot.
pub(crate) fn pinned<C: Store>(
    context: &WorkerContext<C>,
    operation: &Operation,
    workload: &mut Workload,
    lease_ms: u64,
) -> Result<Outcome, Failure> {
    let semaphore = Semaphore::new(workload_spec::PINNED.name, workload_spec::PINNED.permits);
    let lease = lease(context, lease_ms);
    let wait_limit = WaitLimit::AtMost(workload_spec::SLOT_WAIT_MS);
    let Some(slot) = acquired(context, operation, &semaphore, lease, wait_limit)? else {
        return Ok(Outcome::Refused);
    };
    operation.entered(Some(held(context, &slot)))?;
    if workload.percent(2) {
        workload.pause(lease_ms * 3 / 2);
    }
    // Others wait for the slot when the lease has ended. SQLite's pin is the right to write, which all others want.
    let outlives_lease = lease_ms < workload_spec::LONGEST_LEASE_MS
        && context.job.engine != Engine::Sqlite
        && workload.percent(10);
    let counter = workload_spec::PINNED_COUNTERS.start + slot.number() - 1;
    let mut conn = context.pool.get().map_err(diesel_locks::Error::from)?;
    let conn = &mut *conn;
    let is_unlocked = context.job.sabotage == Some(Sabotage::UnlockedPin);
    let changed = conn.run_transaction(retry_options(), |conn| -> Result<(), Failure> {
        if is_unlocked {
            let mut other = context.pool.get().map_err(diesel_locks::Error::from)?;
            other.run_transaction(retry_options(), |conn| conn.pin_slot(&slot))?;
        } else {
            conn.pin_slot(&slot)?;
        }
        let n = conn.read_counter(counter)?;
        if outlives_lease {
            sleep(Duration::from_millis(lease_ms * 2));
        }
        workload.pause(3);
        conn.write_counter(operation.op, counter, n + 1)?;
        // No other holder is granted it before COMMIT: the slot is pinned.
        operation.leaves();
        Ok(())
    });
    classify_result(conn, changed).context("writing")?;
    let is_held = !slot.remaining().is_zero();
    let released = conn.release_slot(&slot).map_err(Failure::from);
    let released = classify_result(conn, released).context("releasing");
    operation.released(is_held, released)?;
    Ok(Outcome::Done)
}

fn acquired<C: Store>(
    context: &WorkerContext<C>,
    operation: &Operation,
    semaphore: &Semaphore,
    lease: LeaseOptions,
    wait_limit: WaitLimit,
) -> Result<Option<Slot>, Failure> {
    let mut conn = context.pool.get().map_err(diesel_locks::Error::from)?;
    operation.connected()?;
    let slot = if wait_limit == WaitLimit::No {
        conn.try_acquire_slot(semaphore, lease)
    } else {
        conn.acquire_slot(semaphore, lease, wait(wait_limit))
            .map(Some)
    };
    classify_result(&mut *conn, slot.map_err(Failure::from)).context("acquiring")
}

/// Writes at the slot's resource, which refuses a fence that is smaller than one it has seen.
pub(super) fn write<C: Store>(
    context: &WorkerContext<C>,
    operation: &Operation,
    name: &str,
    slot: SlotHeld,
) -> Result<(), Failure> {
    let resource = workload_spec::resource(name, slot.number);
    let is_unfenced = context.job.sabotage == Some(Sabotage::NoFence);
    let mut conn = context.pool.get().map_err(diesel_locks::Error::from)?;
    let conn = &mut *conn;
    let accepted = conn.run_transaction(retry_options(), |conn| -> Result<bool, Failure> {
        Ok(if is_unfenced {
            conn.write_unfenced_resource(operation.op, resource, slot.fence)?
        } else {
            conn.write_resource(operation.op, resource, slot.fence)?
        })
    });
    if classify_result(conn, accepted).context("writing")? {
        Ok(())
    } else {
        Err(Fenced.into())
    }
}
