//! Which rows are made, and which are locked, as another session sees it.

use std::collections::BTreeSet;

use super::model::{Key, Model, NAMES, key};
use super::system::System;
use crate::support::Backend;
use crate::support::tables::SlotRow;

/// Rows that transactions have locked.
struct Locks {
    any: BTreeSet<Key>,
    /// Not in a way that others can share.
    alone: BTreeSet<Key>,
}

/// `None` where it is not rows that are locked.
fn locks_seen_by<B: Backend>(witness: &mut B::Conn, model: &Model) -> Option<Locks> {
    let unlocked = B::unlocked_slots(witness, false)?;
    let shareable = B::unlocked_slots(witness, true)?;
    let rows: BTreeSet<Key> = model.rows().cloned().collect();
    Some(Locks {
        any: rows.difference(&unlocked).cloned().collect(),
        alone: rows.difference(&shareable).cloned().collect(),
    })
}

impl<B: Backend> System<B> {
    /// New rows are free, and their fences are below all that will be granted.
    pub(super) fn add_missing(&mut self, semaphore: usize) {
        let missing = self.model.missing(semaphore);
        let rows = B::slots(self.sessions.witness());
        for number in missing {
            let key = key(semaphore, number);
            // The row of a slot that was granted at once is checked with its grant.
            let seen = rows.get(&key).unwrap_or_else(|| panic!("no row {key:?}"));
            let new = SlotRow {
                token: None,
                holder: None,
                expires_us: 0,
                hold_until_us: 0,
                ..seen.clone()
            };
            self.model.add(key, new);
        }
    }

    /// A transaction locks what it changed, a slot of `also` that it holds, and nothing else. Where a server
    /// counts holders by locking those who are free, that is said in the documentation;
    /// it does when a slot is `asked` for.
    pub(super) fn note_locks(
        &mut self,
        on: usize,
        semaphore: usize,
        also: &BTreeSet<i32>,
        asked: bool,
    ) {
        let now = self.now_us();
        let Some(seen) = self.locks() else {
            return;
        };
        let known = self.model.locked();
        assert!(
            known.is_subset(&seen.any),
            "not locked any more: {known:?} {:?}",
            seen.any
        );
        let held: Vec<_> = seen
            .alone
            .difference(&self.model.locked_alone())
            .cloned()
            .collect();
        let possible = |key: &Key| key.0 == NAMES[semaphore] && also.contains(&key.1);
        assert!(
            held.len() <= 1 && held.iter().all(possible),
            "{held:?} of {also:?}"
        );
        let shared: BTreeSet<_> = seen.any.difference(&seen.alone).cloned().collect();
        let new: Vec<_> = shared.difference(&known).collect();
        let counted = asked && B::COUNTING_LOCKS_FREE_SLOTS && self.model.is_lowered(semaphore);
        assert!(counted || new.is_empty(), "locked too: {new:?}");
        if !self.model.is_open(on) {
            assert!(
                held.is_empty() && new.is_empty(),
                "locked outside of a transaction"
            );
            return;
        }
        if counted {
            for number in self.model.free(on, semaphore, now) {
                let key = key(semaphore, number);
                if shared.contains(&key) {
                    self.model.share(on, key);
                }
            }
        }
        for key in held {
            self.model.lock(on, key);
        }
    }

    fn locks(&mut self) -> Option<Locks> {
        locks_seen_by::<B>(self.sessions.witness(), &self.model)
    }
}
