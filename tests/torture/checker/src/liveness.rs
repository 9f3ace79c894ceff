//! Whether anything is done at all: who refuses everybody violates nothing else.

use std::time::Duration;

use torture_history::{Client, Locking, Task};

use crate::findings::Findings;
use crate::operation::Operation;
use crate::run::Run;
use crate::{Evidence, Limits, Violation};

/// A run in which work began for so long has done something of every kind, whatever failed meanwhile.
const LONG_ENOUGH: Duration = Duration::from_secs(10);

/// So many operations of a kind do not all fail by chance. On a slow cluster 2 of the rarest kind have failed.
const MANY_OF_KIND: usize = 10;

/// Of these kinds most fail: ticks are run by others, or are over before they are granted; a holder that hangs lasts for seconds,
/// in which its process may be killed.
const MOSTLY_FAIL: [&str; 2] = ["stuck", "tick"];

/// So many of them do not all fail by chance.
const MANY_THAT_FAIL: usize = 50;

/// Of so many that held shared locks, two have held one at the same time.
const MANY_SHARED: usize = 50;

/// So many operations have at least [`MANY_OF_KIND`] of every kind among them.
const MANY: usize = 20_000;

/// Looks for kinds of tasks, and for clients, of which nothing was done.
pub(crate) fn check(run: &Run<'_>, evidence: &Evidence, limits: &Limits, findings: &mut Findings) {
    let beginnings = run.operations.iter().map(|operation| operation.began);
    let (first, last) = (beginnings.clone().min(), beginnings.max());
    let worked = first.zip(last).map(|(first, last)| last.since(first));
    if worked.is_none_or(|worked| worked < LONG_ENOUGH) {
        return;
    }
    for name in Task::NAMES {
        let is_its = |operation: &Operation<'_>| operation.task.name() == name;
        let begun = run.operations.iter().filter(|operation| is_its(operation));
        let many = if MOSTLY_FAIL.contains(&name) {
            MANY_THAT_FAIL
        } else {
            MANY_OF_KIND
        };
        if begun.count() >= many || run.operations.len() >= MANY {
            check_kind(run, name, is_its, findings);
        }
    }
    // On SQLite and Galera they are exclusive.
    if evidence.has_server && !limits.several_writers {
        check_sharing(run, findings);
    }
    let clients = Client::ASYNCHRONOUS.into_iter();
    for client in clients.filter(|_| limits.asynchronous) {
        let is_its = |operation: &Operation<'_>| operation.client == client;
        check_kind(run, client.name(), is_its, findings);
        if client.is_lock_pool() {
            check_queue(run, client, findings);
        }
    }
}

/// Whether an operation of this kind was completed.
fn check_kind(
    run: &Run<'_>,
    name: &str,
    is_of_kind: impl Fn(&Operation<'_>) -> bool,
    findings: &mut Findings,
) {
    let of_kind = || {
        run.operations
            .iter()
            .filter(|operation| is_of_kind(operation))
    };
    if !of_kind().any(Operation::is_completed) {
        findings.add(Violation::NothingDone, || {
            let begun = of_kind().count();
            format!("{name}: {begun} were begun, and none was done")
        });
    }
}

/// Whether a request has waited without a connection.
fn check_queue(run: &Run<'_>, client: Client, findings: &mut Findings) {
    let operations = run.operations.iter();
    let mut of_client = operations.filter(|operation| operation.client == client);
    if !of_client.any(|operation| operation.queued) {
        findings.add(Violation::NothingDone, || {
            let name = client.name();
            format!("{name}: no request has waited without a connection")
        });
    }
}

/// Whether two have held a shared lock at the same time.
fn check_sharing(run: &Run<'_>, findings: &mut Findings) {
    let is_shared = |operation: &&Operation<'_>| {
        let shares = |Locking { shared, .. }: &Locking| !shared.is_empty();
        operation.committed && matches!(operation.task, Task::Lock(locking) if shares(locking))
    };
    let held = run.operations.iter().filter(is_shared).count();
    if held >= MANY_SHARED && findings.shared == 0 {
        findings.add(Violation::NothingDone, || {
            format!("shared lock: {held} were held, and no two at the same time")
        });
    }
}
