//! Operations that did not complete, or not in time.

use std::collections::BTreeSet;
use std::fmt::Display;

use crate::findings::Findings;
use crate::operation::Operation;
use crate::run::{Process, Run};
use crate::{Limits, Violation};

/// Looks for operations without an end, and for long ones.
pub(crate) fn check(run: &Run<'_>, limits: &Limits, findings: &mut Findings) {
    let mut open = BTreeSet::new();
    for operation in &run.operations {
        if let Some(why) = hung(operation, run, limits) {
            findings.add(Violation::Hung, || {
                let process = run.processes.get(&operation.op.process());
                let pid = process.map_or(0, |process| process.pid);
                let (told, thread) = (run.describe_operation(operation), operation.thread);
                format!("{told}, thread {thread} of pid {pid}, {why}")
            });
        }
        if operation.end.is_none() {
            open.insert(operation.op.process());
        }
    }
    for (number, process) in &run.processes {
        // A process that was in an operation is reported with the operation.
        if !process.stopped && !limits.killed.contains(number) && !open.contains(number) {
            findings.add(Violation::Hung, || {
                let Process { worker, pid, .. } = process;
                let last = run.clock(process.until);
                format!(
                    "process {number} of worker {worker}, pid {pid}, last seen at {last}, never stopped"
                )
            });
        }
    }
}

/// Why an operation is one that hung.
fn hung(operation: &Operation<'_>, run: &Run<'_>, limits: &Limits) -> Option<impl Display + use<>> {
    let process = operation.op.process();
    if operation.end.is_none() {
        let stopped = run
            .processes
            .get(&process)
            .is_some_and(|process| process.stopped);
        if stopped {
            return Some("never came back before its process stopped".to_owned());
        }
        if !limits.killed.contains(&process) {
            return Some("never came back, and nobody killed its process".to_owned());
        }
    }
    // Of one that was killed: as long as its process was alive.
    let took = run.took(operation);
    let longest = limits.longest;
    (took > longest).then(|| format!("took {took:.1?} without pauses, longer than {longest:?}"))
}
