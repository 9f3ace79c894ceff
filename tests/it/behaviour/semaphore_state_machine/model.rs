//! What the rows of two semaphores are to be, as each session sees them.

use std::collections::BTreeSet;

use diesel_locks::Slot;
use diesel_locks::prelude::*;

use super::steps::{SEMAPHORES, SESSIONS};
use crate::support::tables::{SlotRow, Slots};

/// Names that differ by case and a blank.
pub(super) const NAMES: [&str; SEMAPHORES] = ["machine", "Machine "];

/// The name of a semaphore and the number of a slot.
pub(super) type Key = (String, i32);

pub(super) fn key(semaphore: usize, number: i32) -> Key {
    (NAMES[semaphore].to_owned(), number)
}

pub(super) fn key_of(slot: &Slot) -> Key {
    let number = i32::try_from(slot.number()).expect("a small number");
    (slot.semaphore().to_owned(), number)
}

/// A transaction that is open.
#[derive(Debug, Default)]
struct Open {
    /// What it has changed.
    changes: Slots,
    /// Rows that it has changed, or holds as slots.
    locked: BTreeSet<Key>,
    /// Rows that it has ensured, or counted: no other session can change or claim them, but they do not count as
    /// held when the number of permits was lowered.
    shared: BTreeSet<Key>,
    /// The largest fence that it was given.
    fences: [i64; SEMAPHORES],
}

/// What is to become of a request for a slot.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// One of these, after the rows up to the permits have been made if they are not there.
    OneOf(BTreeSet<i32>),
    Full,
    NotRegistered,
}

#[derive(Debug)]
pub(super) struct Model {
    /// What the program asks with.
    pub(super) permits: [u32; SEMAPHORES],
    pub(super) registered: [i32; SEMAPHORES],
    committed: Slots,
    fences: [i64; SEMAPHORES],
    open: [Option<Open>; SESSIONS],
}

impl Model {
    pub(super) fn new() -> Self {
        Self {
            permits: [1, 3],
            registered: [0; SEMAPHORES],
            committed: Slots::new(),
            fences: [0; SEMAPHORES],
            open: [const { None }; SESSIONS],
        }
    }

    /// With the number of the database, if it is the same.
    pub(super) fn semaphore(&self, semaphore: usize) -> Semaphore {
        let (name, permits) = (NAMES[semaphore], self.permits[semaphore]);
        if i32::try_from(permits) == Ok(self.registered[semaphore]) {
            Semaphore::registered(name)
        } else {
            Semaphore::new(name, permits)
        }
    }

    pub(super) fn is_open(&self, on: usize) -> bool {
        self.open[on].is_some()
    }

    pub(super) fn begin(&mut self, on: usize) {
        self.open[on] = Some(Open::default());
    }

    pub(super) fn end(&mut self, on: usize, commits: bool) {
        let open = self.open[on].take().expect("an open transaction");
        if commits {
            self.committed.extend(open.changes);
            for (fence, given) in self.fences.iter_mut().zip(open.fences) {
                *fence = given.max(*fence);
            }
        }
    }

    /// What a session sees: what is committed and its own changes.
    pub(super) fn view(&self, on: usize) -> Slots {
        let mut view = self.committed.clone();
        if let Some(open) = &self.open[on] {
            view.extend(open.changes.clone());
        }
        view
    }

    /// Changes a row as a session does.
    pub(super) fn write(&mut self, on: usize, key: Key, row: SlotRow) {
        if let Some(open) = &mut self.open[on] {
            open.locked.insert(key.clone());
            open.changes.insert(key, row);
        } else {
            self.committed.insert(key, row);
        }
    }

    /// Rows are made and removed for all at once.
    pub(super) fn add(&mut self, key: Key, row: SlotRow) {
        assert!(self.committed.insert(key, row).is_none());
    }

    fn opened(&mut self, on: usize) -> &mut Open {
        self.open[on].as_mut().expect("an open transaction")
    }

    pub(super) fn lock(&mut self, on: usize, key: Key) {
        self.opened(on).locked.insert(key);
    }

    pub(super) fn share(&mut self, on: usize, key: Key) {
        self.opened(on).shared.insert(key);
    }

    /// All rows that are locked by transactions, in whatever way.
    pub(super) fn locked(&self) -> BTreeSet<Key> {
        let open = self.open.iter().flatten();
        open.flat_map(|open| open.locked.union(&open.shared).cloned())
            .collect()
    }

    /// The rows that are locked exclusively.
    pub(super) fn locked_alone(&self) -> BTreeSet<Key> {
        let open = self.open.iter().flatten();
        open.flat_map(|open| open.locked.iter().cloned()).collect()
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &Key> {
        self.committed.keys()
    }

    /// There are more slots than permits.
    pub(super) fn is_lowered(&self, semaphore: usize) -> bool {
        self.count(semaphore) > self.permits_i32(semaphore)
    }

    fn locks(&self, on: usize, key: &Key) -> bool {
        self.open[on]
            .as_ref()
            .is_some_and(|open| open.locked.contains(key))
    }

    fn shares(&self, on: usize, key: &Key) -> bool {
        self.open[on]
            .as_ref()
            .is_some_and(|open| open.shared.contains(key))
    }

    /// Whether another's transaction has the row locked.
    fn is_anothers(&self, on: usize, key: &Key) -> bool {
        (0..SESSIONS).any(|other| other != on && self.locks(other, key))
    }

    /// The same in whatever way.
    fn is_kept_by_another(&self, on: usize, key: &Key) -> bool {
        let shared = (0..SESSIONS).any(|other| other != on && self.shares(other, key));
        shared || self.is_anothers(on, key)
    }

    /// A session that can change the row without waiting for another: this one, or the one that has it
    /// locked; none when several have.
    pub(super) fn session_able_to_change(&self, key: &Key, on: usize) -> Option<usize> {
        let can = |on: &usize| !self.is_kept_by_another(*on, key);
        [on].into_iter().chain(0..SESSIONS).find(can)
    }

    /// A session that can change all rows of the semaphore without waiting for another.
    pub(super) fn session_able_to_change_all(&self, semaphore: usize, on: usize) -> Option<usize> {
        let of = |key: &&Key| key.0 == NAMES[semaphore];
        let can = |on: &usize| {
            let mut rows = self.committed.keys().filter(of);
            rows.all(|key| !self.is_kept_by_another(*on, key))
        };
        [on].into_iter().chain(0..SESSIONS).find(can)
    }

    /// The rows of a semaphore.
    pub(super) fn count(&self, semaphore: usize) -> i32 {
        let rows = self
            .committed
            .keys()
            .filter(|(name, _)| name == NAMES[semaphore]);
        i32::try_from(rows.count()).expect("few")
    }

    /// The rows that are to be made for the permits.
    pub(super) fn missing(&self, semaphore: usize) -> BTreeSet<i32> {
        (self.count(semaphore) + 1..=self.permits_i32(semaphore)).collect()
    }

    fn permits_i32(&self, semaphore: usize) -> i32 {
        i32::try_from(self.permits[semaphore]).expect("few")
    }

    /// Neither leased nor locked by another transaction, which may have it ensured or counted.
    pub(super) fn free(&self, on: usize, semaphore: usize, now_us: i64) -> BTreeSet<i32> {
        let view = self.view(on);
        let rows = view.iter().filter(|(key, row)| {
            key.0 == NAMES[semaphore] && row.expires_us <= now_us && !self.is_anothers(on, key)
        });
        rows.map(|(key, _)| key.1).collect()
    }

    /// At most as many holders as permits; of the slots of a number that was lowered only the lowest are
    /// open, as many as may still be granted.
    pub(super) fn answer(&self, on: usize, semaphore: usize, now_us: i64) -> Answer {
        let (slots, permits) = (self.count(semaphore), self.permits_i32(semaphore));
        let mut open = self.free(on, semaphore, now_us);
        if slots > permits {
            let held = slots - i32::try_from(open.len()).expect("few");
            let most = usize::try_from(permits - held).unwrap_or(0);
            let within = open.into_iter().filter(|number| *number <= permits);
            open = within.take(most).collect();
        }
        open.retain(|number| !self.is_kept_by_another(on, &key(semaphore, *number)));
        if !open.is_empty() {
            Answer::OneOf(open)
        } else if slots >= permits {
            Answer::Full
        } else if self.is_open(on) {
            Answer::NotRegistered
        } else {
            Answer::OneOf(self.missing(semaphore))
        }
    }

    /// Notes a fence that is larger than those before, as the session knows them.
    pub(super) fn note_fence(&mut self, on: usize, semaphore: usize, fence: i64) {
        let last = self.fences[semaphore];
        let (last, noted) = match &mut self.open[on] {
            Some(open) => (
                last.max(open.fences[semaphore]),
                &mut open.fences[semaphore],
            ),
            None => (last, &mut self.fences[semaphore]),
        };
        assert!(fence > last, "the fence {fence} comes after {last}");
        *noted = fence;
    }

    /// Removes free, unlocked, unregistered rows, from the last one down. Returns how many.
    pub(super) fn purge(&mut self, now_us: i64) -> usize {
        let locked = self.locked();
        let before = self.committed.len();
        for (name, registered) in NAMES.into_iter().zip(self.registered) {
            let rows = self.committed.iter().filter(|(key, _)| key.0 == name);
            let stay = rows.filter(|(key, row)| {
                row.expires_us > now_us || key.1 <= registered || locked.contains(*key)
            });
            let last = stay.map(|(key, _)| key.1).max().unwrap_or(0);
            self.committed
                .retain(|(of, number), _| of != name || *number <= last);
        }
        before - self.committed.len()
    }
}
