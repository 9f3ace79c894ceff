//! Releases that are still to be done in the background.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::Slot;
use crate::activity::Active;
use crate::semaphore::guard::ReleaseKind;

/// How long a release is retried at least: a renewal that the database has not answered may extend a lease after its end.
const MIN_RETRY_TIME: Duration = Duration::from_secs(10);

/// How long a release is retried at most. A slot that was not used is retried for as long whatever its lease: the lease that
/// the database has may be longer, up to the end of a timer's tick.
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
        let retried = match kind {
            ReleaseKind::Used => remaining.clamp(MIN_RETRY_TIME, MAX_RETRY_TIME),
            ReleaseKind::Unused => MAX_RETRY_TIME,
        };
        let pending = Self {
            slot,
            kind,
            is_tried: false,
            deadline: Instant::now() + retried,
            _done: done,
            _active: active,
        };
        (pending, receiver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::Activity;

    /// The row of a tick that was granted and not run keeps its lease until the end of the tick.
    #[test]
    fn release_of_an_unused_slot_is_retried_for_a_minute_whatever_its_lease() {
        let second = Duration::from_secs(1);
        for (kind, at_least) in [
            (ReleaseKind::Used, MIN_RETRY_TIME),
            (ReleaseKind::Unused, MAX_RETRY_TIME),
        ] {
            let slot = Slot::from_parts("tick", 1, uuid::Uuid::nil(), 1);
            let before = Instant::now();
            let (pending, _) = PendingRelease::new(slot, kind, second, Activity::default().begin());
            let retried = pending.deadline - before;
            assert!(
                (at_least..at_least + second).contains(&retried),
                "{kind:?}: {retried:?}"
            );
        }
    }
}
