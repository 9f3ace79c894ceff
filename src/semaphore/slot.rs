//! What a holder holds, and what is seen of it.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use uuid::Uuid;

/// A leased slot of a semaphore: the right to be one of at most so many.
///
/// It belongs to whoever knows its token, not to a connection, a transaction or a process: it ends by
/// release or by expiry. Dropping the value releases nothing (a `SlotGuard` does).
/// Another process can go on with it by [`Slot::from_parts`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a slot that is neither released nor refreshed is held until its lease ends"]
pub struct Slot {
    pub(crate) semaphore: String,
    pub(crate) number: u32,
    pub(crate) token: Uuid,
    pub(crate) fence: i64,
    /// By the local clock, and never later than the lease's end by the database's.
    pub(crate) deadline: Instant,
}

impl Slot {
    /// A slot that another process has acquired and handed on. Nothing is checked before it is used, and
    /// [`remaining`](Self::remaining) is zero until it is refreshed.
    pub fn from_parts(semaphore: impl Into<String>, number: u32, token: Uuid, fence: i64) -> Self {
        Self {
            semaphore: semaphore.into(),
            number,
            token,
            fence,
            deadline: Instant::now(),
        }
    }

    /// The semaphore's name.
    pub fn semaphore(&self) -> &str {
        &self.semaphore
    }

    /// Which slot it is: 1 to the number of permits. Nobody else has it at the same time.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// What proves that the slot is held: a random UUID, new with every grant.
    pub fn token(&self) -> Uuid {
        self.token
    }

    /// The fencing token: larger than that of every earlier grant of this slot, and of every grant of the
    /// semaphore's other slots that was finished before this one began, whatever the database's clock does.
    /// It is never given twice in a semaphore, and stays the same when the slot is refreshed.
    ///
    /// A grant in an open transaction is finished by its COMMIT. On MySQL and MariaDB a grant begins with
    /// the look at the slots: a session that stalls after its look has a fence as old as that. A fail-over
    /// that loses grants loses their fences: see [`raise_fences`](crate::SemaphoreExt::raise_fences).
    ///
    /// A holder that was paused past its lease does not know it. Let what it writes to take the fence, and
    /// refuse a smaller one than it has seen; [`pin_slot`](crate::SemaphoreExt::pin_slot) does the like
    /// for writes to the same database. Fences exceed 2<sup>53</sup>: JSON wants them as text.
    pub fn fence(&self) -> i64 {
        self.fence
    }

    /// How much of the lease is left at least, by this process's monotonic clock, measured from before the
    /// statement that leased or refreshed was sent. Zero: it may have ended.
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    pub(crate) fn number_i32(&self) -> i32 {
        i32::try_from(self.number).unwrap_or(0)
    }
}

/// Whether a slot was refreshed or released before its lease had ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseState {
    /// The lease had not ended.
    Unexpired,
    /// The lease had ended, and nobody else had got the slot.
    Expired,
}

impl LeaseState {
    /// The lease had ended.
    pub fn is_expired(self) -> bool {
        self == Self::Expired
    }
}

/// A slot that is held, as the database shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldSlot {
    /// The semaphore's name.
    pub semaphore: String,
    /// Which slot: from 1.
    pub number: u32,
    /// The text that the holder gave.
    pub holder: Option<String>,
    /// The holder's token; `None` when it was released and is kept until the time asked for with
    /// [`LeaseOptions::hold_at_least`](crate::LeaseOptions::hold_at_least) has passed.
    pub token: Option<Uuid>,
    /// The fence of the grant.
    pub fence: i64,
    /// When it was granted, by the database's clock.
    pub acquired_at: DateTime<Utc>,
    /// When it ends unless it is refreshed, by the database's clock.
    pub expires_at: DateTime<Utc>,
    /// What was left of it by the database's clock when this was read.
    pub remaining: Duration,
}
