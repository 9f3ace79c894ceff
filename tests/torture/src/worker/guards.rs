//! Guards that lose their slots, or give them to another thread of the process.

use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use diesel::connection::SimpleConnection;
use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, LeaseState, ListOptions, SlotGuard, StopToken};
use torture_history::{GuardEvent, Outcome, workload_spec};

use super::context::WorkerContext;
use super::errors::{Failure, classify_result, classify_without_connection};
use super::leases::{held, lease};
use super::operation::Operation;
use super::workload::Workload;
use crate::sabotage::Sabotage;
use crate::store::Store;

/// How long is waited for what must come within some seconds: an operation may take half a minute.
const LONGEST: Duration = Duration::from_secs(10);

/// A semaphore with one permit that no other operation uses.
fn own_semaphore(kind: &str, operation: &Operation) -> Semaphore {
    Semaphore::new(format!("{kind} {}", operation.op.0), 1)
}

fn acquired<C: Store>(
    context: &WorkerContext<C>,
    operation: &Operation,
    semaphore: &Semaphore,
    lease: LeaseOptions,
) -> Result<SlotGuard, Failure> {
    let wait = Duration::from_millis(workload_spec::SLOT_WAIT_MS);
    let guard = context.renewer.acquire(semaphore, lease, wait);
    let guard = guard
        .map_err(classify_without_connection)
        .context("acquiring")?;
    operation.entered(Some(held(context, guard.slot())))?;
    Ok(guard)
}

/// A slot that another connection releases by force: its guard reports the loss.
pub(crate) fn revoked<C: Store>(
    context: &WorkerContext<C>,
    operation: &Operation,
    lease_ms: u64,
) -> Result<Outcome, Failure> {
    let semaphore = own_semaphore("revoked", operation);
    let guard = acquired(context, operation, &semaphore, lease(context, lease_ms))?;
    let is_lost = loss(context, &guard);
    let mut conn = context.pool.get().map_err(Error::from)?;
    let revoked = match conn.force_release_all(semaphore.name()) {
        // The lease had ended, and another process has removed the slot.
        Err(Error::UnknownSemaphore { .. }) => Ok(0),
        revoked => revoked,
    };
    classify_result(&mut *conn, revoked.map_err(Failure::from)).context("revoking")?;
    operation.guard(GuardEvent::Revoked)?;
    drop(conn);
    let is_told = is_lost.recv_timeout(LONGEST).is_ok();
    note_loss(operation, &guard, is_told)
}

/// A slot whose release another connection requests: its guard shows the request, or loses the slot.
pub(crate) fn asked<C: Store>(
    context: &WorkerContext<C>,
    operation: &Operation,
    lease_ms: u64,
) -> Result<Outcome, Failure> {
    let semaphore = own_semaphore("asked", operation);
    let guard = acquired(context, operation, &semaphore, lease(context, lease_ms))?;
    let mut conn = context.pool.get().map_err(Error::from)?;
    let held = conn.held_slots(&ListOptions::new().name(&semaphore));
    let held = classify_result(&mut *conn, held.map_err(Failure::from)).context("listing")?;
    // Its lease may have ended.
    let Some(held) = held.first() else {
        return Ok(Outcome::Done);
    };
    let asked = conn.request_release(held);
    classify_result(&mut *conn, asked.map_err(Failure::from)).context("asking")?;
    operation.guard(GuardEvent::Asked)?;
    drop(conn);
    let began = Instant::now();
    let is_told = || guard.release_requested() || !guard.is_held();
    while !is_told() && began.elapsed() < LONGEST {
        thread::sleep(Duration::from_millis(5));
    }
    if is_told() && context.job.sabotage != Some(Sabotage::SilentGuard) {
        operation.guard(GuardEvent::LossReported)?;
    }
    Ok(Outcome::Done)
}

/// A holder that hangs: its guard loses the slot.
pub(crate) fn stuck<C: Store>(
    context: &WorkerContext<C>,
    operation: &Operation,
    lease_ms: u64,
) -> Result<Outcome, Failure> {
    let semaphore = own_semaphore("stuck", operation);
    let duration = Duration::from_millis(lease_ms);
    let lease = lease(context, lease_ms).progress_within(duration);
    let guard = acquired(context, operation, &semaphore, lease)?;
    let is_lost = loss(context, &guard);
    for _ in 0..3 {
        thread::sleep(duration / 2);
        guard.progress()?;
    }
    operation.guard(GuardEvent::Stuck)?;
    let is_told = if context.job.sabotage == Some(Sabotage::FalseProgress) {
        let began = Instant::now();
        while guard.progress().is_ok() && began.elapsed() < LONGEST {
            thread::sleep(duration / 2);
        }
        is_lost.try_recv().is_ok()
    } else {
        is_lost.recv_timeout(LONGEST).is_ok()
    };
    note_loss(operation, &guard, is_told)
}

/// Is notified when the guard reports that it has lost its slot.
fn loss<C: Store>(context: &WorkerContext<C>, guard: &SlotGuard) -> Receiver<()> {
    let (lost, is_lost) = channel();
    if context.job.sabotage != Some(Sabotage::SilentGuard) {
        guard.on_lost(move || {
            // Nobody waits for it when the operation has failed.
            let _ = lost.send(());
        });
    }
    is_lost
}

fn note_loss(operation: &Operation, guard: &SlotGuard, is_told: bool) -> Result<Outcome, Failure> {
    if is_told && !guard.is_held() && guard.ensure_held().is_err() {
        operation.guard(GuardEvent::LossReported)?;
    }
    Ok(Outcome::Done)
}

/// As another process releases a slot: the library of this one does not see it.
fn release_unnoticed<C: Store>(
    context: &WorkerContext<C>,
    guard: &SlotGuard,
) -> Result<LeaseState, Failure> {
    let mut conn = context.pool.get().map_err(Error::from)?;
    let name = guard.slot().semaphore();
    let free = "UPDATE diesel_locks_slots SET token = NULL, expires_us = 0, hold_until_us = 0";
    let released = conn.batch_execute(&format!("{free} WHERE name = '{name}'"));
    classify_result(&mut *conn, released.map_err(Failure::from))?;
    Ok(LeaseState::Unexpired)
}

/// A slot that another thread of the process waits for while it is held.
pub(crate) fn hand_over<C: Store>(
    context: &WorkerContext<C>,
    operation: &Operation,
    workload: &mut Workload,
) -> Result<Outcome, Failure> {
    let semaphore = own_semaphore("handed over", operation);
    let lease = || lease(context, workload_spec::HANDED_OVER_MS);
    let guard = acquired(context, operation, &semaphore, lease())?;
    let interval = Duration::from_millis(workload_spec::HANDED_OVER_MS);
    let standby = context.renewer.poll_interval(interval);
    let stop = StopToken::new();
    thread::scope(|scope| {
        let (leads, is_leading) = channel();
        let (semaphore, stop) = (&semaphore, &stop);
        let elected = scope.spawn(move || {
            let standby = standby.stopped_by(stop);
            standby.run_as_leader(semaphore, lease(), |_| -> Result<(), Failure> {
                let handed_over = operation.guard(GuardEvent::HandedOver);
                // Nobody waits for it when the time is up.
                let _ = leads.send(());
                stop.stop();
                handed_over
            })
        });
        // For most standbys it is enough to ask the database, and to be refused.
        workload.pause(500);
        let is_held = guard.is_held();
        let released = if context.job.sabotage == Some(Sabotage::NoHandOver) {
            release_unnoticed(context, &guard)
        } else {
            guard
                .release()
                .map_err(classify_without_connection)
                .context("releasing")
        };
        let released = operation.released(is_held, released);
        // Not one that leads already.
        let _ = is_leading.recv_timeout(LONGEST);
        stop.stop();
        let elected = elected.join();
        released?;
        match elected {
            Ok(elected) => elected.map(|()| Outcome::Done),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
