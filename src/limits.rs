//! Limits of what can be asked for.

use std::time::Duration;

/// The most permits a semaphore can have.
pub const MAX_PERMITS: u32 = 100_000;

/// The most objects that one request can lock with [`Retention::Kept`](crate::Retention::Kept), or whose rows are kept
/// on PostgreSQL: each takes a place in the server's table of locks, which has 6400 by default.
pub const MAX_KEPT_IDS: usize = 1000;

/// The ids that an error names.
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
