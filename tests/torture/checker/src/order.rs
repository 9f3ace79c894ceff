//! Numbers follow time: who began after another had ended has the larger number.
//!
//! Where a number was written twice they can't: the larger ones were lost, which is reported as a lost update.

use std::collections::BTreeMap;

use torture_history::Moment;

use crate::findings::Findings;
use crate::operation::Operation;
use crate::run::Run;
use crate::{Evidence, Violation};

/// Compares the order of numbers with that of time.
pub(crate) fn check(run: &Run<'_>, evidence: &Evidence, findings: &mut Findings) {
    let ledger = evidence.ledger.iter();
    let ledger = ledger.map(|row| (row.counter, row.n, row.op));
    check_all("counter", run, ledger, findings);
    let writes = evidence.writes.iter();
    let writes = writes.map(|row| (row.resource, row.version, row.op));
    check_all("version of resource", run, writes, findings);
    let passes = evidence.passes.iter();
    let passes = passes.map(|row| (row.sequence, row.number, row.op));
    check_all("sequence", run, passes, findings);
}

fn check_all(
    what: &str,
    run: &Run<'_>,
    rows: impl Iterator<Item = (i32, i64, i64)>,
    findings: &mut Findings,
) {
    let mut by_id: BTreeMap<i32, Vec<(i64, &Operation<'_>)>> = BTreeMap::new();
    for (id, number, op) in rows {
        // A row without an operation has no time. It is a violation of its own.
        if let Some(operation) = run.find(op) {
            by_id.entry(id).or_default().push((number, operation));
        }
    }
    for (id, mut rows) in by_id {
        rows.sort_unstable_by_key(|row| (row.0, row.1.op));
        if rows.windows(2).any(|two| two[0].0 == two[1].0) {
            continue;
        }
        check_one(&format!("{what} {id}"), run, &rows, findings);
    }
}

/// From the largest number down: none of the smaller ones may have begun after one of the larger ones had ended.
fn check_one(
    what: &str,
    run: &Run<'_>,
    ascending: &[(i64, &Operation<'_>)],
    findings: &mut Findings,
) {
    let mut first_end: Option<(Moment, i64, &Operation<'_>)> = None;
    for &(number, operation) in ascending.iter().rev() {
        if let Some((end, larger, earlier)) = first_end
            && end < operation.began
        {
            findings.add(Violation::Disorder, || {
                let (earlier, later) = (
                    run.describe_operation(earlier),
                    run.describe_operation(operation),
                );
                format!("{what}: {earlier} has {larger}, {later} came after it and has {number}")
            });
        }
        // An operation that was not reported as done may have been committed after its end.
        if let Some(end) = operation.done()
            && first_end.is_none_or(|first| end.at < first.0)
        {
            first_end = Some((end.at, number, operation));
        }
    }
}
