//! The table of slots, and what a statement does to it. Each statement is one step.
//!
//! Times are what is left of a lease, so that the model needs no end of time; fences and tokens are ranks (see
//! `State::canonical`), so that it needs no end of grants.

use crate::config::{Config, LEASE, MOST_SLOTS, Mutant};

/// The rank of a fence among those of its slot; with [`Config::fences`] twice its rank among all of them, so that
/// there is room between any two.
pub type Fence = u8;

/// The rank of a token among those of its slot: the order of the grants.
pub type Token = u8;

/// A slot's number, from 0 in the model and from 1 in words.
pub type Number = usize;

/// The row of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row {
    /// Absent rows remember their fence: that is the row of `diesel_locks_fences`.
    pub present: bool,
    /// What is left of the lease; 0 has ended.
    pub left: u8,
    /// The column `token` has the newest one, or NULL.
    pub owned: bool,
    /// The newest token that was granted.
    pub newest: Token,
    /// The fence of the last grant.
    pub fence: Fence,
    /// The largest fence that the slot has ever had: for the invariant alone.
    pub largest: Fence,
    /// Granted at this very tick: for [`Mutant::FenceByClock`] alone.
    pub just_granted: bool,
}

impl Row {
    /// `expires_us <= now`, which includes rows that were released.
    fn is_free(self, config: &Config) -> bool {
        let ended = if config.is(Mutant::ProcessClock) {
            self.left <= 1
        } else {
            self.left == 0
        };
        self.present && ended && !(config.is(Mutant::ExpiryIgnored) && self.owned)
    }

    /// Whether a holder's lease has not ended, by the database's clock.
    pub fn is_held(self) -> bool {
        self.present && self.left > 0
    }

    /// Whether the row is this token's.
    pub fn is_of(self, token: Token) -> bool {
        self.present && self.owned && self.newest == token
    }

    fn next_fence(self, seen: Fence, after: Fence, config: &Config) -> Fence {
        if config.is(Mutant::FenceByClock) && self.just_granted {
            self.fence
        } else {
            let of_all = !config.is(Mutant::FenceOfOwnSlot);
            seen.max(if of_all { after } else { 0 }) + 1
        }
    }
}

/// What a look saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// These are free.
    Free(Numbers),
    /// Fewer slots than permits, and none free.
    Missing,
    /// More slots than permits: the holders above are to be counted.
    Surplus,
    /// All are leased.
    Full,
}

/// A set of slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers([bool; MOST_SLOTS]);

impl Numbers {
    /// In their order.
    pub fn iter(self) -> impl Iterator<Item = Number> {
        (0..MOST_SLOTS).filter(move |&number| self.0[number])
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.iter().next().is_none()
    }
}

impl FromIterator<Number> for Numbers {
    fn from_iter<I: IntoIterator<Item = Number>>(numbers: I) -> Self {
        let mut set = Self::default();
        for number in numbers {
            set.0[number] = true;
        }
        set
    }
}

/// A grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Proves it.
    pub token: Token,
    /// Orders it.
    pub fence: Fence,
    /// Whether the slot never had a fence as large, nor any slot before the look.
    pub grew: bool,
}

/// All rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Database {
    /// By number, those that are there first.
    pub rows: [Row; MOST_SLOTS],
}

impl Database {
    /// How many slots there are: `MAX(number)`, which is `COUNT(*)`.
    pub fn slots(&self) -> usize {
        self.rows.iter().filter(|row| row.present).count()
    }

    /// How many leases have not ended.
    pub fn held(&self) -> usize {
        self.rows.iter().filter(|row| row.is_held()).count()
    }

    fn free(&self, config: &Config) -> impl Iterator<Item = Number> {
        (0..MOST_SLOTS).filter(|&number| self.rows[number].is_free(config))
    }

    /// `find_free` and `classify_refusal`: a statement that locks nothing. (PostgreSQL searches and claims in one statement: here a claim that follows at once.)
    pub fn look(&self, permits: usize, config: &Config) -> Look {
        let slots = self.slots();
        if slots > permits {
            return Look::Surplus;
        }
        let free: Numbers = self.free(config).collect();
        if !free.is_empty() {
            Look::Free(free)
        } else if slots < permits {
            Look::Missing
        } else {
            Look::Full
        }
    }

    /// `find_candidates`, its last statement, and `lowest_grantable`: `slots` were counted by the first.
    pub fn open(&self, slots: usize, permits: usize, config: &Config) -> Numbers {
        let free: Numbers = self.free(config).filter(|&number| number < slots).collect();
        let holders = if config.is(Mutant::HoldersAboveIgnored) {
            permits - free.iter().filter(|&number| number < permits).count()
        } else {
            slots - free.iter().count()
        };
        let open = permits.saturating_sub(holders);
        if config.is(Mutant::CountBeforeLock) {
            return if open > 0 { free } else { Numbers::default() };
        }
        let within = free.iter().filter(|&number| number < permits);
        within.take(open).collect()
    }

    /// Whether a look among the open slots finds this one free.
    pub fn is_free(&self, number: Number, config: &Config) -> bool {
        self.rows[number].is_free(config)
    }

    /// The largest fence, as a look sees it: of all rows, and of those that were removed.
    pub fn last_fence(&self, config: &Config) -> Fence {
        let largest = self.rows.iter().map(|row| row.largest).max();
        largest.filter(|_| config.fences).unwrap_or(0)
    }

    /// `Claim`: compare and set. `after`: the largest fence that the look saw.
    pub fn take(
        &mut self,
        number: Number,
        seen: Fence,
        after: Fence,
        config: &Config,
    ) -> Option<Grant> {
        let row = &mut self.rows[number];
        let as_seen = row.fence == seen || config.is(Mutant::TakeWithoutFence);
        let free = row.is_free(config) && as_seen;
        if !(free || row.present && config.is(Mutant::TakeWithoutCompare)) {
            return None;
        }
        let fence = row.next_fence(seen, after, config);
        let grew = fence > row.largest.max(after);
        *row = Row {
            present: true,
            left: LEASE,
            owned: true,
            newest: row.newest + 1,
            fence,
            largest: row.largest.max(fence),
            just_granted: config.is(Mutant::FenceByClock),
        };
        Some(Grant {
            token: row.newest,
            fence,
            grew,
        })
    }

    /// `renew_one` and `renew_batch`; says what is then left of the lease, if it is this token's.
    pub fn extend(&mut self, number: Number, token: Token, config: &Config) -> Option<u8> {
        let row = &mut self.rows[number];
        let ours = row.is_of(token) || row.present && config.is(Mutant::RenewWithoutToken);
        if ours {
            row.left = LEASE;
        }
        ours.then_some(LEASE)
    }

    /// `renew_batch` when another session has the row locked: it keeps its end, and what is left is lines.
    pub fn left_of(&self, number: Number, token: Token) -> Option<u8> {
        let row = &self.rows[number];
        row.is_of(token).then_some(row.left.min(LEASE))
    }

    /// `release` and `release_batch`.
    pub fn release(&mut self, number: Number, token: Token, config: &Config) {
        let row = &mut self.rows[number];
        if row.is_of(token) || row.present && config.is(Mutant::ReleaseWithoutToken) {
            row.left = 0;
            row.owned = false;
        }
    }

    /// `create_slots`: new rows begin with the fence of those that were removed.
    pub fn add(&mut self, permits: usize, config: &Config) {
        for row in self.rows[..permits].iter_mut().filter(|row| !row.present) {
            row.present = true;
            if config.is(Mutant::PurgeForgetsFences) {
                row.fence = 0;
            }
        }
    }

    /// `purge_slots`: the last row, if it is free.
    pub fn purge(&mut self, config: &Config) -> bool {
        let Some(row) = self.rows.iter_mut().rfind(|row| row.present) else {
            return false;
        };
        if !row.is_free(config) {
            return false;
        }
        *row = Row {
            present: false,
            left: 0,
            owned: false,
            just_granted: false,
            ..*row
        };
        true
    }

    /// A tick of the clock.
    pub fn tick(&mut self) {
        for row in &mut self.rows {
            row.left = row.left.saturating_sub(1);
            row.just_granted = false;
        }
    }

    /// The clock is set forward, beyond the end of all leases.
    pub fn set_forward(&mut self) {
        for row in &mut self.rows {
            row.left = 0;
            row.just_granted = false;
        }
    }

    /// The clock jumps backwards by a tick: leases last longer. A lease that expired within that tick may become
    /// unexpired.
    pub fn set_back(&mut self, ended_go_on: bool) -> bool {
        let mut revived = false;
        for row in self.rows.iter_mut().filter(|row| row.present && row.owned) {
            if row.left > 0 {
                row.left = (row.left + 1).min(LEASE + 1);
            } else if ended_go_on {
                row.left = 1;
                revived = true;
            }
        }
        revived
    }
}
