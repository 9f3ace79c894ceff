//! The limits of requests.
//!
//! Others are constants of their types: [`LeaseOptions::SHORTEST`](crate::LeaseOptions::SHORTEST),
//! [`LeaseOptions::LONGEST`](crate::LeaseOptions::LONGEST), [`Wait::LONGEST`](crate::Wait::LONGEST),
//! [`ListOptions::MAX_LIMIT`](crate::ListOptions::MAX_LIMIT).

use std::time::Duration;

/// The maximum length of an object's id, in characters (Unicode scalar values).
pub const MAX_ID_CHARS: usize = 255;

/// The maximum length of a semaphore's or sequence's name, of a sequence's key, and of a holder's text, in characters
/// (Unicode scalar values).
pub const MAX_NAME_CHARS: usize = 255;

/// The maximum number of permits of a semaphore.
pub const MAX_PERMITS: u32 = 100_000;

/// The maximum number of objects in one request with [`Retention::Kept`](crate::Retention::Kept).
///
/// On PostgreSQL, objects of a request with [`Retention::Transient`](crate::Retention::Transient) that already have a kept
/// row count too. Each takes an entry in the server's lock table, which has 6400 entries by default.
pub const MAX_KEPT_IDS: usize = 1000;

/// The most rows that one call lists; public as a constant of [`ListOptions`](crate::ListOptions).
pub(crate) const MAX_LISTED: u32 = 10_000;

/// The durations of a lease; public as constants of [`LeaseOptions`](crate::LeaseOptions).
pub(crate) const SHORTEST_LEASE: Duration = Duration::from_millis(1);
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(36_525 * 24 * 60 * 60);

/// The shortest period of a job on a timer; public as a constant of `TimerJob`.
#[cfg(feature = "_pool")]
pub(crate) const SHORTEST_PERIOD: Duration = Duration::from_millis(100);

/// The durations of a poll interval.
#[cfg(feature = "_pool")]
pub(crate) const SHORTEST_POLL_INTERVAL: Duration = Duration::from_millis(10);
#[cfg(feature = "_pool")]
pub(crate) const LONGEST_POLL_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// The number of ids that an error names.
pub(crate) const NAMED_IDS: usize = 10;

/// The first number that a sequence can start at; the last is `i64::MAX`.
pub(crate) const FIRST_NUMBER: i64 = 1;

/// Up to this number slots are read one after the other. Above it the largest fence is found in an index, and waiters do
/// not read who holds the slots.
pub(crate) const FEW_SLOTS: i32 = 100;
