//! What is limited: a name and a number of permits.

use std::borrow::Cow;
use std::fmt;

use crate::Error;
use crate::limits::MAX_PERMITS;
use crate::name::{self, NameKind};

/// A counting semaphore: a name, and how many may hold a slot of it at the same time in the whole
/// cluster.
///
/// A name has 1 to [`MAX_NAME_CHARS`](crate::MAX_NAME_CHARS) (255) characters without NUL and is compared
/// as bytes. Permits go from 1 to [`MAX_PERMITS`] (100,000). Both are checked when the semaphore is used,
/// before anything is sent to the database; [`check`](Semaphore::check) tells at once.
///
/// The number of permits stands in the program, not in the database, and may change from one version
/// of an application to the next. With more permits there are more slots. With fewer nobody is thrown
/// out, and nobody gets a slot until fewer than that many are held. While both versions run, there are
/// never more holders than the larger number. A holder whose lease has ended does not count, and may still
/// [refresh](crate::SemaphoreExt::renew_slot) a slot that nobody else got: after a lowering there can be as many
/// holders more than the smaller number as refresh so, up to the larger number.
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
pub struct Semaphore {
    name: Cow<'static, str>,
    permits: u32,
}

impl Semaphore {
    /// A semaphore with a name that is known when compiling.
    pub const fn from_static(name: &'static str, permits: u32) -> Self {
        Self {
            name: Cow::Borrowed(name),
            permits,
        }
    }

    /// A semaphore with any other name: a `String`, or an application's enum.
    pub fn new(name: impl AsRef<str>, permits: u32) -> Self {
        Self {
            name: Cow::Owned(name.as_ref().to_owned()),
            permits,
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many may hold a slot at the same time.
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// `Ok` when the semaphore can be used.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], [`Error::InvalidPermits`].
    pub fn check(&self) -> Result<(), Error> {
        name::check(NameKind::Semaphore, &self.name)?;
        if (1..=MAX_PERMITS).contains(&self.permits) {
            Ok(())
        } else {
            Err(Error::InvalidPermits {
                semaphore: self.name.to_string(),
                permits: self.permits,
            })
        }
    }

    /// For the column.
    pub(crate) fn permits_i32(&self) -> i32 {
        i32::try_from(self.permits).unwrap_or(i32::MAX)
    }
}

/// The name, so that `&COLLATE` can be given where a name is wanted.
impl AsRef<str> for Semaphore {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} permits)", self.name, self.permits)
    }
}
