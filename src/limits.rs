//! Limits of requests.

use std::time::Duration;

/// The maximum number of permits of a semaphore.
pub const MAX_PERMITS: u32 = 100_000;

/// The maximum number of objects that one request can lock with [`Retention::Kept`](crate::Retention::Kept), or, on
/// PostgreSQL, that have kept rows. Each takes an entry in the server's lock table, which has 6400 by default.
pub const MAX_KEPT_IDS: usize = 1000;

/// The number of ids that an error names.
pub(crate) const NAMED_IDS: usize = 10;

/// The first number that a sequence can start at; the last is `i64::MAX`.
pub(crate) const FIRST_NUMBER: i64 = 1;

/// The shortest lease.
pub(crate) const SHORTEST_LEASE: Duration = Duration::from_millis(1);

/// The longest lease.
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(36_525 * 24 * 60 * 60);

/// Up to so many slots are read one after the other; above that number the largest fence is found in an index.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) const FEW_SLOTS: i32 = 100;
