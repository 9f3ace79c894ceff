//! What is done with slots that were granted.

use std::collections::BTreeSet;
use std::time::Duration;

use diesel_locks::prelude::*;
use diesel_locks::{Error, LeaseState, Slot};

use super::model::{Key, NAMES, key_of};
use super::steps::SESSIONS;
use super::system::System;
use crate::support::Backend;
use crate::support::tables::{SlotRow, is_renewal, us};

fn state(row: &SlotRow, now_us: i64) -> LeaseState {
    if row.expires_us > now_us {
        LeaseState::Unexpired
    } else {
        LeaseState::Expired
    }
}

fn semaphore_of((name, _): &Key) -> usize {
    NAMES
        .iter()
        .position(|known| known == name)
        .expect("one of them")
}

impl<B: Backend> System<B> {
    /// A slot that was granted before, and the session that can change its row now.
    fn slot(&self, on: usize, slot: usize) -> Option<(Slot, Key, usize)> {
        let granted = self.granted.len();
        let slot = self
            .granted
            .iter()
            .rev()
            .nth(slot % granted.max(1))?
            .clone();
        let key = key_of(&slot);
        let on = self.model.session_able_to_change(&key, on)?;
        Some((slot, key, on))
    }

    /// Its row, if it is still this slot's.
    fn row_of(&self, on: usize, slot: &Slot) -> Option<SlotRow> {
        let row = self.model.view(on).remove(&key_of(slot))?;
        (row.token == Some(slot.token())).then_some(row)
    }

    pub(super) fn ensure(&mut self, on: usize, slot: usize) {
        let Some((slot, key, on)) = self.slot(on, slot) else {
            return;
        };
        let result = self.conn(on).pin_slot(&slot);
        if !self.model.is_open(on) {
            assert!(
                matches!(result, Err(Error::NotInTransaction { .. })),
                "{result:?}"
            );
        } else if self.row_of(on, &slot).is_some() {
            result.expect("it is ours");
            self.model.share(on, key);
        } else {
            assert!(result.expect_err("it is not ours").is_slot_lost());
            if B::LOST_SLOTS_STAY_LOCKED && self.model.view(on).contains_key(&key) {
                self.model.share(on, key);
            }
        }
    }

    pub(super) fn refresh(&mut self, on: usize, slot: usize, lasts: Duration) {
        let Some((mut slot, key, on)) = self.slot(on, slot) else {
            return;
        };
        let before = self.now_us();
        let result = self.conn(on).renew_slot(&mut slot, lasts);
        let after = self.now_us();
        let Some(row) = self.row_of(on, &slot) else {
            assert!(result.expect_err("it is not ours").is_slot_lost());
            self.note_locks(on, semaphore_of(&key), &BTreeSet::new(), false);
            return;
        };
        assert_eq!(result.expect("it is ours"), state(&row, before));
        let seen = B::slots(self.conn(on)).remove(&key).expect("its row");
        let ends = before + us(lasts)..=after + us(lasts);
        assert!(is_renewal::<B>(&row, ends, seen.expires_us), "{seen:?}");
        let expires_us = seen.expires_us;
        self.model.write(on, key, SlotRow { expires_us, ..row });
    }

    pub(super) fn release(&mut self, on: usize, slot: usize) {
        let Some((slot, key, on)) = self.slot(on, slot) else {
            return;
        };
        let now = self.now_us();
        let result = self.conn(on).release_slot(&slot);
        let Some(row) = self.row_of(on, &slot) else {
            assert!(result.expect_err("it is not ours").is_slot_lost());
            self.note_locks(on, semaphore_of(&key), &BTreeSet::new(), false);
            return;
        };
        assert_eq!(result.expect("it is ours"), state(&row, now));
        let released = SlotRow {
            token: None,
            expires_us: row.hold_until_us,
            ..row
        };
        self.model.write(on, key, released);
    }

    pub(super) fn expire(&mut self, slot: usize) {
        let open = (0..SESSIONS).find(|on| B::ONE_WRITER && self.model.is_open(*on));
        let Some((slot, key, on)) = self.slot(open.unwrap_or(0), slot) else {
            return;
        };
        let Some(row) = self.row_of(on, &slot) else {
            return;
        };
        crate::behaviour::slots::expire_lease::<B>(self.conn(on), &slot);
        let ended = SlotRow {
            expires_us: 1,
            hold_until_us: 1,
            ..row
        };
        self.model.write(on, key, ended);
    }
}
