//! Guards: whether they report the loss of their slots, and what becomes of a release while their process waits.

use std::time::Duration;

use torture_history::{FaultKind, GuardEvent, Release, Task};

use crate::Violation;
use crate::fault_windows::{FaultWindows, RECOVERY_TIME};
use crate::findings::Findings;
use crate::operation::Operation;
use crate::run::Run;

/// How much later than the end of the lease a loss may be reported in calm time: for a machine of few processors, which
/// has other threads to run.
const SLACK: Duration = Duration::from_secs(5);

/// How long most hand-overs take at most: less than half of the time between two requests of a standby.
const HAND_OVER: Duration = Duration::from_secs(1);

/// Looks for losses that were not reported, and for late hand-overs.
pub(crate) fn check(run: &Run<'_>, findings: &mut Findings) {
    let fault_windows = FaultWindows::of(run, &[FaultKind::Pause], |kind| match kind {
        FaultKind::Snapshot => None,
        kind if kind.cuts() => Some(RECOVERY_TIME),
        _ => Some(Duration::ZERO),
    });
    let is_calm = |operation: &Operation<'_>| {
        let until = run.end_of(operation);
        !fault_windows.overlaps(operation.worker, operation.began, until)
    };
    for operation in &run.operations {
        if let Some(why) = unreported(operation, is_calm(operation)) {
            findings.add(Violation::UnreportedLosses, || {
                format!("{}: {why}", run.describe_operation(operation))
            });
        }
    }
    let calm = run.operations.iter().filter(|operation| is_calm(operation));
    check_hand_overs(calm.filter_map(hand_over).collect(), findings);
}

/// What is wrong with the report of a slot that was released by force, whose holder was asked to release it, or hangs.
fn unreported(operation: &Operation<'_>, is_calm: bool) -> Option<String> {
    let (cause, why, leases, lease_ms) = match operation.task {
        Task::Revoked { lease_ms } => (
            GuardEvent::Revoked,
            "its slot was released by force",
            1,
            lease_ms,
        ),
        Task::Asked { lease_ms } => (GuardEvent::Asked, "its release was requested", 1, lease_ms),
        // It is renewed without progress for as long as the lease.
        Task::Stuck { lease_ms } => (GuardEvent::Stuck, "its holder hangs", 2, lease_ms),
        _ => return None,
    };
    let from = operation.guard(cause)?;
    operation.done()?;
    let Some(reported) = operation.guard(GuardEvent::LossReported) else {
        return Some(format!("{why}, and its guard has not reported that"));
    };
    let took = reported.since(from);
    let longest = Duration::from_millis(*lease_ms) * leases + SLACK;
    (is_calm && took > longest)
        .then(|| format!("{why}, and its guard reported that {took:?} later"))
}

/// The time from the release of a slot until another thread of the process was granted it. `Duration::MAX` if that thread
/// was not.
fn hand_over(operation: &Operation<'_>) -> Option<Duration> {
    operation.done()?;
    let released = operation.released?;
    let is_handed_over = *operation.task == Task::HandOver && *released.release == Release::InTime;
    let took = operation
        .guard(GuardEvent::HandedOver)
        .map_or(Duration::MAX, |at| at.since(released.at));
    is_handed_over.then_some(took)
}

/// One may be late: its standby had not begun to wait, or it was the turn of another thread. Most are not.
fn check_hand_overs(mut times: Vec<Duration>, findings: &mut Findings) {
    times.sort_unstable();
    let Some(median) = times.get(times.len() / 2) else {
        return;
    };
    if *median > HAND_OVER {
        findings.add(Violation::LateHandOvers, || {
            let count = times.len();
            format!("the median of {count} hand-overs within a process is {median:?}")
        });
    }
}
