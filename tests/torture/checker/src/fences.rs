//! Fences: each grant of any slot of a semaphore has a larger one, and a resource takes no write with a smaller one.

use std::collections::BTreeMap;

use torture_history::{Moment, SlotHeld};

use crate::findings::Findings;
use crate::operation::Operation;
use crate::run::Run;
use crate::{Evidence, Limits, Violation, Write};

/// A grant: it took place after the one moment and before the other.
#[derive(Clone, Copy)]
struct Grant<'r, 'a> {
    requested: Moment,
    answered: Moment,
    slot: SlotHeld,
    operation: &'r Operation<'a>,
}

/// Compares the fences of grants with the order of time. A node that takes writes as others do knows their grants of other
/// slots a little later.
pub(crate) fn check_grants(run: &Run<'_>, limits: &Limits, findings: &mut Findings) {
    let mut by_semaphore: BTreeMap<&str, Vec<Grant<'_, '_>>> = BTreeMap::new();
    for operation in &run.operations {
        if let Some(semaphore) = operation.semaphore() {
            let all = by_semaphore.entry(semaphore.name).or_default();
            grants_of(operation, all);
        }
    }
    for (semaphore, mut grants) in by_semaphore {
        grants.sort_unstable_by_key(|grant| (grant.slot.fence, grant.operation.op));
        check_twice(semaphore, run, &grants, findings);
        if limits.several_writers {
            grants.sort_by_key(|grant| grant.slot.number);
            for of_slot in grants.chunk_by(|one, other| one.slot.number == other.slot.number) {
                check_order(semaphore, run, of_slot, findings);
            }
        } else {
            check_order(semaphore, run, &grants, findings);
        }
    }
}

/// An operation that enters again with the same slot has it from the same grant.
fn grants_of<'r, 'a>(operation: &'r Operation<'a>, all: &mut Vec<Grant<'r, 'a>>) {
    let mut requested = operation.began;
    let mut before = None;
    for entered in &operation.entered {
        if let Some(slot) = entered.slot
            && before != Some(slot)
        {
            before = Some(slot);
            all.push(Grant {
                requested,
                answered: entered.at,
                slot,
                operation,
            });
        }
        requested = entered.at;
    }
}

/// No fence of a semaphore is granted twice.
fn check_twice(
    semaphore: &str,
    run: &Run<'_>,
    by_fence: &[Grant<'_, '_>],
    findings: &mut Findings,
) {
    for pair in by_fence.windows(2) {
        if let [first, second] = pair
            && first.slot.fence == second.slot.fence
        {
            findings.add(Violation::Fences, || {
                let fence = first.slot.fence;
                let (first, second) = (
                    run.describe_operation(first.operation),
                    run.describe_operation(second.operation),
                );
                format!("{semaphore:?}: the fence {fence} was granted to {first} and to {second}")
            });
        }
    }
}

/// No grant has a smaller fence than one that was answered before it was asked for.
fn check_order(semaphore: &str, run: &Run<'_>, grants: &[Grant<'_, '_>], findings: &mut Findings) {
    let mut answered = grants.to_vec();
    answered.sort_unstable_by_key(|grant| (grant.answered, grant.operation.op));
    let mut requested = grants.to_vec();
    requested.sort_unstable_by_key(|grant| (grant.requested, grant.operation.op));
    let mut answered = answered.into_iter().peekable();
    let mut largest: Option<Grant<'_, '_>> = None;
    for grant in requested {
        while let Some(earlier) = answered.next_if(|earlier| earlier.answered < grant.requested) {
            if largest.is_none_or(|largest| largest.slot.fence < earlier.slot.fence) {
                largest = Some(earlier);
            }
        }
        if let Some(earlier) = largest
            && grant.slot.fence < earlier.slot.fence
        {
            findings.add(Violation::Fences, || {
                format!(
                    "{semaphore:?}: {} got the fence {} with slot {}, {} got {} after it with slot {}",
                    run.describe_operation(earlier.operation),
                    earlier.slot.fence,
                    earlier.slot.number,
                    run.describe_operation(grant.operation),
                    grant.slot.fence,
                    grant.slot.number
                )
            });
        }
    }
}

/// Resources took writes in the order of fences, and remember the last.
pub(crate) fn check_writes(run: &Run<'_>, evidence: &Evidence, findings: &mut Findings) {
    let mut writes: Vec<_> = evidence.writes.iter().collect();
    writes.sort_unstable_by_key(|write| (write.resource, write.version, write.op));
    let mut of_resource: BTreeMap<i32, &[&Write]> = BTreeMap::new();
    for of_one in writes.chunk_by(|one, other| one.resource == other.resource) {
        check_growth(run, of_one, findings);
        if let Some(first) = of_one.first() {
            of_resource.insert(first.resource, of_one);
        }
    }
    for resource in &evidence.resources {
        let of_one = of_resource.get(&resource.id).copied().unwrap_or_default();
        let last = of_one.last().map_or(0, |last| last.version);
        let mut latest = of_one
            .iter()
            .rev()
            .take_while(|write| write.version == last);
        if of_one.is_empty() && resource.fence == 0 {
            continue;
        }
        if !latest.any(|write| write.fence == resource.fence) {
            findings.add(Violation::StaleWrites, || {
                let (id, fence) = (resource.id, resource.fence);
                let last = of_one.last().map_or(0, |last| last.fence);
                format!("resource {id} remembers the fence {fence}, but took {last} last")
            });
        }
    }
}

/// The fence of each write of a resource is larger than all before.
fn check_growth(run: &Run<'_>, in_order: &[&Write], findings: &mut Findings) {
    let mut largest: Option<&Write> = None;
    for write in in_order {
        match largest {
            Some(before) if write.fence <= before.fence => {
                findings.add(Violation::StaleWrites, || {
                    let (id, fence, op) = (write.resource, write.fence, run.describe(write.op));
                    let (larger, earlier) = (before.fence, run.describe(before.op));
                    format!(
                        "resource {id} took the fence {fence} of {op} after {larger} of {earlier}"
                    )
                });
            }
            _ => largest = Some(write),
        }
    }
}
