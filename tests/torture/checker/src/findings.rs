//! Violations, as they are found.

use std::collections::BTreeMap;

use crate::{Found, Violation};

/// How many of a kind are explained.
const EXPLAINED: usize = 20;

/// Violations, as they are found.
#[derive(Default)]
pub(crate) struct Findings {
    found: BTreeMap<Violation, Found>,
    judged: BTreeMap<Violation, u64>,
    /// How many holders of a shared lock acquired it while another held it: without any, nothing shows that it is shared.
    pub(crate) shared: u64,
}

impl Findings {
    /// One more.
    pub(crate) fn add(&mut self, violation: Violation, explain: impl FnOnce() -> String) {
        self.add_many(violation, 1, explain);
    }

    /// Adds several findings with one explanation.
    pub(crate) fn add_many(
        &mut self,
        violation: Violation,
        count: u64,
        explain: impl FnOnce() -> String,
    ) {
        let found = self.found.entry(violation).or_default();
        found.count = found.count.saturating_add(count);
        if found.examples.len() < EXPLAINED {
            found.examples.push(explain());
        }
    }

    /// Counts operations that a check has judged without a fault near them that would excuse them.
    pub(crate) fn judged_without_excuse(&mut self, violation: Violation, operations: usize) {
        let operations = u64::try_from(operations).unwrap_or(u64::MAX);
        self.judged.insert(violation, operations);
    }

    /// Of each check that faults excuse from, how many operations had no excuse.
    pub(crate) fn judged(&self) -> BTreeMap<Violation, u64> {
        self.judged.clone()
    }

    /// All kinds, those of which there is none too.
    pub(crate) fn all(mut self) -> BTreeMap<Violation, Found> {
        for violation in Violation::ALL {
            self.found.entry(violation).or_default();
        }
        self.found
    }
}
