//! Sequences: neither gaps nor repeats.

use std::collections::{BTreeMap, BTreeSet};

use torture_history::{Task, workload_spec};

use crate::contiguity;
use crate::findings::Findings;
use crate::run::Run;
use crate::{Evidence, Violation};

/// Compares passes with 1 to n, and with the sequences' rows.
pub(crate) fn check(run: &Run<'_>, evidence: &Evidence, findings: &mut Findings) {
    let mut drawn: BTreeMap<String, Vec<(i64, i64)>> = BTreeMap::new();
    for pass in &evidence.passes {
        let of_this = drawn.entry(pass.sequence.to_string()).or_default();
        of_this.push((pass.number, pass.op));
    }
    let rows = evidence.sequences.iter();
    let rows = rows.filter(|row| row.name == workload_spec::SEQUENCES_NAME);
    let last: BTreeMap<_, _> = rows.map(|row| (row.scope.clone(), row.last)).collect();
    let scopes: BTreeSet<_> = drawn.keys().chain(last.keys()).cloned().collect();
    for scope in scopes {
        let mut passes = drawn.remove(&scope).unwrap_or_default();
        passes.sort_unstable();
        check_one(&scope, &passes, last.get(&scope).copied(), run, findings);
    }
    check_received(run, evidence, findings);
}

/// Finds numbers that several confirmed operations received, if the database has lost the rows of some of them.
fn check_received(run: &Run<'_>, evidence: &Evidence, findings: &mut Findings) {
    let mut received: BTreeMap<(u32, i64), Vec<i64>> = BTreeMap::new();
    for operation in &run.operations {
        if let (Task::Pass { sequence }, Some(number), Some(_)) =
            (operation.task, operation.drawn, operation.done())
        {
            let ops = received.entry((*sequence, number)).or_default();
            ops.push(operation.op.0);
        }
    }
    let kept: BTreeSet<i64> = evidence.passes.iter().map(|pass| pass.op).collect();
    for ((sequence, number), ops) in received {
        // `check_one` counts the repeats of which both rows are there.
        let kept = ops.iter().filter(|op| kept.contains(op)).count();
        let repeats = ops.len() - kept.max(1);
        if repeats == 0 {
            continue;
        }
        findings.add_many(Violation::SequenceRepeats, repeats as u64, || {
            let ops: Vec<_> = ops.iter().map(|op| run.describe(*op)).collect();
            format!(
                "number {number} of sequence {sequence} was received by {}",
                ops.join(", ")
            )
        });
    }
}

fn check_one(
    scope: &str,
    passes: &[(i64, i64)],
    last: Option<i64>,
    run: &Run<'_>,
    findings: &mut Findings,
) {
    let flaws = contiguity::flaws(passes.iter().map(|pass| pass.0));
    for (number, times) in flaws.repeats {
        findings.add_many(Violation::SequenceRepeats, times, || {
            let ops = passes.iter().filter(|pass| pass.0 == number);
            let ops: Vec<_> = ops.take(5).map(|pass| run.describe(pass.1)).collect();
            format!(
                "number {number} of sequence {scope} was drawn by {}",
                ops.join(", ")
            )
        });
    }
    for missing in flaws.missing {
        findings.add_many(Violation::SequenceGaps, contiguity::width(&missing), || {
            format!(
                "nobody has number {} of sequence {scope}",
                contiguity::describe(&missing)
            )
        });
    }
    for number in flaws.below {
        findings.add(Violation::SequenceGaps, || {
            format!("sequence {scope} gave out {number}, which is below 1")
        });
    }
    let largest = passes.last().map_or(0, |pass| pass.0);
    let row = last.unwrap_or_default();
    if row > largest {
        let unknown = largest.saturating_add(1)..=row;
        findings.add_many(Violation::SequenceGaps, contiguity::width(&unknown), || {
            format!(
                "sequence {scope} is at {row}, and nobody has number {}",
                contiguity::describe(&unknown)
            )
        });
    } else if row < largest {
        findings.add(Violation::SequenceRepeats, || match last {
            Some(row) => format!("sequence {scope} is at {row}, but {largest} was drawn"),
            None => format!("sequence {scope} is not there, but {largest} was drawn"),
        });
    }
}
