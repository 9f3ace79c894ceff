//! Who held a slot and who held it next, derived from successive snapshots.

use std::collections::{HashMap, VecDeque};

use super::snapshot::{Handover, Semaphore, SlotState};

/// How long a holder that has ended is shown.
const MEMORY_US: i64 = 60_000_000;

/// The holders that have ended and are shown at most: each snapshot has all of them.
pub(super) const MAX_ENDED: usize = 500;

/// The holders of the last 60 s.
#[derive(Default)]
pub(super) struct Handovers {
    /// By semaphore and slot: the fence of the grant, and the holder.
    held: HashMap<(String, u32), (String, Handover)>,
    /// In the order of their ends.
    ended: VecDeque<Handover>,
    /// When the last of those that were left out has ended.
    left_out_us: Option<i64>,
}

impl Handovers {
    /// Compares the slots with those of the last snapshot.
    pub(super) fn update(&mut self, now_us: i64, semaphores: &[Semaphore]) {
        let (mut held, mut ended) = (HashMap::new(), Vec::new());
        for semaphore in semaphores {
            for slot in &semaphore.slots {
                let SlotState::Held(holding) = &slot.state else {
                    continue;
                };
                let key = (semaphore.name.clone(), slot.number);
                if let Some((fence, mut last)) = self.held.remove(&key) {
                    if fence == holding.fence {
                        held.insert(key, (fence, last));
                        continue;
                    }
                    last.to_us = Some(holding.acquired_us);
                    ended.push(last);
                }
                let handover = Handover {
                    semaphore: semaphore.name.clone(),
                    slot: slot.number,
                    holder: holding.holder.clone(),
                    from_us: holding.acquired_us,
                    to_us: None,
                };
                held.insert(key, (holding.fence.clone(), handover));
            }
        }
        for (_, (_, mut last)) in self.held.drain() {
            last.to_us = Some(now_us);
            ended.push(last);
        }
        self.held = held;
        ended.sort_by_key(|handover| handover.to_us);
        self.ended.extend(ended);
        let oldest = now_us - MEMORY_US;
        self.ended
            .retain(|handover| handover.to_us.is_some_and(|to_us| to_us >= oldest));
        let too_many = self.ended.len().saturating_sub(MAX_ENDED);
        if let Some(last) = self.ended.drain(..too_many).next_back() {
            self.left_out_us = last.to_us;
        }
        self.left_out_us = self.left_out_us.filter(|left_out| *left_out >= oldest);
    }

    /// Whether some of the last 60 s are left out.
    pub(super) fn are_cut(&self) -> bool {
        self.left_out_us.is_some()
    }

    /// All holders, in the order of their grants.
    pub(super) fn list(&self) -> Vec<Handover> {
        let held = self.held.values().map(|(_, handover)| handover);
        let mut all: Vec<Handover> = self.ended.iter().chain(held).cloned().collect();
        all.sort_by_key(|handover| (handover.from_us, handover.slot));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::{Holding, Semaphore, Slot, SlotState};
    use super::{Handovers, MAX_ENDED};

    fn semaphore(holder: Option<(&str, i64)>) -> [Semaphore; 1] {
        let state = holder.map_or(SlotState::Free, |(holder, acquired_us)| {
            SlotState::Held(Holding {
                holder: holder.to_owned(),
                acquired_us,
                expires_us: acquired_us + 10,
                fence: acquired_us.to_string(),
            })
        });
        [Semaphore {
            name: "collate".to_owned(),
            permits: 1,
            slots: vec![Slot { number: 1, state }],
        }]
    }

    #[test]
    fn holders_follow_each_other_and_are_forgotten() {
        let mut handovers = Handovers::default();
        let mut at = |now_us, holder| {
            handovers.update(now_us, &semaphore(holder));
            let list = handovers.list();
            let short = list
                .into_iter()
                .map(|shown| (shown.holder, shown.from_us, shown.to_us));
            short.collect::<Vec<_>>()
        };
        let shown = |holder: &str, from_us, to_us| (holder.to_owned(), from_us, to_us);
        assert_eq!(at(5, Some(("a", 1))), [shown("a", 1, None)]);
        assert_eq!(at(6, Some(("a", 1))), [shown("a", 1, None)]);
        let both = [shown("a", 1, Some(7)), shown("b", 7, None)];
        assert_eq!(at(9, Some(("b", 7))), both);
        let ended = [shown("a", 1, Some(7)), shown("b", 7, Some(20))];
        assert_eq!(at(20, None), ended);
        assert_eq!(at(60_000_019, None), [shown("b", 7, Some(20))]);
        assert_eq!(at(60_000_021, None), []);
    }

    #[test]
    fn newest_holders_are_kept_if_there_are_many() {
        let mut handovers = Handovers::default();
        let last = i64::try_from(MAX_ENDED).expect("small") + 10;
        for fence in 1..=last {
            handovers.update(fence, &semaphore(Some(("a", fence))));
        }
        let shown = handovers.list();
        assert_eq!(shown.len(), MAX_ENDED + 1);
        assert_eq!((shown[0].from_us, shown[MAX_ENDED].from_us), (10, last));
        assert!(handovers.are_cut());
        // The last one that was left out has ended at 10.
        handovers.update(60_000_010, &semaphore(Some(("a", last))));
        assert!(handovers.are_cut());
        handovers.update(60_000_011, &semaphore(Some(("a", last))));
        assert!(!handovers.are_cut());
    }
}
