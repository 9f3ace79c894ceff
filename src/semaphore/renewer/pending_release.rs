//! Releases that are still to be done in the background.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::Slot;
use crate::activity::Active;
use crate::semaphore::guard::ReleaseKind;

/// How long a release is retried at least: a renewal that the database has not answered may extend a lease after its end.
const MIN_RETRY_TIME: Duration = Duration::from_secs(10);

/// How long a release is retried at most.
const MAX_RETRY_TIME: Duration = Duration::from_secs(60);

/// A slot that is to be released.
pub(super) struct PendingRelease {
    pub(super) slot: Slot,
    pub(super) kind: ReleaseKind,
    /// When it is not retried any more.
    pub(super) deadline: Instant,
    /// Whether it was attempted.
    pub(super) is_tried: bool,
    /// Dropped when the slot is released, or the release is given up.
    _done: Sender<()>,
    /// A shutdown waits for it.
    _active: Active,
}

impl PendingRelease {
    /// Releases the slot, whose lease ends after `remaining` unless an unanswered renewal has extended it.
    pub(super) fn new(
        slot: Slot,
        kind: ReleaseKind,
        remaining: Duration,
        active: Active,
    ) -> (Self, Receiver<()>) {
        let (done, receiver) = channel();
        let pending = Self {
            slot,
            kind,
            is_tried: false,
            deadline: Instant::now() + remaining.clamp(MIN_RETRY_TIME, MAX_RETRY_TIME),
            _done: done,
            _active: active,
        };
        (pending, receiver)
    }
}
