//! Who held which slot and when, as the holders reported.
//!
//! A holder reports a slot after it was granted or renewed, with the end of the lease by its own clock, counted from
//! before the statement was sent. So the reported time is never longer than the lease in the database, and the largest
//! number of slots held at the same time can be counted.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use crate::job::{Gate, Held};

/// Grants by semaphore and fence: a fence is unique within a semaphore only.
#[derive(Default)]
pub(crate) struct HoldLog(BTreeMap<(Gate, i64), Held>);

impl HoldLog {
    /// Records a grant, or its renewal, which extends nothing if its answer came after the end of the lease.
    pub(crate) fn held(&mut self, gate: Gate, held: Held) {
        let grant = self.0.entry((gate, held.fence)).or_insert(held);
        if held.from < held.until {
            grant.until = held.until;
        }
    }

    /// Records that the slot was released, or found lost, at that time.
    pub(crate) fn left(&mut self, gate: Gate, fence: i64, at: Duration) {
        if let Some(grant) = self.0.get_mut(&(gate, fence)) {
            grant.until = grant.until.min(at);
        }
    }

    pub(crate) fn grants(&self, gate: Gate) -> usize {
        self.of(gate).count()
    }

    /// The most grants that were held at the same time.
    pub(crate) fn most_at_once(&self, gate: Gate) -> usize {
        most(self.of(gate))
    }

    /// The number of slots that two holders held at the same time.
    pub(crate) fn shared_slots(&self, gate: Gate) -> usize {
        let slots: HashSet<u32> = self.of(gate).map(|grant| grant.slot).collect();
        let is_shared = |slot: &u32| most(self.of(gate).filter(|grant| grant.slot == *slot)) > 1;
        slots.into_iter().filter(is_shared).count()
    }

    fn of(&self, gate: Gate) -> impl Iterator<Item = &Held> {
        self.0
            .range((gate, i64::MIN)..=(gate, i64::MAX))
            .map(|(_, grant)| grant)
    }
}

fn most<'a>(grants: impl Iterator<Item = &'a Held>) -> usize {
    // At the same time, ends come first.
    let mut changes: Vec<(Duration, isize)> = grants
        .filter(|grant| grant.from < grant.until)
        .flat_map(|grant| [(grant.from, 1), (grant.until, -1)])
        .collect();
    changes.sort_unstable();
    let mut now = 0;
    let counts = changes.iter().map(|(_, change)| {
        now += change;
        now
    });
    counts.max().unwrap_or(0).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each with its slot, fence, and the milliseconds when it begins and ends.
    fn hold_log(grants: &[(u32, i64, u64, u64)]) -> HoldLog {
        let mut hold_log = HoldLog::default();
        for &(slot, fence, from, until) in grants {
            let [from, until] = [from, until].map(Duration::from_millis);
            let held = Held {
                slot,
                fence,
                from,
                until,
            };
            hold_log.held(Gate::Collate, held);
        }
        hold_log
    }

    #[test]
    fn a_renewed_grant_counts_once() {
        let hold_log = hold_log(&[(1, 1, 0, 100), (1, 1, 50, 150), (2, 2, 120, 130)]);
        assert_eq!(hold_log.most_at_once(Gate::Collate), 2);
        assert_eq!(hold_log.most_at_once(Gate::Queue), 0);
        assert_eq!(hold_log.grants(Gate::Collate), 2);
    }

    /// The holder was stopped until the slot was granted to another one.
    #[test]
    fn a_renewal_whose_answer_comes_too_late_extends_nothing() {
        let hold_log = hold_log(&[(1, 1, 0, 100), (1, 2, 120, 220), (1, 1, 150, 150)]);
        assert_eq!(hold_log.shared_slots(Gate::Collate), 0);
    }

    #[test]
    fn a_release_ends_what_was_reported() {
        let mut hold_log = hold_log(&[(1, 1, 0, 100), (1, 2, 60, 200)]);
        assert_eq!(hold_log.shared_slots(Gate::Collate), 1);
        hold_log.left(Gate::Collate, 1, Duration::from_millis(60));
        assert_eq!(hold_log.shared_slots(Gate::Collate), 0);
    }
}
