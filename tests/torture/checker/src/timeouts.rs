//! Waits that ended before their time, or long after it.

use std::time::Duration;

use torture_history::{ErrorKind, Outcome, Waiting};

use crate::beliefs::Jumps;
use crate::disturbances::{AFTERMATH, Disturbances};
use crate::findings::Findings;
use crate::operation::Operation;
use crate::run::Run;
use crate::{Limits, Violation};

/// Databases count in whole milliseconds.
const STEP: Duration = Duration::from_millis(1);
/// How much later a wait may end in calm time: the pool may take 3 s for a connection before it, and a machine of few
/// processors has other threads to run.
const SLACK: Duration = Duration::from_secs(5);

/// Looks at all that timed out. `TimedOut` is told of what the crate waits for, and that it does once in an operation.
pub(crate) fn check(run: &Run<'_>, limits: &Limits, findings: &mut Findings) {
    // Servers count waits by the clock that can be set: one that jumps ahead ends them.
    let jumps = Jumps::of(run, limits.jump_tolerance);
    // Others may stand still with what it waits for: that is what the limit is for.
    let disturbances = Disturbances::of(run, &[], |kind| {
        Some(if kind.cuts() {
            AFTERMATH
        } else {
            Duration::ZERO
        })
    });
    for operation in &run.operations {
        let Some((limit, took)) = waited(operation) else {
            continue;
        };
        let (began, end) = (operation.began, operation.began.plus(took));
        if took + STEP < limit && !jumps.touch(began, end) {
            findings.add(Violation::EarlyTimeouts, || {
                format!("{} was to wait for {limit:?}", run.tell_of(operation))
            });
        }
        if took > limit + SLACK && !disturbances.touch(operation.worker, began, end) {
            findings.add(Violation::LateTimeouts, || {
                format!(
                    "{} was to wait for {limit:?} at most",
                    run.tell_of(operation)
                )
            });
        }
    }
}

/// How long an operation that timed out was to wait, and how long it took.
fn waited(operation: &Operation<'_>) -> Option<(Duration, Duration)> {
    let end = operation.end?;
    let timed_out = matches!(
        end.outcome,
        Outcome::Failed {
            kind: ErrorKind::TimedOut,
            ..
        }
    );
    match operation.task.waiting() {
        Some(Waiting::AtMost(limit)) if timed_out => {
            Some((Duration::from_millis(limit), end.at.since(operation.began)))
        }
        _ => None,
    }
}
