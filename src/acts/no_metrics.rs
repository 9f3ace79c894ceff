//! In place of `metrics.rs` without the feature `metrics`.

use std::time::Duration;

use crate::values::retry_policy::RetryReason;

#[must_use]
pub(crate) struct Counted;

pub(crate) fn waiting(_: Option<&str>) -> Counted {
    Counted
}

pub(crate) fn queued(_: Option<&str>) -> Counted {
    Counted
}

pub(crate) fn inside(_: Option<&str>) -> Counted {
    Counted
}

pub(crate) fn count_request(_: Option<&str>, _: &'static str, _: Duration) {}

pub(crate) fn observe_hold(_: Option<&str>, _: Duration) {}

#[cfg(feature = "_pool")]
pub(crate) fn count_lost(_: &str) {}

#[cfg(feature = "_pool")]
pub(crate) fn count_stalled(_: &str) {}

#[cfg(feature = "_pool")]
pub(crate) fn count_renewal(_: &'static str) {}

pub(crate) fn count_retry(_: RetryReason) {}
