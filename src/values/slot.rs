//! A leased slot, and its rows as an operator and a timer read them.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use uuid::Uuid;

/// A leased slot of a semaphore, which is neither renewed in the background nor released on drop.
///
/// It is identified by its token, belongs to no connection, transaction or process, and is held until it is released or its lease
/// expires. A `SlotGuard` renews its slot, and releases it on drop. Another process can use the slot by [`Slot::from_parts`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a slot that is not released is held until its lease expires"]
#[doc(alias("lease", "permit", "token"))]
pub struct Slot {
    pub(crate) semaphore: String,
    pub(crate) number: u32,
    pub(crate) token: Uuid,
    pub(crate) fence: i64,
    /// The end of the lease by the local clock; never later than by the database's clock.
    pub(crate) deadline: Instant,
}

impl Slot {
    /// Creates the value for a slot that was acquired elsewhere, such as by another process. Acquires and checks nothing.
    /// [`remaining`](Self::remaining) is zero until the slot is renewed.
    pub fn from_parts(semaphore: impl Into<String>, number: u32, token: Uuid, fence: i64) -> Self {
        Self {
            semaphore: semaphore.into(),
            number,
            token,
            fence,
            deadline: Instant::now(),
        }
    }

    /// Returns the semaphore's name.
    pub fn semaphore(&self) -> &str {
        &self.semaphore
    }

    /// Returns the number of the slot, from 1 to the number of permits. No two unexpired leases have the same.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the token that identifies this grant: a random UUID.
    #[doc(alias("owner", "uuid"))]
    pub fn token(&self) -> Uuid {
        self.token
    }

    /// Returns the fence of this grant (a fencing token): a number that grows from grant to grant.
    ///
    /// A process that was paused beyond its lease may not notice it, and still write. Send the fence with each write to an external
    /// resource, and have that refuse a fence smaller than the largest that it has seen; an equal one is the same holder's. For
    /// writes to the same database use [`pin_slot`](crate::SemaphoreExt::pin_slot).
    ///
    /// Compare the fences of holders that take turns only: those of a semaphore with one permit, of one slot
    /// [`number`](Self::number), or of one object after another. Ten holders of ten permits have different fences at the same time,
    /// and all of them may write.
    ///
    /// The fence is larger than those of all earlier grants of this slot, and of all grants of the semaphore's other slots whose
    /// calls had returned before the call of this one began, independent of the database's clock. It is unique within the semaphore,
    /// and does not change when the slot is renewed.
    ///
    /// A grant in an open transaction is completed by its COMMIT. On MySQL and MariaDB a grant begins with the query for free slots:
    /// if the session stalls after it, the fence is as old as the query. A fail-over that loses grants also loses their fences: see
    /// [`raise_fences`](crate::SemaphoreExt::raise_fences).
    ///
    /// Fences exceed 2<sup>53</sup>: transfer them as text in JSON.
    #[doc(alias("fencing token", "fencing_token", "epoch", "generation"))]
    pub fn fence(&self) -> i64 {
        self.fence
    }

    /// Returns the minimum time that remains of the lease, by the monotonic clock of this process, from the moment before the last
    /// statement that acquired or renewed the slot was sent. Zero means that the lease may have expired.
    #[doc(alias("ttl", "expires_in"))]
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    pub(crate) fn number_i32(&self) -> i32 {
        i32::try_from(self.number).unwrap_or(0)
    }
}

/// The state of a lease at the moment when its slot was renewed or released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias("expired"))]
pub enum LeaseState {
    /// The lease had not expired.
    Unexpired,
    /// The lease had expired, and no other holder had been granted the slot.
    Expired,
}

impl LeaseState {
    /// Returns whether the lease had expired.
    pub fn is_expired(self) -> bool {
        self == Self::Expired
    }
}

/// The row of a held slot, for an operator: what [`held_slots`](crate::InspectExt::held_slots) lists. It holds nothing; a holder
/// has a [`Slot`], a `SlotGuard` that renews it, or, as a leader or in a job on a timer, an `ActiveSlot`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias("holder", "owner", "locked_by"))]
pub struct SlotInfo {
    /// The semaphore's name.
    pub semaphore: String,
    /// The number of the slot, from 1.
    pub number: u32,
    /// The text set by [`LeaseOptions::holder`](crate::LeaseOptions::holder).
    pub holder: Option<String>,
    /// The holder's token; `None` when the slot was released before the end of its minimum hold time
    /// ([`LeaseOptions::hold_at_least`](crate::LeaseOptions::hold_at_least)).
    pub token: Option<Uuid>,
    /// The fence of the grant.
    pub fence: i64,
    /// The time of the grant by the database's clock.
    pub acquired_at: DateTime<Utc>,
    /// The time when the lease expires unless it is renewed, by the database's clock.
    pub expires_at: DateTime<Utc>,
    /// The time that remained of the lease when the row was read, by the database's clock.
    pub remaining: Duration,
}

/// The first slot of a semaphore, as a timer reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstSlot {
    /// Another session has the table locked.
    #[allow(dead_code, reason = "not without an engine that locks tables")]
    TableLocked,
    Missing,
    Found(SlotTimes),
}

/// The times of a slot, whether it is held or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotTimes {
    /// That of the last grant.
    pub(crate) fence: i64,
    pub(crate) acquired_us: i64,
    /// Zero without a minimum hold time, after the last holder has not used the slot, and after a release by force.
    pub(crate) hold_until_us: i64,
    /// Not positive if the slot is free.
    pub(crate) remaining_us: i64,
}

/// The columns of [`SlotTimes`].
pub(crate) type SlotTimesRow = (i64, i64, i64, i64);

impl From<Option<SlotTimesRow>> for FirstSlot {
    fn from(row: Option<SlotTimesRow>) -> Self {
        let Some((fence, acquired_us, hold_until_us, remaining_us)) = row else {
            return Self::Missing;
        };
        Self::Found(SlotTimes {
            fence,
            acquired_us,
            hold_until_us,
            remaining_us,
        })
    }
}
