//! The monotonic clock, which all processes of the machine share.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A time that can be sent to another process, unlike Rust's `Instant`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub(crate) struct Moment(Duration);

impl Moment {
    pub(crate) fn now() -> Self {
        // The clock is not negative, so the conversion can't fail.
        Self(
            clock_gettime(ClockId::Monotonic)
                .try_into()
                .unwrap_or_default(),
        )
    }

    pub(crate) fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    /// The time since `earlier`; zero if that is later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(test)]
impl Moment {
    pub(crate) fn at_ms(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }
}
