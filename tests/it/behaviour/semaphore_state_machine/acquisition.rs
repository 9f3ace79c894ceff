//! A slot is asked for: by a lease, or for a transaction.

use std::collections::BTreeSet;
use std::time::Duration;

use diesel_locks::Error;
use diesel_locks::prelude::*;

use super::model::{Answer, NAMES, key, key_of};
use super::steps::How;
use super::system::{HOLDERS, System};
use crate::support::Backend;
use crate::support::tables::SlotRow;
use crate::support::tables::us;

/// The answer of a method that waits, as one that tries gives it.
fn unless_held<T>(how: How, result: Result<T, Error>) -> Result<Option<T>, Error> {
    match (how, result) {
        (How::WaitNo, Err(error)) if error.is_unavailable() => Ok(None),
        (How::WaitZero, Err(error)) if error.is_timeout() => Ok(None),
        (_, result) => result.map(Some),
    }
}

fn wait(how: How) -> Wait {
    match how {
        How::WaitZero => Wait::AtMost(Duration::ZERO),
        How::Try | How::WaitNo => Wait::No,
    }
}

impl<B: Backend> System<B> {
    pub(super) fn acquire(
        &mut self,
        on: usize,
        semaphore: usize,
        how: How,
        lasts: Duration,
        hold_at_least: Duration,
    ) {
        let holder = HOLDERS[self.granted.len() % 2];
        let lease = LeaseOptions::new(lasts)
            .hold_at_least(hold_at_least)
            .holder(holder);
        let asked = self.model.semaphore(semaphore);
        let before = self.now_us();
        let answer = self.model.answer(on, semaphore, before);
        let conn = self.conn(on);
        let result = match how {
            How::Try => conn.try_acquire_slot(&asked, lease),
            _ => unless_held(how, conn.acquire_slot(&asked, lease, wait(how))),
        };
        let after = self.now_us();
        let Some(slot) = self.answered(on, semaphore, &answer, result) else {
            return;
        };
        let key = key_of(&slot);
        let Answer::OneOf(open) = answer else {
            panic!("granted {slot:?} instead of {answer:?}");
        };
        assert!(
            key.0 == NAMES[semaphore] && open.contains(&key.1),
            "{slot:?} of {open:?}"
        );
        assert!(slot.remaining() <= lasts);
        self.model.note_fence(on, semaphore, slot.fence());
        let row = B::slots(self.conn(on)).remove(&key).expect("its row");
        assert!(
            (before..=after).contains(&row.acquired_us),
            "{before} {row:?} {after}"
        );
        let expected = SlotRow {
            token: Some(slot.token()),
            holder: Some(holder.to_owned()),
            fence: slot.fence(),
            acquired_us: row.acquired_us,
            expires_us: row.acquired_us + us(lasts),
            hold_until_us: if hold_at_least.is_zero() {
                0
            } else {
                row.acquired_us + us(hold_at_least)
            },
        };
        assert_eq!(row, expected);
        self.model.write(on, key, row);
        self.note_locks(on, semaphore, &BTreeSet::new(), true);
        self.granted.push(slot);
    }

    pub(super) fn hold(&mut self, on: usize, semaphore: usize, how: How, commits: bool) {
        let asked = self.model.semaphore(semaphore);
        let before = self.now_us();
        let answer = self.model.answer(on, semaphore, before);
        let (conn, witness) = self.sessions.both(on);
        let mut shareable = None;
        let work = |_: &mut B::Conn| {
            shareable = B::unlocked_slots(witness, true);
            if commits {
                Ok(())
            } else {
                Err(diesel::result::Error::RollbackTransaction.into())
            }
        };
        let result = match how {
            How::Try => conn.try_with_slot(&asked, work),
            _ => unless_held(how, conn.with_slot(&asked, wait(how), work)),
        };
        // It was rolled back, and so it was there.
        let undone = matches!(
            result,
            Err(Error::Database(diesel::result::Error::RollbackTransaction))
        );
        let result = if undone { Ok(Some(())) } else { result };
        if self.answered(on, semaphore, &answer, result).is_none() {
            return;
        }
        let Answer::OneOf(open) = answer else {
            panic!("held instead of {answer:?}");
        };
        // Seen by others while it was held: one row more was locked, or one that was locked before.
        let held = shareable.map(|shareable| {
            let known = self.model.locked_alone();
            let locked = |number: &i32| !shareable.contains(&key(semaphore, *number));
            let is_new = |number: &i32| !known.contains(&key(semaphore, *number));
            let all: BTreeSet<i32> = open.iter().copied().filter(locked).collect();
            let new: BTreeSet<i32> = all.iter().copied().filter(is_new).collect();
            assert!(new.len() <= 1, "{new:?}");
            assert!(!all.is_empty(), "none of {open:?} was locked");
            if new.is_empty() { all } else { new }
        });
        self.note_hold(on, semaphore, &held.unwrap_or(open), undone);
    }

    /// The holder of an expired lease on the held slot has lost it.
    fn note_hold(&mut self, on: usize, semaphore: usize, held: &BTreeSet<i32>, undone: bool) {
        let (before, seen) = (self.model.view(on), B::slots(self.conn(on)));
        let cleared: Vec<_> = seen
            .iter()
            .filter(|(key, row)| before.get(*key) != Some(row))
            .map(|(key, row)| (key.clone(), row.clone()))
            .collect();
        let inside = self.model.is_open(on);
        if undone {
            assert_eq!(cleared, [], "a rollback undoes it");
            if inside {
                // The lock may be gone with the savepoint, or stay.
                self.note_locks(on, semaphore, held, true);
            }
            return;
        }
        assert!(cleared.len() <= 1, "{cleared:?}");
        let has_no_token = |number: &i32| seen[&key(semaphore, *number)].token.is_none();
        assert!(
            held.iter().any(has_no_token),
            "whose lease has ended is not to come back"
        );
        if let Some((key, row)) = cleared.into_iter().next() {
            assert!(
                key.0 == NAMES[semaphore] && held.contains(&key.1),
                "{key:?} of {held:?}"
            );
            let expected = SlotRow {
                token: None,
                ..before[&key].clone()
            };
            assert_eq!(row, expected);
            self.model.write(on, key, row);
        }
        if inside {
            self.note_locks(on, semaphore, held, true);
        }
    }

    /// What was got, if that is what the model says; rows that were made for it are in the model then.
    fn answered<T: std::fmt::Debug>(
        &mut self,
        on: usize,
        semaphore: usize,
        answer: &Answer,
        result: Result<Option<T>, Error>,
    ) -> Option<T> {
        match (answer, result) {
            (Answer::OneOf(open), Ok(Some(got))) => {
                if open
                    .iter()
                    .any(|number| *number > self.model.count(semaphore))
                {
                    self.add_missing(semaphore);
                }
                Some(got)
            }
            (Answer::Full, Ok(None)) => {
                self.note_locks(on, semaphore, &BTreeSet::new(), true);
                None
            }
            (Answer::NotRegistered, Err(Error::NotRegistered { permits, .. })) => {
                assert_eq!(permits, Some(self.model.permits[semaphore]));
                None
            }
            (answer, result) => panic!("{result:?} instead of {answer:?}"),
        }
    }
}
