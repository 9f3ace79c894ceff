//! The share of other processes in the releases of a name.
//!
//! Their waiters poll every 50 to 100 ms, as each of the `n` waiters here would without a queue: what is released would stay
//! free for that time divided by `n`. Some releases are yielded to them, each for so long.

use std::time::{Duration, Instant};

use crate::queue::MAX_POLL_INTERVAL;
use crate::rt::backoff;

pub(crate) const RELEASES_PER_YIELD: u32 = 3;
/// At most one part in this many of the time is yielded.
const YIELD_TIME_DIVISOR: u32 = 20;

#[derive(Clone, Copy, Default)]
pub(crate) struct FairShare {
    releases: u32,
    next_yield: Option<Instant>,
}

impl FairShare {
    /// There is a release, and so many waiters here. Returns how long it is yielded to other processes, if it is.
    pub(crate) fn yields(&mut self, now: Instant, waiting: usize) -> Option<Duration> {
        self.releases = self.releases.saturating_add(1);
        if self.releases < RELEASES_PER_YIELD || self.next_yield.is_some_and(|time| now < time) {
            return None;
        }
        let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
        let time = backoff::jittered(MAX_POLL_INTERVAL) / waiting.max(1);
        self.releases = 0;
        self.next_yield = Some(now + time * YIELD_TIME_DIVISOR);
        Some(time)
    }

    /// Yields nothing for an hour.
    #[cfg(test)]
    pub(crate) fn never() -> Self {
        let hour = Duration::from_secs(3600);
        Self {
            releases: 0,
            next_yield: Some(Instant::now() + hour),
        }
    }
}
