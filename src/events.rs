//! What the events of all primitives have in common.

use std::time::Duration;

/// A duration as the value of a field.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
