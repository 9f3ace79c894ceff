//! Violations, as they are found.

use std::collections::BTreeMap;

use crate::{Found, Violation};

/// How many of a kind are explained.
const EXPLAINED: usize = 20;

/// Violations, as they are found.
#[derive(Default)]
pub(crate) struct Findings(BTreeMap<Violation, Found>);

impl Findings {
    /// One more.
    pub(crate) fn add(&mut self, violation: Violation, explain: impl FnOnce() -> String) {
        self.add_many(violation, 1, explain);
    }

    /// So many more, with one explanation.
    pub(crate) fn add_many(
        &mut self,
        violation: Violation,
        count: u64,
        explain: impl FnOnce() -> String,
    ) {
        let found = self.0.entry(violation).or_default();
        found.count = found.count.saturating_add(count);
        if found.examples.len() < EXPLAINED {
            found.examples.push(explain());
        }
    }

    /// All kinds, those of which there is none too.
    pub(crate) fn all(mut self) -> BTreeMap<Violation, Found> {
        for violation in Violation::ALL {
            self.0.entry(violation).or_default();
        }
        self.0
    }
}
