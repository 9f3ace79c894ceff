//! Semaphores: never more holders than permits, never two with the same slot.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use torture_history::{Moment, Task, workload_spec};

use crate::believed_holds::ClockJumps;
use crate::findings::Findings;
use crate::operation::Operation;
use crate::run::Run;
use crate::{Limits, Violation};

/// For how long after an operation that failed the number of permits may change that it has set: a message that a fault delays.
const LATEST_CHANGE: Duration = Duration::from_secs(30);

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
        let holding = if matches!(operation.task, Task::Lease { .. } | Task::Tick { .. }) {
            let belief = jumps.believed_hold(operation);
            belief.map(|(from, until, slot)| (from, until, Some(slot.number), slot.other))
        } else {
            let number = operation.slot().map(|slot| slot.number);
            operation
                .held()
                .map(|(from, until)| (from, until, number, None))
        };
        if let Some((from, until, slot, other)) = holding {
            let all = by_semaphore.entry(semaphore.name).or_default();
            // One for each permit. Those of a transaction have no numbers.
            let others = match operation.task {
                Task::Slot { permits, .. } => permits.saturating_sub(1),
                _ => u32::from(other.is_some()),
            };
            for slot in [slot].into_iter().chain((0..others).map(|_| other)) {
                all.push(Holding {
                    from,
                    until,
                    slot,
                    operation,
                });
            }
        }
    }
    for semaphore in workload_spec::semaphores() {
        let mut all = by_semaphore.remove(semaphore.name).unwrap_or_default();
        all.sort_unstable_by_key(|holding| (holding.from, holding.until, holding.operation.op));
        check_one(semaphore, run, &all, findings);
        // Other nodes may not know yet that the number has changed.
        if semaphore == workload_spec::LIMITED && !limits.several_writers {
            check_numbers(&Numbers::of(run), run, &all, findings);
        }
    }
}

/// The numbers of permits that were set for [`workload_spec::LIMITED`], and from when until when each may have applied.
struct Numbers(Vec<(u32, Moment, Moment)>);

impl Numbers {
    fn of(run: &Run<'_>) -> Self {
        let initial = (workload_spec::LIMITED.permits, Moment(0), Moment(0));
        let mut changes = vec![initial];
        let mut confirmed = Vec::new();
        for operation in &run.operations {
            let Task::SetPermits { permits } = operation.task else {
                continue;
            };
            let began = operation.began;
            let latest = if let Some(end) = operation.done() {
                confirmed.push((began, end.at));
                end.at
            } else {
                operation
                    .end
                    .map_or(began, |end| end.at)
                    .plus(LATEST_CHANGE)
            };
            changes.push((*permits, began, latest));
        }
        let replaced = |latest: Moment| {
            let later = confirmed.iter().filter(|(began, _)| *began >= latest);
            later.map(|(_, end)| *end).min().unwrap_or(Moment(u64::MAX))
        };
        let may_apply = |(permits, began, latest)| (permits, began, replaced(latest));
        Self(changes.into_iter().map(may_apply).collect())
    }

    /// The largest that may have applied at any moment of a stretch.
    fn largest(&self, from: Moment, until: Moment) -> u32 {
        let applied = self.0.iter();
        let applied = applied.filter(|(_, first, last)| *first <= until && from <= *last);
        applied.map(|(permits, ..)| *permits).max().unwrap_or(0)
    }
}

/// Looks for grants beyond the number of permits: when all that certainly held slots meanwhile were as many. Not those whose lease
/// had ended before it was renewed, which did not count as held in between.
fn check_numbers(
    numbers: &Numbers,
    run: &Run<'_>,
    ascending: &[Holding<'_, '_>],
    findings: &mut Findings,
) {
    for new in ascending {
        let (requested, granted) = (new.operation.began, new.from);
        let holds = |other: &&Holding<'_, '_>| other.from <= requested && other.until >= granted;
        let others = ascending.iter().filter(holds);
        let others = others.filter(|other| {
            let renewed = &other.operation.renewed;
            other.operation.op != new.operation.op && !renewed.iter().any(|one| one.expired)
        });
        let held = u32::try_from(others.count()).unwrap_or(u32::MAX);
        let permits = numbers.largest(requested, granted);
        if held >= permits {
            findings.add(Violation::OverCapacity, || {
                let new = describe(run, new);
                format!("{held} slots of {permits} registered permits were held: {new}")
            });
        }
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
