//! The limits of requests.

use std::time::Duration;

/// The maximum length of an object's id, of a semaphore's or sequence's name, of a sequence's key, and of a holder's text and data,
/// in characters (Unicode scalar values).
pub const MAX_NAME_CHARS: usize = 255;

/// The maximum number of permits of a semaphore.
pub const MAX_PERMITS: u32 = 100_000;

/// The maximum number of permits of one request ([`LeaseOptions::permits`](crate::LeaseOptions::permits)).
pub const MAX_PERMITS_AT_ONCE: u32 = 100;

/// The maximum number of objects in one request with [`Retention::Kept`](crate::Retention::Kept), and of its shared locks. On
/// PostgreSQL, objects of a transient request that already have a kept row count too.
pub const MAX_KEPT_IDS: usize = 1000;

/// The largest limit of a list ([`ListOptions`](crate::ListOptions)). Without a limit, the holders of one semaphore are all listed.
pub const MAX_LISTED: u32 = 10_000;

/// The longest duration for [`Wait::AtMost`](crate::Wait::AtMost): about 24.8 days, PostgreSQL's limit for `statement_timeout`.
pub const LONGEST_WAIT: Duration = Duration::from_millis(i32::MAX.unsigned_abs() as u64);

/// The shortest lease.
pub const SHORTEST_LEASE: Duration = Duration::from_millis(1);

/// The longest lease, and the longest period of a job on a timer: 36,525 days, about 100 years.
pub const LONGEST_LEASE: Duration = Duration::from_secs(36_525 * 24 * 60 * 60);

/// The shortest period of a job on a timer.
#[cfg(feature = "_pool")]
pub const SHORTEST_PERIOD: Duration = Duration::from_millis(100);

/// The shortest poll interval of a [`SlotRenewer`](crate::SlotRenewer).
#[cfg(feature = "_pool")]
pub const SHORTEST_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The longest poll interval of a [`SlotRenewer`](crate::SlotRenewer): a day.
#[cfg(feature = "_pool")]
pub const LONGEST_POLL_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// The number of ids that an error names.
pub(crate) const NAMED_IDS: usize = 10;

/// The number of rows that a list has if its options do not say.
pub(crate) const DEFAULT_LISTED: u32 = 100;

/// The first number that a sequence can start at; the last is `i64::MAX`.
pub(crate) const FIRST_NUMBER: i64 = 1;

/// Up to this number slots are read one after the other. Above it the largest fence is found in an index, and waiters do
/// not read who holds the slots.
pub(crate) const FEW_SLOTS: i32 = 100;
