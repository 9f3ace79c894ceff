//! What the workers have to do: passes for one meeting or two, in a random order.

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

/// The meetings that get a pass in one transaction.
pub(crate) type WorkItem = Vec<i64>;

/// Creates work items for `passes` passes of each meeting. `pairs` percent of the transactions are for two meetings.
pub(crate) fn work_items(meetings: &[i64], passes: usize, pairs: u32, seed: u64) -> Vec<WorkItem> {
    let mut chance = StdRng::seed_from_u64(seed);
    let mut wanted: Vec<i64> = meetings
        .iter()
        .flat_map(|&meeting| std::iter::repeat_n(meeting, passes))
        .collect();
    wanted.shuffle(&mut chance);
    let mut work_items: Vec<WorkItem> = Vec::new();
    let mut wanted = wanted.into_iter().peekable();
    while let Some(meeting) = wanted.next() {
        let mut item = vec![meeting];
        if chance.random_range(0..100) < pairs {
            item.extend(wanted.next_if(|&other| other != meeting));
        }
        work_items.push(item);
    }
    work_items
}

#[cfg(test)]
mod tests {
    use super::work_items;

    #[test]
    fn every_meeting_gets_its_passes() {
        for pairs in [0, 50, 100] {
            let work_items = work_items(&[7, 8, 9], 40, pairs, 1);
            for meeting in [7, 8, 9] {
                let passes = work_items
                    .iter()
                    .flatten()
                    .filter(|&&other| other == meeting);
                assert_eq!(passes.count(), 40);
            }
            let double = work_items.iter().filter(|item| item.len() == 2);
            assert_eq!(double.count() > 0, pairs > 0);
        }
    }
}
