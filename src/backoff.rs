//! Pauses between attempts, with jitter.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// A random duration between half of `longest` and `longest`.
pub(crate) fn jittered(longest: Duration) -> Duration {
    let half = u64::try_from(longest.as_micros() / 2).unwrap_or(u64::MAX / 4);
    // A new state has new random keys each time.
    let random = RandomState::new().hash_one(());
    Duration::from_micros(half + random % (half + 1))
}

/// `first`, doubled with each attempt, at most `last`.
pub(crate) fn growing(attempt: u32, first: Duration, last: Duration) -> Duration {
    first.saturating_mul(1 << attempt.min(16)).min(last)
}

/// A random number below `count`; 0 if `count` is 0.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn random_below(count: usize) -> usize {
    let random = RandomState::new().hash_one(());
    usize::try_from(random % count.max(1) as u64).unwrap_or(0)
}
