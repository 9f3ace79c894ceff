//! A semaphore: its name and number of permits, and what is in the database.

use std::borrow::Cow;
use std::fmt;

use crate::Error;
use crate::error::NameKind;
use crate::error::limits::MAX_PERMITS;
use crate::error::texts::counted;

/// A counting semaphore: a name, and the maximum number of concurrent holders across all servers.
///
/// The name has 1 to [`MAX_NAME_CHARS`](crate::limits::MAX_NAME_CHARS) (255) characters without NUL and is compared as bytes. There
/// are 1 to [`MAX_PERMITS`](crate::limits::MAX_PERMITS) (100,000) permits. Both are checked when the semaphore is used, or by
/// [`validate`](Semaphore::validate).
///
/// # Changing the number of permits
///
/// The number of permits is part of the program, not of the database, and may differ between versions of an application. When it
/// is raised, slots are added. When it is lowered, holders keep their slots, and none is granted until fewer are held than there
/// are permits. While both versions run, there are never more holders than the larger number. A holder whose lease has expired is
/// not counted: by [renewing](crate::SemaphoreExt::renew_slot) a slot that no other was granted, it may exceed the lowered number.
///
/// Until [`purge_slots`](crate::SemaphoreExt::purge_slots) removes the slots above the lowered number, an acquisition locks the
/// free slots to count the held ones: on MySQL and MariaDB until the end of its transaction, and other sessions may find no free
/// slot meanwhile. Acquire outside a transaction, or call `purge_slots`.
///
/// # One semaphore for each object
///
/// For long work on one document at a time: `Semaphore::new(format!("document:{id}"), 1)`. The first use creates a row, which
/// `purge_slots` removes when it has not been leased for some time. For short work use an
/// [object lock](crate::ObjectLockExt), which leaves no row.
///
/// ```
/// use diesel_locks::Semaphore;
///
/// const COLLATE: Semaphore = Semaphore::from_static("collate-logs", 10);
///
/// enum Timer {
///     Business,
/// }
///
/// impl AsRef<str> for Timer {
///     fn as_ref(&self) -> &str {
///         match self {
///             Timer::Business => "business",
///         }
///     }
/// }
///
/// let business = Semaphore::new(Timer::Business, 1);
/// assert_eq!((COLLATE.name(), business.name()), ("collate-logs", "business"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(alias("concurrency limit", "permits", "pool"))]
pub struct Semaphore {
    name: Cow<'static, str>,
    permits: u32,
}

impl Semaphore {
    /// Creates a semaphore whose name is known at compile time, for a constant.
    pub const fn from_static(name: &'static str, permits: u32) -> Self {
        Self {
            name: Cow::Borrowed(name),
            permits,
        }
    }

    /// Creates a semaphore with any other name, such as a `String` or an enum of the application.
    pub fn new(name: impl AsRef<str>, permits: u32) -> Self {
        Self {
            name: Cow::Owned(name.as_ref().to_owned()),
            permits,
        }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the maximum number of concurrent holders.
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// Checks the name and the number of permits.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], [`Error::InvalidPermits`].
    pub fn validate(&self) -> Result<(), Error> {
        NameKind::Semaphore.check(&self.name)?;
        if (1..=MAX_PERMITS).contains(&self.permits) {
            Ok(())
        } else {
            Err(Error::InvalidPermits {
                semaphore: self.name.to_string(),
                permits: self.permits,
            })
        }
    }

    /// One of its slots for errors.
    pub(crate) fn slot_resource(&self) -> String {
        let permits = counted(self.permits, "permit");
        format!("a slot of the semaphore {:?} ({permits})", self.name)
    }

    /// The number of permits as the type of the column.
    pub(crate) fn permits_i32(&self) -> i32 {
        i32::try_from(self.permits).unwrap_or(i32::MAX)
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
        write!(f, "{} ({})", self.name, counted(self.permits, "permit"))
    }
}

/// A semaphore that has slots in the database, as returned by [`semaphores`](crate::InspectExt::semaphores).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SemaphoreInfo {
    /// The name.
    pub name: String,
    /// The number of permits that was [registered](crate::SemaphoreExt::register_semaphores) last, if one was. Holders are limited
    /// by that of each request's [`Semaphore`].
    pub permits: Option<u32>,
    /// The number of slots: the largest number of permits for which slots were created and not purged since.
    pub slots: u32,
    /// The number of leased slots whose leases have not expired, or that are released but unavailable until their minimum hold
    /// time has passed. Slots of transactions do not count.
    pub held: u32,
}
