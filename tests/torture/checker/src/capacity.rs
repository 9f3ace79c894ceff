//! Semaphores: never more holders than permits, never two with the same slot.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use torture_history::{Moment, Task, workload_spec};

use crate::believed_holds::ClockJumps;
use crate::findings::Findings;
use crate::operation::Operation;
use crate::run::Run;
use crate::{Limits, Violation};

/// A holder of a slot, or a process that believes that it is one.
struct Holding<'r, 'a> {
    from: Moment,
    until: Moment,
    /// `None` where slots have no numbers that their holders know.
    slot: Option<u32>,
    operation: &'r Operation<'a>,
}

/// Counts holders at each moment.
pub(crate) fn check(run: &Run<'_>, limits: &Limits, findings: &mut Findings) {
    let jumps = ClockJumps::of(run, limits.jump_tolerance);
    let mut by_semaphore: HashMap<&str, Vec<Holding<'_, '_>>> = HashMap::new();
    for operation in &run.operations {
        let Some(semaphore) = operation.semaphore() else {
            continue;
        };
        let holding = if matches!(operation.task, Task::Lease { .. }) {
            let belief = jumps.believed_hold(operation);
            belief.map(|(from, until, slot)| (from, until, Some(slot.number)))
        } else {
            let number = operation.slot().map(|slot| slot.number);
            operation.held().map(|(from, until)| (from, until, number))
        };
        if let Some((from, until, slot)) = holding {
            let all = by_semaphore.entry(semaphore.name).or_default();
            all.push(Holding {
                from,
                until,
                slot,
                operation,
            });
        }
    }
    for semaphore in workload_spec::semaphores() {
        let mut all = by_semaphore.remove(semaphore.name).unwrap_or_default();
        all.sort_unstable_by_key(|holding| (holding.from, holding.until, holding.operation.op));
        check_one(semaphore, run, &all, findings);
    }
}

fn check_one(
    semaphore: workload_spec::Semaphore,
    run: &Run<'_>,
    ascending: &[Holding<'_, '_>],
    findings: &mut Findings,
) {
    let permits = usize::try_from(semaphore.permits).unwrap_or(usize::MAX);
    // Two transactions that pinned the same slot are overlapping holders already; here they count as one.
    let is_counted_as_holders = semaphore == workload_spec::PINNED;
    let mut holders: BinaryHeap<Reverse<(Moment, usize)>> = BinaryHeap::new();
    let mut by_slot: HashMap<u32, usize> = HashMap::new();
    for (index, new) in ascending.iter().enumerate() {
        while let Some(&Reverse((until, left))) = holders.peek()
            && until <= new.from
        {
            holders.pop();
            let slot = ascending[left].slot;
            if let Some(slot) = slot
                && by_slot.get(&slot) == Some(&left)
            {
                by_slot.remove(&slot);
            }
        }
        let name = semaphore.name;
        let same = new.slot.and_then(|slot| by_slot.get(&slot)).copied();
        let count = if is_counted_as_holders {
            by_slot.len() + usize::from(same.is_none())
        } else {
            holders.len() + 1
        };
        if let Some(holder) = same
            && !is_counted_as_holders
        {
            findings.add(Violation::OverCapacity, || {
                let slot = new.slot.unwrap_or_default();
                let (holder, new) = (describe(run, &ascending[holder]), describe(run, new));
                format!("slot {slot} of {name:?}: {holder} and {new}")
            });
        } else if count > permits {
            findings.add(Violation::OverCapacity, || {
                let others = holders.iter().take(5);
                let others = others.map(|Reverse((_, other))| describe(run, &ascending[*other]));
                let others: Vec<_> = others.collect();
                let (new, others) = (describe(run, new), others.join(", "));
                format!("{name:?} has {permits} permits and {count} holders: {new} beside {others}")
            });
        }
        holders.push(Reverse((new.until, index)));
        if let Some(slot) = new.slot
            && same.is_none_or(|holder| ascending[holder].until < new.until)
        {
            by_slot.insert(slot, index);
        }
    }
}

fn describe(run: &Run<'_>, holding: &Holding<'_, '_>) -> String {
    let (from, until) = (run.clock(holding.from), run.clock(holding.until));
    format!(
        "{}, which held it from {from} to {until}",
        run.describe_operation(holding.operation)
    )
}
