//! Counters, accounts and versions of resources: every change counts, none is lost.

use std::collections::{BTreeMap, BTreeSet};

use torture_history::workload_spec;

use crate::contiguity;
use crate::findings::Findings;
use crate::run::Run;
use crate::{Evidence, Violation};

const LOST: Violation = Violation::LostUpdates;

/// Numbers and the operations that wrote them, in ascending order, by counter.
type Written = BTreeMap<i32, Vec<(i64, i64)>>;

/// Compares counters and versions with what was written.
pub(crate) fn check(run: &Run<'_>, evidence: &Evidence, findings: &mut Findings) {
    let ledger = evidence.ledger.iter();
    let written = by_id(ledger.map(|row| (row.counter, row.n, row.op)));
    let counters = evidence.counters.iter();
    let last = counters.map(|counter| (counter.id, counter.n)).collect();
    check_all("counter", run, &written, &last, findings);

    let writes = evidence.writes.iter();
    let written = by_id(writes.map(|row| (row.resource, row.version, row.op)));
    let resources = evidence.resources.iter();
    let last = resources.map(|row| (row.id, row.version)).collect();
    check_all("version of resource", run, &written, &last, findings);

    let accounts = evidence.counters.iter();
    let money: i128 = accounts
        .filter(|counter| {
            u32::try_from(counter.id)
                .is_ok_and(|counter| workload_spec::ACCOUNTS.contains(&counter))
        })
        .map(|counter| i128::from(counter.balance))
        .sum();
    if money != 0 {
        findings.add(LOST, || {
            format!("the balances of all accounts together are {money} and not 0")
        });
    }
}

/// Groups (id, number, operation) by id.
fn by_id(rows: impl Iterator<Item = (i32, i64, i64)>) -> Written {
    let mut written = Written::new();
    for (id, number, op) in rows {
        written.entry(id).or_default().push((number, op));
    }
    for rows in written.values_mut() {
        rows.sort_unstable();
    }
    written
}

fn check_all(
    what: &str,
    run: &Run<'_>,
    written: &Written,
    last: &BTreeMap<i32, i64>,
    findings: &mut Findings,
) {
    let ids: BTreeSet<_> = written.keys().chain(last.keys()).collect();
    for id in ids {
        let rows = written.get(id).map_or([].as_slice(), Vec::as_slice);
        let flaws = contiguity::flaws(rows.iter().map(|row| row.0));
        for (number, times) in flaws.repeats {
            findings.add_many(LOST, times, || {
                let ops = rows.iter().filter(|row| row.0 == number);
                let ops: Vec<_> = ops.take(5).map(|row| run.describe(row.1)).collect();
                format!(
                    "{what} {id} was set to {number} more than once: by {}",
                    ops.join(", ")
                )
            });
        }
        for missing in flaws.missing {
            findings.add_many(LOST, contiguity::width(&missing), || {
                format!(
                    "{what} {id} was never set to {}",
                    contiguity::describe(&missing)
                )
            });
        }
        for number in flaws.below {
            findings.add(LOST, || format!("{what} {id} was set to {number}"));
        }
        let written = rows.last().map_or(0, |row| row.0);
        let last = last.get(id);
        if last.copied() != Some(written) {
            findings.add(LOST, || match last {
                Some(last) => format!("{what} {id} was set to {written} last, and is {last}"),
                None => format!("{what} {id} was set to {written} last, and is not there"),
            });
        }
    }
}
