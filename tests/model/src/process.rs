//! A process: where it is in its program, and what it believes.
//!
//! It may be paused anywhere, for any time and for ever: every step of it is one that it may take, never one
//! that it has to. What is sent and not yet executed, or executed and not yet answered, is a state of its own.

use crate::database::{Fence, Number, Token};

/// What has happened since an attempt at a slot looked, that may make it one too many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Since {
    /// Nothing of that kind.
    #[default]
    Nothing,
    /// An expired lease was renewed: no other process had been granted the slot.
    LateRenewal,
    /// A process with a larger number of permits was granted a slot.
    LargerNumber,
}

/// A slot that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// Which.
    pub number: Number,
    /// What proves it.
    pub token: Token,
    /// What is written with.
    pub fence: Fence,
}

/// A renewal of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Renewal {
    /// None is under way.
    None,
    /// Sent this many ticks ago.
    Sent(u8),
    /// Executed; what is left of the new lease if it is counted from before it was sent.
    Done(u8),
    /// Executed: the process does not hold the slot.
    Refused,
}

/// Where a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Process {
    /// There are fewer processes.
    Absent,
    /// Has nothing, wants nothing.
    Idle,
    /// There were more slots than permits, and it has counted the slots.
    Counting {
        /// Its number of permits.
        permits: usize,
        /// How many slots there were.
        slots: usize,
        /// Since it counted.
        since: Since,
    },
    /// It goes for a slot that it found open.
    Open {
        /// Its number of permits.
        permits: usize,
        /// The slot.
        number: Number,
        /// Since it counted.
        since: Since,
    },
    /// It has sent the statement that takes a slot.
    Taking {
        /// Its number of permits.
        permits: usize,
        /// The slot.
        number: Number,
        /// The fence that the look saw.
        seen: Fence,
        /// The largest fence of all slots that the look saw.
        after: Fence,
        /// Ticks since before the look.
        age: u8,
        /// Since it looked, or counted.
        since: Since,
    },
    /// The slot is granted, the answer under way.
    Granted {
        /// The slot.
        slot: Slot,
        /// What is left of the lease if it is counted from before the look.
        left: u8,
    },
    /// It has a guard.
    Holding {
        /// The slot.
        slot: Slot,
        /// Until the guard's deadline; 0: lost.
        left: u8,
        /// The renewal that is under way.
        renewal: Renewal,
    },
    /// It has ended its guard and sent the release.
    Releasing {
        /// The slot.
        number: Number,
        /// What proves that it was ours.
        token: Token,
    },
}

impl Process {
    /// What is held as far as the process knows.
    pub fn believes(&self) -> Option<Slot> {
        match *self {
            Self::Holding { slot, left, .. } if left > 0 => Some(slot),
            _ => None,
        }
    }

    /// Something happens that may make the attempt of a process with fewer permits than `largest` one too many.
    pub(crate) fn note(&mut self, what: Since, largest: usize) {
        if let Self::Counting { permits, since, .. }
        | Self::Open { permits, since, .. }
        | Self::Taking { permits, since, .. } = self
            && *permits < largest
        {
            *since = what.max(*since);
        }
    }

    /// A tick of the local clock. `deadline_runs`: what is under way gets older.
    pub(crate) fn tick(&mut self, lease: u8, deadline_runs: bool) {
        match self {
            Self::Taking { age, .. } => *age = lease.min(*age + 1),
            Self::Granted { left, .. } if deadline_runs => *left = left.saturating_sub(1),
            Self::Holding { left, renewal, .. } => {
                *left = left.saturating_sub(1);
                match renewal {
                    Renewal::Sent(age) => *age = lease.min(*age + 1),
                    Renewal::Done(left) if deadline_runs => *left = left.saturating_sub(1),
                    _ => {}
                }
            }
            _ => {}
        }
    }
}
