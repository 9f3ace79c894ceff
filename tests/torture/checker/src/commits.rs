//! What took place, by the rows that operations left, and whether that was reported to their workers.

use torture_history::{
    ErrorKind, InjectedFault, Locking, Op, Outcome, Request, Row, Task, TransactionMethod,
    workload_spec,
};

use crate::findings::Findings;
use crate::operation::Operation;
use crate::run::Run;
use crate::{Evidence, Violation};

/// Where an operation leaves a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place<'a> {
    Counter(i64),
    Resource { id: i64, fence: i64 },
    Sequence(i64),
    Semaphore(&'a str),
    Step(i64),
}

/// Finds out which operations were committed, and compares.
pub(crate) fn check(run: &mut Run<'_>, evidence: &Evidence, findings: &mut Findings) {
    let rows = rows(evidence);
    let mut rest = rows.as_slice();
    let mut operations = std::mem::take(&mut run.operations);
    let mut judged = Vec::new();
    for (index, operation) in operations.iter_mut().enumerate() {
        let foreign = rest.partition_point(|(op, _)| *op < operation.op);
        judged.extend(rest[..foreign].iter().map(|row| Judged::NeverBegan(row.0)));
        rest = &rest[foreign..];
        let (own, after) = rest.split_at(rest.partition_point(|(op, _)| *op == operation.op));
        rest = after;
        // What each statement commits by itself may be there or not.
        let mut free = free_places(operation);
        if operation.may_be_dropped() {
            let outside = Place::Step(workload_spec::STEP_OUTSIDE.into());
            let is_there = own.iter().any(|row| row.1 == outside);
            if has_written_outside(operation) && !is_there {
                judged.push(Judged::LostCommit(index));
            }
            free.push(outside);
        }
        let own: Vec<_> = own.iter().filter(|row| !free.contains(&row.1)).collect();
        let mut expected = places(operation);
        expected.retain(|place| !free.contains(place));
        let there = expected
            .iter()
            .filter(|place| own.iter().any(|row| row.1 == **place));
        let there = there.count();
        operation.committed =
            there > 0 && there == expected.len() && !operation.has_injected_fault();
        if operation.has_injected_fault() && operation.done().is_some() {
            // For `losses.rs`.
        } else if let Task::Panic { .. } = operation.task {
            judged.extend(judge_panic(operation, index, &own));
        } else if own.len() > there {
            judged.push(Judged::UnexpectedRow(index));
        } else if let Some(judgement) = judge(operation, index, there) {
            judged.push(judgement);
        }
    }
    judged.extend(rest.iter().map(|row| Judged::NeverBegan(row.0)));
    run.operations = operations;
    for judgement in judged {
        judgement.report(run, findings);
    }
}

/// What is wrong with an operation.
enum Judged {
    NeverBegan(Op),
    UnexpectedRow(usize),
    PartialCommit(usize),
    LostCommit(usize),
    GhostCommit(usize),
}

fn judge(operation: &Operation<'_>, index: usize, there: usize) -> Option<Judged> {
    if there > 0 && operation.has_injected_fault() {
        return Some(Judged::GhostCommit(index));
    }
    if there > 0 && !operation.committed {
        return Some(Judged::PartialCommit(index));
    }
    match operation.end?.outcome {
        Outcome::Done if leaves_nothing(operation.task) => None,
        Outcome::Done => (there == 0).then_some(Judged::LostCommit(index)),
        Outcome::Refused | Outcome::RolledBack => (there > 0).then_some(Judged::GhostCommit(index)),
        Outcome::Failed { kind, .. } => {
            let is_unknown = kind.may_have_happened()
                || *kind == ErrorKind::Connection && is_committed_by_diesel(operation.task);
            (there > 0 && !is_unknown).then_some(Judged::GhostCommit(index))
        }
    }
}

/// Whether Diesel sends COMMIT. Its error does not say whether the connection was lost then or before.
fn is_committed_by_diesel(task: &Task) -> bool {
    matches!(
        task,
        Task::IgnoreFault {
            method: TransactionMethod::Diesel,
            ..
        }
    )
}

/// Nothing of a transaction whose closure has panicked is there; what came after it on the same connection is.
fn judge_panic(
    operation: &Operation<'_>,
    index: usize,
    own: &[&(Op, Place<'_>)],
) -> Option<Judged> {
    let outside = Place::Step(workload_spec::STEP_OUTSIDE.into());
    let is_told = operation.done().is_some() || has_written_outside(operation);
    if own.iter().any(|row| row.1 != outside) {
        return Some(Judged::GhostCommit(index));
    }
    (is_told && own.is_empty()).then_some(Judged::LostCommit(index))
}

/// Whether the database took the row that is written after a panic or a drop, outside of a transaction.
fn has_written_outside(operation: &Operation<'_>) -> bool {
    let outside = Row::Step(workload_spec::STEP_OUTSIDE);
    operation.wrote.contains(&outside)
}

impl Judged {
    fn report(&self, run: &Run<'_>, findings: &mut Findings) {
        let describe = |index: &usize| run.describe_operation(&run.operations[*index]);
        match self {
            Self::NeverBegan(op) => findings.add(Violation::GhostCommits, || {
                format!("there is a row of {}", run.describe(op.0))
            }),
            Self::UnexpectedRow(index) => findings.add(Violation::GhostCommits, || {
                format!(
                    "{} left a row that it had not set out to write",
                    describe(index)
                )
            }),
            Self::PartialCommit(index) => findings.add(Violation::LostCommits, || {
                format!("only a part of {} is there", describe(index))
            }),
            Self::LostCommit(index) => findings.add(Violation::LostCommits, || {
                format!(
                    "{} was told that it is done, and is not there",
                    describe(index)
                )
            }),
            Self::GhostCommit(index) => findings.add(Violation::GhostCommits, || {
                let outcome = run.operations[*index].end.map(|end| end.outcome);
                format!("{} was told {outcome:?}, and is there", describe(index))
            }),
        }
    }
}

/// All rows that operations left, in the order of operations.
fn rows(evidence: &Evidence) -> Vec<(Op, Place<'_>)> {
    let ledger = evidence.ledger.iter();
    let mut rows: Vec<_> = ledger
        .map(|row| (Op(row.op), Place::Counter(row.counter.into())))
        .collect();
    rows.extend(evidence.writes.iter().map(|row| {
        let (id, fence) = (row.resource.into(), row.fence);
        (Op(row.op), Place::Resource { id, fence })
    }));
    let passes = evidence.passes.iter();
    rows.extend(passes.map(|row| (Op(row.op), Place::Sequence(row.sequence.into()))));
    let slot_uses = evidence.slot_uses.iter();
    rows.extend(slot_uses.map(|row| (Op(row.op), Place::Semaphore(&row.semaphore))));
    let steps = evidence.steps.iter();
    rows.extend(steps.map(|row| (Op(row.op), Place::Step(row.step.into()))));
    rows.sort_by_key(|row| row.0);
    rows
}

/// Where the operation was to leave a row, each place once.
fn places<'a>(operation: &Operation<'a>) -> Vec<Place<'a>> {
    match operation.task {
        Task::Lock(Locking {
            counters, shared, ..
        }) => {
            let mut counters = counters.clone();
            counters.sort_unstable();
            counters.dedup();
            let counters = counters.into_iter().map(|id| Place::Counter(id.into()));
            let read = Place::Step(workload_spec::STEP_READ.into());
            counters
                .chain((!shared.is_empty()).then_some(read))
                .collect()
        }
        Task::Lease { .. } | Task::Tick { .. } => {
            let slot = operation.semaphore().zip(operation.slot()).into_iter();
            slot.map(|(semaphore, slot)| Place::Resource {
                id: workload_spec::resource(semaphore.name, slot.number).into(),
                fence: slot.fence,
            })
            .collect()
        }
        Task::Pinned { .. } => {
            let first = i64::from(workload_spec::PINNED_COUNTERS.start);
            let slot = operation.slot().into_iter();
            slot.map(|slot| Place::Counter(first + i64::from(slot.number) - 1))
                .collect()
        }
        Task::Slot { .. } => vec![Place::Semaphore(workload_spec::HELD_BY_TRANSACTIONS.name)],
        Task::Pass { sequence } => vec![Place::Sequence((*sequence).into())],
        Task::Transfer { from, to } => {
            let mut accounts = vec![Place::Counter((*from).into()), Place::Counter((*to).into())];
            accounts.dedup();
            accounts
        }
        Task::IgnoreFault { .. } | Task::Panic { .. } => {
            let rows = operation.wrote.iter();
            rows.map(|row| match *row {
                Row::Counter(id) => Place::Counter(id.into()),
                Row::Pass(sequence) => Place::Sequence(sequence.into()),
                Row::Step(step) => Place::Step(step.into()),
            })
            .collect()
        }
        Task::SetPermits { .. }
        | Task::Purge
        | Task::Revoked { .. }
        | Task::Asked { .. }
        | Task::Stuck { .. }
        | Task::HandOver => Vec::new(),
    }
}

/// Whether nothing of it remains in the database, even if it is done.
fn leaves_nothing(task: &Task) -> bool {
    matches!(
        task,
        Task::SetPermits { .. }
            | Task::Purge
            | Task::Revoked { .. }
            | Task::Asked { .. }
            | Task::Stuck { .. }
            | Task::HandOver
    )
}

/// What an operation has committed by statements of its own, or may have, whose transaction was gone: the row that it
/// writes then without asking for anything, and what was in the transaction when it sent COMMIT.
fn free_places<'a>(operation: &Operation<'a>) -> Vec<Place<'a>> {
    let Task::IgnoreFault {
        injected,
        counters,
        request,
        ..
    } = operation.task
    else {
        return Vec::new();
    };
    if !operation.lost {
        return Vec::new();
    }
    let mut places = vec![Place::Step(workload_spec::STEP_AFTER.into())];
    if *injected == InjectedFault::Commit {
        places.push(Place::Counter(counters[0].into()));
        places.push(Place::Step(workload_spec::STEP_BEFORE.into()));
        if *request == Request::NumberBefore {
            places.push(Place::Sequence(workload_spec::FAULT_SEQUENCE.into()));
        }
    }
    places
}
