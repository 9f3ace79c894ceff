//! Transactions that had ended before their closures returned, and locks that outlived a panic or a dropped future.

use std::time::Duration;

use torture_history::{ErrorKind, FaultKind, InjectedFault, Task, TransactionMethod};

use crate::fault_windows::{FaultWindows, RECOVERY_TIME};
use crate::findings::Findings;
use crate::operation::Operation;
use crate::run::Run;
use crate::{Limits, Violation};

/// Looks for what was granted in a transaction that had ended, for ended transactions that were reported as done, and
/// for locks that other sessions could not acquire after a panic or a drop.
pub(crate) fn check(run: &Run<'_>, limits: &Limits, findings: &mut Findings) {
    let fault_windows = FaultWindows::of(run, &[], |kind| match kind {
        FaultKind::Snapshot | FaultKind::ClockBack => None,
        kind if kind.cuts() => Some(RECOVERY_TIME),
        _ => Some(Duration::ZERO),
    });
    for operation in &run.operations {
        if !operation.has_injected_fault() {
            continue;
        }
        let is_rolled_back =
            limits.several_writers || limits.one_more_transaction && is_in_one_more(operation);
        let granted = operation.requested.iter();
        let granted = granted.filter(|requested| {
            requested.after_loss && requested.refused.is_none() && !is_rolled_back
        });
        if let Some(granted) = granted.min_by_key(|requested| requested.at) {
            findings.add(Violation::UnreportedLosses, || {
                let (told, at) = (run.describe_operation(operation), run.clock(granted.at));
                format!("{told} was granted something at {at}, when its transaction was gone")
            });
        } else if operation.done().is_some() {
            findings.add(Violation::UnreportedLosses, || {
                let task = operation.task;
                let told = run.describe_operation(operation);
                format!("{told} was told that it is done, and its transaction was gone: {task:?}")
            });
        }
    }
    for operation in &run.operations {
        if !operation.asks_for_its_own_lock() {
            continue;
        }
        for requested in &operation.requested {
            if requested.refused == Some(ErrorKind::TimedOut)
                && !fault_windows.overlaps(operation.worker, operation.began, requested.at)
            {
                findings.add(Violation::LeftLocks, || {
                    let what = if operation.is_dropped() {
                        "its future was dropped"
                    } else {
                        "it had panicked"
                    };
                    let told = run.describe_operation(operation);
                    format!("{told} still had its lock after {what}")
                });
            }
        }
    }
}

/// Whether its transaction was ended by a statement, and not by the server, in a closure of this crate. What is
/// written there with what was granted must not be committed: see `commits.rs`.
fn is_in_one_more(operation: &Operation<'_>) -> bool {
    matches!(
        operation.task,
        Task::IgnoreFault {
            method: TransactionMethod::Locked | TransactionMethod::Transaction,
            injected: InjectedFault::Commit | InjectedFault::Rollback,
            ..
        }
    )
}
