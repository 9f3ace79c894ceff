//! Ticks of a job on a timer, which all threads of all processes take part in.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use diesel_locks::chrono::{DateTime, Utc};
use diesel_locks::{Error, Slot, StopToken, Tick, TimerJob};
use torture_history::{ErrorKind, Outcome, SlotHeld, workload_spec};

use super::context::WorkerContext;
use super::errors::{Failure, classify_result};
use super::leases::{lease, write};
use super::operation::Operation;
use super::workload::Workload;
use crate::sabotage::Sabotage;
use crate::store::Store;

/// How long is waited for a tick.
pub(super) const WAIT: Duration = Duration::from_millis(workload_spec::TICK_WAIT_MS);

pub(crate) fn timer_job() -> TimerJob {
    let period = Duration::from_millis(workload_spec::TICK_PERIOD_MS);
    let offset = Duration::from_millis(workload_spec::TICK_OFFSET_MS);
    TimerJob::new(workload_spec::TIMER.name, period).offset(offset)
}

/// Runs one tick, unless none is to be run by this thread in time.
pub(crate) fn run_one<C: Store>(
    context: &WorkerContext<C>,
    operation: &Operation,
    workload: &mut Workload,
    lease_ms: u64,
) -> Result<Outcome, Failure> {
    let stop = StopToken::new();
    let renewer = context.renewer.stopped_by(&stop);
    thread::scope(|scope| {
        let (over, is_over) = channel::<()>();
        let stop = &stop;
        scope.spawn(move || {
            // The sender is dropped at the end.
            let _ = is_over.recv_timeout(WAIT);
            stop.stop();
        });
        let lease = lease(context, lease_ms);
        let ran = renewer.run_on_timer(&timer_job(), &lease, |tick| {
            let ran = run(context, operation, workload, lease_ms, tick);
            stop.stop();
            ran
        });
        drop(over);
        ran
    })?;
    Ok(outcome(operation))
}

fn run<C: Store>(
    context: &WorkerContext<C>,
    operation: &Operation,
    workload: &mut Workload,
    lease_ms: u64,
    tick: &Tick,
) -> Result<(), Failure> {
    let held = begin(operation, tick.slot(), tick.due_at())?;
    // Some take as long as the period, or longer than the lease.
    let longest = match workload.number(0..50) {
        0 => lease_ms * 2,
        1..6 => workload_spec::TICK_PERIOD_MS,
        _ => 10,
    };
    workload.pause(longest);
    operation.look(|| tick.guard().is_held());
    tick.guard().ensure_held()?;
    write(context, operation, workload_spec::TIMER.name, held)?;
    operation.look(|| tick.guard().is_held());
    if context.job.sabotage == Some(Sabotage::RepeatedTick) {
        let mut conn = context.pool.get().map_err(Error::from)?;
        let forced = conn.force_release_all(workload_spec::TIMER.name);
        classify_result(&mut *conn, forced.map_err(Failure::from))?;
    }
    Ok(())
}

/// Notes that a tick begins.
pub(super) fn begin(
    operation: &Operation,
    slot: &Slot,
    due_at: DateTime<Utc>,
) -> Result<SlotHeld, Failure> {
    let held = SlotHeld {
        other: None,
        number: slot.number(),
        fence: slot.fence(),
        due_us: Some(due_at.timestamp_micros()),
    };
    operation.entered(Some(held))?;
    Ok(held)
}

/// The outcome of an operation without an error.
pub(super) fn outcome(operation: &Operation) -> Outcome {
    if operation.held_until().is_some() {
        return Outcome::Done;
    }
    let text = "no tick was run in time".to_owned();
    let kind = ErrorKind::TimedOut;
    Outcome::Failed { kind, text }
}
