//! A semaphore; a leased slot, and its rows as an operator and a timer read them.

use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::Error;
use crate::error::NameKind;
use crate::error::limits::MAX_PERMITS;
use crate::error::texts::counted;

/// A counting semaphore: a name, and the maximum number of concurrent holders across all servers.
///
/// The name has 1 to [`MAX_NAME_CHARS`](crate::limits::MAX_NAME_CHARS) (255) characters without NUL and is compared as bytes. There
/// are 1 to [`MAX_PERMITS`](crate::limits::MAX_PERMITS) (100,000) permits. Both are checked when the semaphore is used.
///
/// # Changing the number of permits
///
/// The number of permits of [`new`](Self::new) is part of the program, and may differ between versions of an application. When it
/// is raised, slots are added. When it is lowered, holders keep their slots, and none is granted until fewer are held than there
/// are permits. While both versions run, there are never more holders than the larger number. A holder whose lease has expired is
/// not counted: by [renewing](crate::SemaphoreExt::renew_slot) a slot that no other was granted, it may exceed the lowered number.
///
/// Until [`purge_slots`](crate::SemaphoreExt::purge_slots) removes the slots above the lowered number, an acquisition locks the
/// free slots to count the held ones: on MySQL and MariaDB until the end of its transaction, and other sessions may find no free
/// slot meanwhile.
///
/// # A number of permits in the database
///
/// [`registered`](Self::registered) takes the number from the database, where [`set_permits`](crate::SemaphoreExt::set_permits) sets
/// it, at the cost of one more statement for each attempt. Every attempt that begins after a change obeys it. Requests that wait for a
/// lease make an attempt at least once per poll interval (1 s by default), and those for a slot of a transaction every 100 ms. With 0
/// permits no slot is granted, and requests wait as if all slots were held. Use `registered` in all programs: a program that uses
/// `new` ignores the number in the database.
///
/// # One semaphore for each object
///
/// For long work on one document at a time: `Semaphore::new(format!("document:{id}"), 1)`. The first use creates a row, which
/// `purge_slots` removes. For short work use an [object lock](crate::ObjectLockExt), which leaves no row.
///
/// ```
/// use diesel_locks::Semaphore;
///
/// const COLLATE: Semaphore = Semaphore::from_static("collate-logs", 10);
///
/// let document = Semaphore::new(format!("document:{}", 4711), 1);
/// assert_eq!((COLLATE.name(), document.name()), ("collate-logs", "document:4711"));
/// assert_eq!((COLLATE.permits(), document.validate().is_ok()), (Some(10), true));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(alias("concurrency limit", "permits", "pool"))]
pub struct Semaphore {
    name: Cow<'static, str>,
    /// `None`: what the database has registered.
    permits: Option<u32>,
}

impl Semaphore {
    /// Creates a semaphore whose name is known at compile time, for a constant.
    pub const fn from_static(name: &'static str, permits: u32) -> Self {
        Self {
            name: Cow::Borrowed(name),
            permits: Some(permits),
        }
    }

    /// Creates a semaphore with any other name, such as a `String` or an enum of the application.
    pub fn new(name: impl AsRef<str>, permits: u32) -> Self {
        Self {
            name: Cow::Owned(name.as_ref().to_owned()),
            permits: Some(permits),
        }
    }

    /// Creates a semaphore whose number of permits is in the database: see [above](Self#a-number-of-permits-in-the-database).
    pub fn registered(name: impl AsRef<str>) -> Self {
        Self {
            name: Cow::Owned(name.as_ref().to_owned()),
            permits: None,
        }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the maximum number of concurrent holders; `None` if it is in the database.
    pub fn permits(&self) -> Option<u32> {
        self.permits
    }

    /// Checks the name and the number of permits.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], [`Error::InvalidPermits`].
    pub fn validate(&self) -> Result<(), Error> {
        NameKind::Semaphore.check(&self.name)?;
        match self.permits {
            Some(permits) if !(1..=MAX_PERMITS).contains(&permits) => Err(Error::InvalidPermits {
                semaphore: self.name.to_string(),
                permits,
            }),
            _ => Ok(()),
        }
    }

    /// One of its slots for errors.
    pub(crate) fn slot_resource(&self) -> String {
        self.resource("a slot")
    }

    pub(crate) fn resource(&self, slots: &str) -> String {
        let (name, permits) = (&self.name, self.permits_shown());
        format!("{slots} of the semaphore {name:?} ({permits})")
    }

    fn permits_shown(&self) -> String {
        let permits = self.permits.map(|permits| counted(permits, "permit"));
        permits.unwrap_or_else(|| "registered permits".to_owned())
    }

    /// The number of permits as the type of the column. It is known where a slot is requested of an engine.
    pub(crate) fn permits_i32(&self) -> i32 {
        i32::try_from(self.permits.unwrap_or(0)).unwrap_or(i32::MAX)
    }
}

/// Returns the name, so that a `&Semaphore` can be passed where a name is expected.
impl AsRef<str> for Semaphore {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.permits_shown())
    }
}

/// A semaphore that has slots in the database, as returned by [`semaphores`](crate::InspectExt::semaphores).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SemaphoreInfo {
    /// The name.
    pub name: String,
    /// The number of permits that was [registered](crate::SemaphoreExt::register_semaphores) or
    /// [set](crate::SemaphoreExt::set_permits) last, if one was. Requests of `Semaphore::new` are limited by their own
    /// number.
    pub permits: Option<u32>,
    /// The number of slots: the largest number of permits for which slots were created and not purged since.
    pub slots: u32,
    /// The number of slots that [`held_slots`](crate::InspectExt::held_slots) lists. Slots of transactions do not count.
    pub held: u32,
}

/// A leased slot of a semaphore, which, unlike that of a `SlotGuard`, is neither renewed in the background nor released on drop.
///
/// It is identified by its token, belongs to no connection, transaction or process, and is held until it is released or its lease
/// expires. With [several permits](crate::LeaseOptions::permits) it consists of one slot for each, which [`split`](Self::split)
/// returns; methods renew, release and pin all of them.
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
    /// Those of the other permits. They have no others, and their deadlines are not used.
    pub(crate) others: Vec<Slot>,
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
            others: Vec::new(),
        }
    }

    /// Returns one slot for each permit, to release some permits before the others: each slot can be renewed and released alone. To
    /// hand several permits on to another process, pass the parts of each of these slots.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel_locks::prelude::*;
    /// # use std::time::Duration;
    /// # let mut conn = SqliteConnection::establish(":memory:")?;
    /// # diesel_locks::migrate(&mut conn)?;
    /// let lease = LeaseOptions::new(Duration::from_secs(30)).permits(3);
    /// let slot = conn.acquire_slot(&Semaphore::new("memory-gb", 8), lease, Wait::No)?;
    /// let mut slots = slot.split();
    /// conn.release_slot(slots.remove(2))?; // one permit of three
    /// let two = slots.remove(0).and(slots);
    /// assert_eq!(two.permits(), 2);
    /// # conn.release_slot(two)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn split(mut self) -> Vec<Self> {
        let (deadline, others) = (self.deadline, std::mem::take(&mut self.others));
        let others = others.into_iter().map(|other| Self { deadline, ..other });
        std::iter::once(self).chain(others).collect()
    }

    /// Returns one slot that consists of this one and others: the opposite of [`split`](Self::split). It has the shortest
    /// [`remaining`](Self::remaining) of them.
    pub fn and(mut self, others: impl IntoIterator<Item = Self>) -> Self {
        for other in others.into_iter().flat_map(Self::split) {
            self.deadline = self.deadline.min(other.deadline);
            self.others.push(other);
        }
        self
    }

    /// Returns the number of permits: 1, or that of [`LeaseOptions::permits`](crate::LeaseOptions::permits).
    pub fn permits(&self) -> u32 {
        u32::try_from(self.others.len() + 1).unwrap_or(u32::MAX)
    }

    /// The slot of each permit.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.others)
    }

    /// Returns the semaphore's name.
    pub fn semaphore(&self) -> &str {
        &self.semaphore
    }

    /// Returns the number of the slot, from 1 to the number of permits; with several permits, of the first one. No two unexpired
    /// leases have the same.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the token that identifies this grant, with several permits that of the first one: a random UUID.
    #[doc(alias("owner", "uuid"))]
    pub fn token(&self) -> Uuid {
        self.token
    }

    /// Returns the fence of this grant (a fencing token): a number that grows from grant to grant.
    ///
    /// A process that was paused beyond its lease may not notice it, and still write. Send the fence with each write to an external
    /// resource, and have that refuse a fence smaller than the largest that it has seen ([when to compare
    /// fences](https://github.com/diesel-locks/diesel-locks/blob/main/docs/guide.md#what-a-fence-is-for)). For writes to the same
    /// database use [`pin_slot`](crate::SemaphoreExt::pin_slot).
    ///
    /// The fence is unique within the semaphore, stays when the slot is renewed, and is larger than those of all earlier grants of
    /// this slot, and of all grants of the other slots whose calls had returned before the call of this one began, whatever the
    /// database's clock does. A grant in an open transaction counts from its COMMIT on. On MySQL and MariaDB a grant begins with
    /// the query for free slots. A fail-over that loses grants also loses their fences: see
    /// [`raise_fences`](crate::SemaphoreExt::raise_fences).
    ///
    /// Each of several permits has its own fence. This returns the largest.
    ///
    /// Fences exceed 2<sup>53</sup>: transfer them as text in JSON.
    #[doc(alias("fencing token", "fencing_token", "epoch", "generation"))]
    pub fn fence(&self) -> i64 {
        self.rows()
            .fold(self.fence, |fence, row| fence.max(row.fence))
    }

    /// Returns the minimum time that remains of the lease, by the monotonic clock of this process. It counts from the moment before
    /// the statement was sent that acquired or renewed the slot last; with several permits, the first of these statements. Zero: the
    /// lease may have expired.
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

/// The row of a held slot, as [`held_slots`](crate::InspectExt::held_slots) lists it for an operator. Times are those of the
/// database's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias("holder", "owner", "locked_by"))]
pub struct SlotInfo {
    /// The semaphore's name.
    pub semaphore: String,
    /// The number of the slot, from 1.
    pub number: u32,
    /// The text set by [`LeaseOptions::holder`](crate::LeaseOptions::holder), by default `host/pid`.
    pub holder: Option<String>,
    /// The holder's token; `None` when the slot was released before the end of its
    /// [minimum hold time](crate::LeaseOptions::hold_at_least).
    pub token: Option<Uuid>,
    /// The fence of the grant.
    pub fence: i64,
    /// The time of the grant.
    pub acquired_at: DateTime<Utc>,
    /// The time when the lease expires unless it is renewed.
    pub expires_at: DateTime<Utc>,
    /// The time that remained of the lease when the row was read.
    pub remaining: Duration,
    /// The time of the last [`request_release`](crate::SemaphoreExt::request_release) to this holder, if there was one.
    pub release_requested_at: Option<DateTime<Utc>>,
    /// What this holder has set by [`set_slot_data`](crate::SemaphoreExt::set_slot_data).
    pub data: Option<String>,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, diesel::Queryable)]
pub struct SlotTimes {
    /// That of the last grant.
    pub(crate) fence: i64,
    pub(crate) acquired_us: i64,
    /// Zero without a minimum hold time, and after a release by force; the time of the grant after the holder has not used the slot.
    pub(crate) hold_until_us: i64,
    /// Not positive if the slot is free.
    pub(crate) remaining_us: i64,
}

impl From<Option<SlotTimes>> for FirstSlot {
    fn from(row: Option<SlotTimes>) -> Self {
        row.map_or(Self::Missing, Self::Found)
    }
}
