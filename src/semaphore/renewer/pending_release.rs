//! Releases that the renewer's thread has still to do.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::Slot;
use crate::activity::Active;
use crate::semaphore::guard::ReleaseKind;

/// How long a release is retried at most.
const MAX_RETRY_TIME: Duration = Duration::from_secs(60);

/// A slot that is to be released.
pub(super) struct PendingRelease {
    pub(super) slot: Slot,
    pub(super) kind: ReleaseKind,
    /// The end of the lease, which needs no release.
    pub(super) deadline: Instant,
    /// Dropped when the slot is released, or the lease has ended.
    _done: Sender<()>,
    /// A shutdown waits for it.
    _active: Active,
}

impl PendingRelease {
    /// Releases the slot before its lease ends after `remaining`.
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
            deadline: Instant::now() + remaining.min(MAX_RETRY_TIME),
            _done: done,
            _active: active,
        };
        (pending, receiver)
    }
}
