//! The steps, done.

use std::time::Duration;

use diesel_locks::{InspectExt, Slot};

use super::model::{Model, NAMES};
use super::steps::{SEMAPHORES, SESSIONS, Step};
use crate::behaviour::exclusion::begin_for_locks;
use crate::behaviour::slots::slots_of;
use crate::support::Backend;
use crate::support::tables::Slots;
use crate::support::threads::{commit, roll_back};

const LONGER_LEASE: Duration = Duration::from_secs(7200);
const SHORTER_LEASE: Duration = Duration::from_secs(1800);
/// Between the two: a refresh may be shorter.
pub(super) const KEPT: Duration = Duration::from_secs(3600);

pub(super) const HOLDERS: [&str; 2] = ["worker-7", "worker-8 'x' \u{1f512}"];

/// Those of the steps, and one more that looks.
pub(super) struct Sessions<B: Backend>(Vec<B::Conn>);

impl<B: Backend> Sessions<B> {
    pub(super) fn of(database: &B) -> Self {
        // No step has to wait for another session: one that does fails soon.
        let patience = match B::ENGINE {
            "postgres" => "SET lock_timeout = '3s'",
            "mysql" => "SET SESSION innodb_lock_wait_timeout = 3",
            _ => "PRAGMA busy_timeout = 3000",
        };
        let connect = |_| {
            let mut conn = database.connect();
            B::sql(&mut conn, patience);
            conn
        };
        Self((0..=SESSIONS).map(connect).collect())
    }

    pub(super) fn witness(&mut self) -> &mut B::Conn {
        &mut self.0[SESSIONS]
    }

    pub(super) fn both(&mut self, on: usize) -> (&mut B::Conn, &mut B::Conn) {
        let (sessions, witness) = self.0.split_at_mut(SESSIONS);
        (&mut sessions[on], &mut witness[0])
    }
}

pub(super) struct System<B: Backend> {
    pub(super) sessions: Sessions<B>,
    pub(super) model: Model,
    /// All that were ever granted.
    pub(super) granted: Vec<Slot>,
}

fn lasting(long: bool) -> Duration {
    if long { LONGER_LEASE } else { SHORTER_LEASE }
}

impl<B: Backend> System<B> {
    pub(super) fn new(sessions: Sessions<B>) -> Self {
        Self {
            sessions,
            model: Model::new(),
            granted: Vec::new(),
        }
    }

    /// Ends what is open.
    pub(super) fn end(mut self) -> Sessions<B> {
        for on in 0..SESSIONS {
            if self.model.is_open(on) {
                roll_back(self.conn(on));
            }
        }
        self.sessions
    }

    pub(super) fn conn(&mut self, on: usize) -> &mut B::Conn {
        &mut self.sessions.0[on]
    }

    pub(super) fn now_us(&mut self) -> i64 {
        B::now_us(self.sessions.witness())
    }

    pub(super) fn apply(&mut self, step: &Step) {
        match *step {
            Step::Begin { on } => {
                begin_for_locks::<B>(self.conn(on));
                self.model.begin(on);
            }
            Step::End { on, commits } => {
                if commits {
                    commit(self.conn(on));
                } else {
                    roll_back(self.conn(on));
                }
                self.model.end(on, commits);
            }
            Step::Acquire {
                on,
                semaphore,
                how,
                long,
                kept,
            } => {
                let hold_at_least = if kept { KEPT } else { Duration::ZERO };
                // At least as long as it is to be kept.
                let lasts = lasting(long || kept);
                self.acquire(on, semaphore, how, lasts, hold_at_least);
            }
            Step::Hold {
                on,
                semaphore,
                how,
                commits,
            } => self.hold(on, semaphore, how, commits),
            Step::Ensure { on, slot } => self.ensure(on, slot),
            Step::Refresh { on, slot, long } => self.refresh(on, slot, lasting(long)),
            Step::Release { on, slot } => self.release(on, slot),
            Step::Expire { slot } => self.expire(slot),
            Step::Permits { semaphore, permits } => self.model.permits[semaphore] = permits,
            Step::Register { on, semaphore } => self.register(on, semaphore),
            Step::ReleaseAll { on, semaphore } => self.release_all(on, semaphore),
            Step::Purge { on, old } => self.purge(on, old),
        }
    }

    /// Every session sees the rows that the model has for it, and `held_slots` shows those that are held.
    pub(super) fn assert_rows(&mut self) {
        let now = self.now_us();
        for on in 0..SESSIONS {
            if on > 0 && !self.model.is_open(on) {
                continue;
            }
            let expected = self.model.view(on);
            let seen = B::slots(self.conn(on));
            if seen != expected {
                let differ = |rows: &Slots, others: &Slots| -> Slots {
                    let mut rows = rows.clone();
                    rows.retain(|key, row| others.get(key) != Some(row));
                    rows
                };
                panic!(
                    "session {on} sees {:#?} instead of {:#?}",
                    differ(&seen, &expected),
                    differ(&expected, &seen)
                );
            }
            for name in NAMES.iter().take(SEMAPHORES) {
                let held = self.conn(on).held_slots(&slots_of(name)).expect("rows");
                let shown: Vec<_> = held
                    .into_iter()
                    .map(|held| (held.number, held.token, held.holder, held.fence))
                    .collect();
                let leased = expected
                    .iter()
                    .filter(|(key, row)| key.0 == *name && row.expires_us > now);
                let leased: Vec<_> = leased
                    .map(|(key, row)| {
                        (
                            key.1.unsigned_abs(),
                            row.token,
                            row.holder.clone(),
                            row.fence,
                        )
                    })
                    .collect();
                assert_eq!(shown, leased, "{name:?}");
            }
        }
    }
}
