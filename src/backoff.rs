//! How long those who ask again and again pause, never two in step.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Half to all of `longest`, never the same for all who wait.
pub(crate) fn jittered(longest: Duration) -> Duration {
    let half = u64::try_from(longest.as_micros() / 2).unwrap_or(u64::MAX / 4);
    // A new state has new random keys each time.
    let random = RandomState::new().hash_one(());
    Duration::from_micros(half + random % (half + 1))
}

/// `first`, then twice as long each time, up to `last`.
pub(crate) fn growing(attempt: u32, first: Duration, last: Duration) -> Duration {
    first.saturating_mul(1 << attempt.min(16)).min(last)
}

/// One of the first `count` numbers from 0; 0 when there is none to choose.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn random_below(count: usize) -> usize {
    let random = RandomState::new().hash_one(());
    usize::try_from(random % count.max(1) as u64).unwrap_or(0)
}
