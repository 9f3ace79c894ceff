//! In place of `metrics.rs` without the feature `metrics`.

use std::time::Duration;

use crate::values::retry_policy::RetryReason;

pub(crate) const WAITING: &str = "";
pub(crate) const QUEUED: &str = "";
pub(crate) const INSIDE: &str = "";

#[must_use]
pub(crate) struct Counted;

impl Counted {
    pub(crate) fn new(_: &str, _: Option<&str>) -> Self {
        Self
    }
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
