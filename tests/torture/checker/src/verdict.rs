//! The result.

use std::collections::BTreeMap;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use torture_history::{ErrorKind, FaultKind, Outcome};

use crate::findings::Findings;
use crate::run::Run;
use crate::{Phases, Violation};

/// Violations of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// How many.
    pub count: u64,
    /// The first few, in words.
    pub examples: Vec<String>,
}

/// How many operations of each kind had each outcome.
pub type Outcomes = BTreeMap<&'static str, BTreeMap<&'static str, u64>>;

/// The result. `Display` is the report for people; as JSON it is one object, with a key for each kind of violation.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// How many operations were begun.
    pub operations: u64,
    /// All kinds of violations, those of which there is none too.
    pub violations: BTreeMap<Violation, Found>,
    /// How many operations were judged near which there was no fault that excuses them: of the checks that know such
    /// faults. A check that judges none finds nothing.
    pub judged: BTreeMap<Violation, u64>,
    /// How many operations of each task had each outcome.
    pub outcomes: Outcomes,
    /// How many operations of each client had each outcome.
    pub clients: Outcomes,
    /// For each client that waits without a connection, how many of its operations began while requests waited so.
    pub queued: BTreeMap<&'static str, u64>,
    /// How many locks were acquired while another operation shared them.
    pub shared: u64,
    /// How many faults of each kind there were, those of which there was none too.
    pub faults: BTreeMap<FaultKind, u64>,
    /// Throughput and waits.
    pub phases: Phases,
}

impl Verdict {
    pub(crate) fn of(run: &Run<'_>, findings: Findings) -> Self {
        let [mut outcomes, mut clients] = [Outcomes::new(), Outcomes::new()];
        let mut queued: BTreeMap<_, u64> = BTreeMap::new();
        for operation in &run.operations {
            let (task, client) = (operation.task.name(), operation.client);
            let outcome = outcome(operation.end.map(|end| end.outcome));
            for (of, kind) in [(&mut outcomes, task), (&mut clients, client.name())] {
                *of.entry(kind).or_default().entry(outcome).or_default() += 1;
            }
            if client.is_lock_pool() {
                *queued.entry(client.name()).or_default() += u64::from(operation.queued);
            }
        }
        let mut faults = BTreeMap::from(FaultKind::ALL.map(|kind| (kind, 0)));
        for fault in run.faults {
            *faults.entry(fault.kind).or_default() += 1;
        }
        let dropped = run
            .operations
            .iter()
            .filter(|operation| operation.is_dropped());
        let dropped = u64::try_from(dropped.count()).unwrap_or(u64::MAX);
        faults.insert(FaultKind::Drop, dropped);
        let shared = findings.shared;
        Self {
            operations: u64::try_from(run.operations.len()).unwrap_or(u64::MAX),
            judged: findings.judged(),
            violations: findings.all(),
            outcomes,
            clients,
            queued,
            shared,
            faults,
            phases: Phases::of(run),
        }
    }

    /// How many violations of a kind there are.
    pub fn count(&self, violation: Violation) -> u64 {
        self.violations
            .get(&violation)
            .map_or(0, |found| found.count)
    }

    /// How many violations there are.
    pub fn total(&self) -> u64 {
        let counts = self.violations.values().map(|found| found.count);
        counts.fold(0, u64::saturating_add)
    }
}

/// The outcome in a word.
fn outcome(outcome: Option<&Outcome>) -> &'static str {
    match outcome {
        None => "killed",
        Some(Outcome::Done) => "done",
        Some(Outcome::Refused) => "refused",
        Some(Outcome::RolledBack) => "rolled_back",
        Some(Outcome::Failed { kind, .. }) => match kind {
            ErrorKind::Held => "held",
            ErrorKind::TimedOut => "timed_out",
            ErrorKind::StatementTimedOut => "statement_timed_out",
            ErrorKind::Deadlock => "deadlock",
            ErrorKind::Serialization => "serialization",
            ErrorKind::Aborted => "aborted",
            ErrorKind::SlotLost => "slot_lost",
            ErrorKind::Fenced => "fenced",
            ErrorKind::Pool => "pool",
            ErrorKind::Connection => "connection",
            ErrorKind::OutcomeUnknown => "outcome_unknown",
            ErrorKind::Dropped => "dropped",
            ErrorKind::Other => "other",
        },
    }
}

impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("operations", &self.operations)?;
        object.serialize_entry("violations", &self.total())?;
        for (violation, found) in &self.violations {
            object.serialize_entry(violation.name(), &found.count)?;
        }
        object.serialize_entry("judged", &self.judged)?;
        object.serialize_entry("outcomes", &self.outcomes)?;
        object.serialize_entry("clients", &self.clients)?;
        object.serialize_entry("queued", &self.queued)?;
        object.serialize_entry("shared", &self.shared)?;
        object.serialize_entry("faults", &self.faults)?;
        object.serialize_entry("phases", &self.phases)?;
        object.end()
    }
}
