//! What is done with whole semaphores.

use std::time::Duration;

use diesel_locks::Error;
use diesel_locks::prelude::*;

use super::model::NAMES;
use super::steps::SESSIONS;
use super::system::{KEPT, System};
use crate::support::Backend;
use crate::support::tables::SlotRow;

impl<B: Backend> System<B> {
    pub(super) fn register(&mut self, on: usize, semaphore: usize) {
        let permits = self.model.permits[semaphore];
        let asked = Semaphore::new(NAMES[semaphore], permits);
        let result = self.conn(on).register_semaphores([asked]);
        if self.model.is_open(on) {
            assert!(
                matches!(result, Err(Error::AlreadyInTransaction { .. })),
                "{result:?}"
            );
            return;
        }
        result.expect("registered");
        self.add_missing(semaphore);
        self.model.registered[semaphore] = i32::try_from(permits).expect("few");
    }

    pub(super) fn release_all(&mut self, on: usize, semaphore: usize) {
        let able = |on: &usize| !B::ONE_WRITER || self.model.is_open(*on);
        let anybody = (0..SESSIONS).all(|on| !self.model.is_open(on));
        let Some(on) = self
            .model
            .session_able_to_change_all(semaphore, on)
            .filter(|on| anybody || able(on))
        else {
            return;
        };
        let now = self.now_us();
        let released = self.conn(on).force_release_all(NAMES[semaphore]);
        let mut held = 0;
        for (key, row) in self.model.view(on) {
            let leased = row.expires_us > now;
            if key.0 == NAMES[semaphore] && (leased || row.token.is_some()) {
                held += usize::from(leased);
                let free = SlotRow {
                    token: None,
                    expires_us: 0,
                    hold_until_us: 0,
                    ..row
                };
                self.model.write(on, key, free);
            }
        }
        let is_known = self.model.count(semaphore) > 0 || self.model.registered[semaphore] > 0;
        match released {
            Err(Error::UnknownSemaphore { .. }) => assert!(!is_known),
            released => assert_eq!((released.expect("a count"), is_known), (held, true)),
        }
    }

    pub(super) fn purge(&mut self, on: usize, old: bool) {
        let age = if old { KEPT } else { Duration::ZERO };
        let result = self.conn(on).purge_slots(age);
        if self.model.is_open(on) {
            assert!(
                matches!(result, Err(Error::AlreadyInTransaction { .. })),
                "{result:?}"
            );
            return;
        }
        let now = self.now_us();
        let expected = if old { 0 } else { self.model.purge(now) };
        assert_eq!(result.expect("a count"), expected);
    }
}
