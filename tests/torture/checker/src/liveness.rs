//! Whether anything is done at all: who refuses everybody violates nothing else.

use std::collections::BTreeSet;
use std::time::Duration;

use torture_history::Task;

use crate::Violation;
use crate::findings::Findings;
use crate::run::Run;

/// A run in which work began for so long has done something of every kind, whatever failed meanwhile.
const LONG_ENOUGH: Duration = Duration::from_secs(10);

/// Looks for kinds of tasks of which none was done.
pub(crate) fn check(run: &Run<'_>, findings: &mut Findings) {
    let beginnings = run.operations.iter().map(|operation| operation.began);
    let (first, last) = (beginnings.clone().min(), beginnings.max());
    let worked = first.zip(last).map(|(first, last)| last.since(first));
    if worked.is_none_or(|worked| worked < LONG_ENOUGH) {
        return;
    }
    let operations = run.operations.iter();
    let done = operations.filter(|operation| operation.done().is_some());
    let done: BTreeSet<_> = done.map(|operation| operation.task.name()).collect();
    for name in Task::NAMES {
        if !done.contains(name) {
            findings.add(Violation::NothingDone, || {
                let operations = run.operations.iter();
                let of_kind = operations.filter(|operation| operation.task.name() == name);
                format!("{name}: {} were begun, and none was done", of_kind.count())
            });
        }
    }
}
