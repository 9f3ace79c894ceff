//! One holder at a time: of an object's lock, unless all share it, and of a slot that is pinned by a transaction.

use std::collections::{BTreeMap, HashSet};

use torture_history::{Locking, Moment, Task, workload_spec};

use crate::findings::Findings;
use crate::operation::Operation;
use crate::run::Run;
use crate::{Evidence, Violation};

/// An operation that held something, from when until when, and whether others may hold it in the same way.
type Held<'r, 'a> = (Moment, Moment, &'r Operation<'a>, bool);

/// Looks for two who held the same at the same time.
///
/// A transaction that was committed held its locks from the answer until COMMIT was sent. So did one that pinned a
/// slot: had another got the slot since it was leased, whatever the clock did, it could not have been pinned.
pub(crate) fn check(run: &Run<'_>, evidence: &Evidence, findings: &mut Findings) {
    let mut locks: BTreeMap<u32, Vec<Held<'_, '_>>> = BTreeMap::new();
    let mut slots: BTreeMap<u32, Vec<Held<'_, '_>>> = BTreeMap::new();
    for operation in &run.operations {
        let Some((from, until)) = operation.held() else {
            continue;
        };
        let held = (from, until, operation, false);
        match operation.task {
            Task::Lock(Locking {
                counters, shared, ..
            }) => {
                for counter in counters {
                    locks.entry(*counter).or_default().push(held);
                }
                let held = (from, until, operation, true);
                for counter in shared {
                    locks.entry(*counter).or_default().push(held);
                }
            }
            Task::IgnoreFault { counters, .. } => {
                locks.entry(counters[0]).or_default().push(held);
            }
            Task::Pinned { .. } => {
                if let Some(slot) = operation.slot() {
                    slots.entry(slot.number).or_default().push(held);
                }
            }
            _ => {}
        }
    }
    // Two who have several locks in common overlap once.
    let mut found = HashSet::new();
    for (what, held) in [("object", locks), ("slot", slots)] {
        for (id, held) in held {
            check_one(&format!("{what} {id}"), run, held, &mut found, findings);
        }
    }
    check_pinned_order(run, evidence, findings);
}

fn check_one(
    what: &str,
    run: &Run<'_>,
    mut held: Vec<Held<'_, '_>>,
    found: &mut HashSet<[i64; 2]>,
    findings: &mut Findings,
) {
    held.sort_unstable_by_key(|held| (held.0, held.1, held.2.op));
    // Of those that exclude all others, and of those that exclude only these.
    let mut longest: [Option<Held<'_, '_>>; 2] = [None; 2];
    for held in held {
        let (from, until, operation, is_shared) = held;
        for (_, end, holder, is_others_shared) in longest.into_iter().flatten() {
            if end <= from || holder.op == operation.op {
                continue;
            }
            if is_shared && is_others_shared {
                findings.shared += 1;
                continue;
            }
            if !found.insert([holder.op.0, operation.op.0]) {
                continue;
            }
            findings.add(Violation::OverlappingHolders, || {
                let (holder, other) = (
                    run.describe_operation(holder),
                    run.describe_operation(operation),
                );
                let (end, from) = (run.clock(end), run.clock(from));
                format!("{what}: {holder} held it until {end}, {other} entered at {from}")
            });
        }
        let longest = &mut longest[usize::from(is_shared)];
        if longest.is_none_or(|longest| longest.1 < until) {
            *longest = Some(held);
        }
    }
}

/// Of an operation whose process was killed is not known until when it held its slot. Instead: transactions that
/// pinned the same slot were committed in the order in which the slot was granted to them.
fn check_pinned_order(run: &Run<'_>, evidence: &Evidence, findings: &mut Findings) {
    let mut by_counter: BTreeMap<i32, Vec<(i64, &Operation<'_>)>> = BTreeMap::new();
    for row in &evidence.ledger {
        if let Some(operation) = run.find(row.op)
            && operation.committed
            && matches!(operation.task, Task::Pinned { .. })
        {
            let rows = by_counter.entry(row.counter).or_default();
            rows.push((row.n, operation));
        }
    }
    for rows in by_counter.values_mut() {
        rows.sort_unstable_by_key(|row| (row.0, row.1.op));
        for pair in rows.windows(2) {
            let &[(_, first), (_, second)] = pair else {
                continue;
            };
            let known = [first, second]
                .iter()
                .all(|operation| operation.end.is_some_and(|end| end.held_until.is_some()));
            let fences = [first, second].map(|operation| operation.slot().map(|slot| slot.fence));
            if !known && fences[0] > fences[1] {
                findings.add(Violation::OverlappingHolders, || {
                    format!(
                        "slot of {:?}: {} was committed after {}, to which it was granted later",
                        workload_spec::PINNED.name,
                        run.describe_operation(second),
                        run.describe_operation(first)
                    )
                });
            }
        }
    }
}
