//! Waits that ended before their time, or long after it, with what was asked for or without.

use std::time::Duration;

use torture_history::{ErrorKind, FaultKind, Moment, Outcome, Task, WaitLimit, workload_spec};

use crate::believed_holds::ClockJumps;
use crate::fault_windows::{FaultWindows, RECOVERY_TIME};
use crate::findings::Findings;
use crate::operation::Operation;
use crate::run::Run;
use crate::{Evidence, Limits, Violation};

/// Databases count in whole milliseconds.
const STEP: Duration = Duration::from_millis(1);
/// How much later a wait may end in calm time: a machine of few processors has other threads to run.
const SLACK: Duration = Duration::from_secs(5);

/// For how long after a fault a wait may end late.
fn disturbs(kind: FaultKind) -> Option<Duration> {
    match kind {
        // No session waits for one that only reads. Clients measure by a clock that no fault sets. The clock of a
        // server that measures by the system's clock jumps by less than the slack.
        FaultKind::Snapshot | FaultKind::ClockAhead | FaultKind::ClockBack => None,
        // Other processes may be stopped while they hold what it waits for: the limit is for this case.
        kind if kind.cuts() => Some(RECOVERY_TIME),
        _ => Some(Duration::ZERO),
    }
}

/// Looks at all waits that had a limit. `TimedOut` is the error of the crate's own wait, of which an operation has one.
pub(crate) fn check(run: &Run<'_>, evidence: &Evidence, limits: &Limits, findings: &mut Findings) {
    // Servers count waits by the clock that can be set: one that jumps ahead ends them.
    let jumps = ClockJumps::of(run, limits.jump_tolerance);
    let fault_windows = FaultWindows::of(run, &[], disturbs);
    // SQLite has one writer. The grant of a lease, and the creation of a purged slot, wait for it.
    let of_slots = if evidence.has_server {
        &[][..]
    } else {
        &[FaultKind::Pause]
    };
    let of_slots = FaultWindows::of(run, of_slots, disturbs);
    let mut judged = 0;
    for operation in &run.operations {
        let Some(waited) = Waited::of(operation) else {
            continue;
        };
        // No limit of a wait is one for the connection, which the pool gives within a time-out of its own.
        let began = operation.connected.unwrap_or(operation.began);
        let slack = if operation.borrows_connection() {
            SLACK + workload_spec::POOL_TIMEOUT
        } else {
            SLACK
        };
        let (limit, until) = (waited.limit, waited.until);
        let took = until.since(began);
        if waited.timed_out && took + STEP < limit && !jumps.overlaps(began, until) {
            findings.add(Violation::EarlyTimeouts, || {
                format!(
                    "{} was to wait for {limit:?}",
                    run.describe_operation(operation)
                )
            });
        }
        // A tick's limit is a stop, which does not end the attempt that is running.
        let is_of_slot = !waited.timed_out || matches!(operation.task, Task::Tick { .. });
        let fault_windows = if operation.semaphore().is_some() && is_of_slot {
            &of_slots
        } else {
            &fault_windows
        };
        let is_excused = fault_windows.overlaps(operation.worker, began, until);
        judged += usize::from(!is_excused);
        if took > limit + slack && !is_excused {
            findings.add(Violation::LateTimeouts, || {
                let operation = run.describe_operation(operation);
                format!("{operation} was to wait for {limit:?} at most, and waited for {took:?}")
            });
        }
    }
    findings.judged_without_excuse(Violation::LateTimeouts, judged);
}

/// A wait that had a limit, and came to an end.
struct Waited {
    limit: Duration,
    timed_out: bool,
    /// When it was granted what it requested, or got an error.
    until: Moment,
}

impl Waited {
    fn of(operation: &Operation<'_>) -> Option<Self> {
        let (limit, waits) = match operation.task.wait_limit()? {
            WaitLimit::Forever => return None,
            WaitLimit::No => (0, false),
            WaitLimit::AtMost(limit) => (limit, true),
        };
        let limit = Duration::from_millis(limit);
        // Each further entry is another attempt at its transaction, with what it had got before.
        let entered = operation.entered.first().map(|entered| entered.at);
        let (timed_out, end) = match operation.end.map(|end| (end.outcome, end.at)) {
            Some((Outcome::Refused, at)) => (false, Some(at)),
            Some((Outcome::Failed { kind, .. }, at)) if *kind == ErrorKind::TimedOut => {
                (waits, Some(at))
            }
            _ => (false, None),
        };
        let until = if timed_out { end } else { entered.or(end) }?;
        Some(Self {
            limit,
            timed_out,
            until,
        })
    }
}
