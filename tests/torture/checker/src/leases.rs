//! Leases that were lost although nothing could end them, and those that were believed in beyond their end.
//!
//! A lease that is renewed in the background is lost when its process, its connections, the server or the clock fail
//! for long enough. When none of them did, it has to be held until it is released. One that is not renewed can't
//! have ended before its length has passed since it, or its last renewal, was asked for, unless the clock jumped ahead,
//! whatever else failed.

use std::time::Duration;

use torture_history::{ErrorKind, FaultKind, Moment, Outcome, Release, Task};

use crate::believed_holds::ClockJumps;
use crate::fault_windows::{FaultWindows, RECOVERY_TIME};
use crate::findings::Findings;
use crate::operation::Operation;
use crate::run::Run;
use crate::{Evidence, Limits, Violation};

/// For how long after a fault a renewal may be late.
fn disturbs(kind: FaultKind, tolerance: Duration) -> Option<Duration> {
    match kind {
        FaultKind::Snapshot | FaultKind::Drop => None,
        FaultKind::Kill | FaultKind::Pause | FaultKind::Hog => Some(Duration::from_secs(1)),
        FaultKind::ClockAhead | FaultKind::ClockBack => Some(tolerance),
        // Both sides see it at once, and the next renewal has another connection.
        FaultKind::Reset | FaultKind::Delay | FaultKind::Terminate => Some(Duration::from_secs(3)),
        // The pool takes its time between two attempts to connect.
        FaultKind::Refuse | FaultKind::Exhaust | FaultKind::Crash => Some(Duration::from_secs(6)),
        FaultKind::BlackHole | FaultKind::Freeze | FaultKind::Isolate | FaultKind::Promote => {
            Some(RECOVERY_TIME)
        }
    }
}

/// Looks for lost leases.
pub(crate) fn check(run: &Run<'_>, evidence: &Evidence, limits: &Limits, findings: &mut Findings) {
    let tolerance = limits.jump_tolerance;
    let jumps = ClockJumps::of(run, tolerance);
    // SQLite has one writer: while that is stopped, no other process can renew.
    let everybodys: &[FaultKind] = if evidence.has_server {
        &[]
    } else {
        &[FaultKind::Pause]
    };
    let fault_windows = FaultWindows::of(run, everybodys, |kind| disturbs(kind, tolerance));
    // SQLite's clock counts milliseconds: a lease may end up to one step early.
    let step = Duration::from_millis((!evidence.has_server).into());
    let mut judged = 0;
    for operation in &run.operations {
        let lost = match operation.task {
            Task::Lease { renewed: true, .. } | Task::Tick { .. }
                if is_undisturbed(operation, &fault_windows, tolerance) =>
            {
                judged += 1;
                lost_renewed(operation)
            }
            Task::Lease { renewed: true, .. } | Task::Tick { .. } => None,
            Task::Lease { lease_ms, .. } => {
                let lease = Duration::from_millis(*lease_ms);
                lost_early(operation, lease.saturating_sub(step), &jumps)
                    .or_else(|| believed_late(operation, lease))
            }
            // Its transaction may be committed after the end of the lease.
            Task::Pinned { lease_ms } => {
                let lease = Duration::from_millis(*lease_ms);
                lost_early(operation, lease.saturating_sub(step), &jumps)
            }
            _ => None,
        };
        if let Some(lost) = lost {
            findings.add(Violation::LostLeases, || {
                format!("{}: {lost}", run.describe_operation(operation))
            });
        }
    }
    findings.judged_without_excuse(Violation::LostLeases, judged);
}

/// How it learned that it had lost its slot, each time that it did, and when.
fn losses(operation: &Operation<'_>) -> impl Iterator<Item = (&'static str, Moment)> {
    let renewed = operation.renewed.iter().filter(|one| one.expired);
    let renewed = renewed.map(|one| ("the lease had ended when it was renewed", one.at));
    let last = lost_in_the_end(operation);
    renewed.chain(last)
}

fn lost_in_the_end(operation: &Operation<'_>) -> Option<(&'static str, Moment)> {
    let end = operation.end?;
    if let Outcome::Failed { kind, .. } = end.outcome {
        // What it gave back after that it had lost before.
        let at = operation.released.map_or(end.at, |released| released.at);
        match kind {
            ErrorKind::SlotLost => return Some(("the slot was another's", at)),
            ErrorKind::Fenced => return Some(("the resource had seen a larger fence", at)),
            _ => {}
        }
    }
    let released = operation.released?;
    match released.release {
        Release::Expired => Some(("the lease had ended when it was given back", released.at)),
        Release::Lost => Some(("the slot was another's when given back", released.at)),
        Release::InTime | Release::Failed { .. } => None,
    }
}

/// Whether it was granted its slot and came back in calm time.
fn is_undisturbed(
    operation: &Operation<'_>,
    fault_windows: &FaultWindows,
    tolerance: Duration,
) -> bool {
    let is_calm = |end: Moment| {
        let end = end.plus(tolerance);
        !fault_windows.overlaps(operation.worker, operation.began, end)
    };
    !operation.entered.is_empty() && operation.end.is_some_and(|end| is_calm(end.at))
}

/// A lease that was renewed all the while, in calm time.
fn lost_renewed(operation: &Operation<'_>) -> Option<&'static str> {
    if let Some((lost, _)) = losses(operation).next() {
        return Some(lost);
    }
    let released = operation.released?;
    (!released.is_held).then_some("its guard was lost")
}

/// A lease that was another's, or had ended, before it can have. A renewal that was confirmed is a lease from when it
/// was asked for, whether the one before had ended or not.
fn lost_early(
    operation: &Operation<'_>,
    lease: Duration,
    jumps: &ClockJumps,
) -> Option<&'static str> {
    let is_early = |at: Moment| {
        let mut before = operation.renewed.iter().filter(|one| one.at < at);
        let requested = before
            .next_back()
            .map_or(operation.began, |one| one.requested);
        at < requested.plus(lease) && !jumps.overlaps(requested, at)
    };
    let mut early = losses(operation).filter(|(_, at)| is_early(*at));
    early.next().map(|(lost, _)| lost)
}

/// A holder that counted beyond its lease, by its own clock.
fn believed_late(operation: &Operation<'_>, lease: Duration) -> Option<&'static str> {
    let held_until = operation.end?.held_until?;
    let granted = operation.entered()?.at;
    let renewed = operation.renewed.last().map(|renewed| renewed.at);
    let last = renewed.unwrap_or(granted).plus(lease);
    (held_until > last).then_some("it believed in its lease after the end of it")
}
