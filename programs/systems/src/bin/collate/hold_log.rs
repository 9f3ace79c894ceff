//! Which process held which slot and when, as the holders reported.
//!
//! A holder reports a slot after it was granted or renewed, with the end of the lease by its own clock, counted from
//! before the statement was sent. So the reported time is never longer than the lease in the database, and the largest
//! number of slots held at the same time can be counted.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use crate::job::{Gate, Held, Moment};

/// One grant of a slot.
struct Grant {
    slot: u32,
    process: usize,
    /// The reported times: after the grant, and after each renewal.
    times: Vec<(Moment, Moment)>,
}

impl Grant {
    fn from(&self) -> Moment {
        self.times[0].0
    }

    fn is_held_at(&self, moment: Moment) -> bool {
        self.times
            .iter()
            .any(|(from, until)| *from <= moment && moment < *until)
    }
}

/// Grants by semaphore and fence: a fence is unique within a semaphore only.
#[derive(Default)]
pub(crate) struct HoldLog(BTreeMap<(Gate, i64), Grant>);

impl HoldLog {
    pub(crate) fn held(&mut self, process: usize, gate: Gate, held: Held) {
        let grant = self.0.entry((gate, held.fence)).or_insert_with(|| Grant {
            slot: held.slot,
            process,
            times: Vec::new(),
        });
        grant.times.push((held.from, held.until));
    }

    /// Records that the slot was released, or found lost, at that time.
    pub(crate) fn left(&mut self, gate: Gate, fence: i64, at: Moment) {
        if let Some(grant) = self.0.get_mut(&(gate, fence)) {
            for (_, until) in &mut grant.times {
                *until = (*until).min(at);
            }
        }
    }

    pub(crate) fn grants(&self, gate: Gate) -> usize {
        self.of(gate).count()
    }

    /// The numbers of the slots that a process holds.
    pub(crate) fn held_by(&self, process: usize, at: Moment) -> Vec<u32> {
        self.of(Gate::Collate)
            .filter(|grant| grant.process == process && grant.is_held_at(at))
            .map(|grant| grant.slot)
            .collect()
    }

    /// The most grants that were held at the same time.
    pub(crate) fn most_at_once(&self, gate: Gate) -> usize {
        most(self.of(gate))
    }

    /// The number of slots that two holders held at the same time.
    pub(crate) fn shared_slots(&self, gate: Gate) -> usize {
        let slots: HashSet<u32> = self.of(gate).map(|grant| grant.slot).collect();
        slots
            .into_iter()
            .filter(|slot| most(self.of(gate).filter(|grant| grant.slot == *slot)) > 1)
            .count()
    }

    /// The time from each kill of a process to the next grant of each slot that it held. Slots that were not granted
    /// again do not count.
    pub(crate) fn take_overs(&self, kills: &[(usize, Moment)]) -> Vec<Duration> {
        let mut took = Vec::new();
        for (process, at) in kills {
            for slot in self.held_by(*process, *at) {
                let next = self
                    .of(Gate::Collate)
                    .filter(|grant| grant.slot == slot && grant.from() > *at)
                    .map(Grant::from)
                    .min();
                took.extend(next.map(|next| next.since(*at)));
            }
        }
        took.sort_unstable();
        took
    }

    fn of(&self, gate: Gate) -> impl Iterator<Item = &Grant> {
        self.0
            .range((gate, i64::MIN)..=(gate, i64::MAX))
            .map(|(_, grant)| grant)
    }
}

fn most<'a>(grants: impl Iterator<Item = &'a Grant>) -> usize {
    let mut changes: Vec<(Moment, bool)> = Vec::new();
    for grant in grants {
        // Without the part of the time that was reported before, so that a grant counts once.
        let mut begun = None;
        for (from, until) in &grant.times {
            let from = begun.map_or(*from, |begun| (*from).max(begun));
            if from < *until {
                changes.extend([(from, true), (*until, false)]);
                begun = Some(*until);
            }
        }
    }
    // At the same time, ends come first.
    changes.sort_unstable();
    let (mut now, mut most) = (0_usize, 0);
    for (_, is_begin) in changes {
        if is_begin {
            now += 1;
        } else {
            now -= 1;
        }
        most = most.max(now);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold_log(grants: &[(i64, u32, usize, u64, u64)]) -> HoldLog {
        let mut hold_log = HoldLog::default();
        for &(fence, slot, process, from, until) in grants {
            let held = Held {
                slot,
                fence,
                from: Moment::at_ms(from),
                until: Moment::at_ms(until),
            };
            hold_log.held(process, Gate::Collate, held);
        }
        hold_log
    }

    #[test]
    fn a_refreshed_grant_counts_once() {
        let hold_log = hold_log(&[(1, 1, 0, 0, 100), (1, 1, 0, 50, 150), (2, 2, 0, 120, 130)]);
        assert_eq!(hold_log.most_at_once(Gate::Collate), 2);
        assert_eq!(hold_log.most_at_once(Gate::Queue), 0);
        assert_eq!(hold_log.grants(Gate::Collate), 2);
    }

    #[test]
    fn one_after_the_other_is_not_at_the_same_time() {
        let hold_log = hold_log(&[(1, 1, 0, 0, 100), (2, 1, 1, 100, 200)]);
        assert_eq!(hold_log.most_at_once(Gate::Collate), 1);
        assert_eq!(hold_log.shared_slots(Gate::Collate), 0);
    }

    #[test]
    fn a_release_ends_what_was_told() {
        let grants = [(1, 1, 0, 0, 100), (2, 1, 1, 60, 200)];
        let mut hold_log = hold_log(&grants);
        assert_eq!(hold_log.shared_slots(Gate::Collate), 1);
        hold_log.left(Gate::Collate, 1, Moment::at_ms(55));
        assert_eq!(hold_log.shared_slots(Gate::Collate), 0);
    }

    #[test]
    fn a_take_over_lasts_from_the_kill_to_the_next_grant_of_the_slot() {
        let hold_log = hold_log(&[
            (1, 1, 0, 0, 100),
            (2, 2, 0, 0, 100),
            (3, 3, 1, 0, 100),
            (4, 1, 1, 130, 200),
            (5, 1, 1, 300, 400),
        ]);
        let took = hold_log.take_overs(&[(0, Moment::at_ms(50)), (1, Moment::at_ms(250))]);
        assert_eq!(took, [Duration::from_millis(80)]);
    }
}
