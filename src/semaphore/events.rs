//! Events of slots for `tracing`, target `diesel_locks::slot`.

use std::time::{Duration, Instant};

use crate::events::micros;
use crate::{Error, Semaphore, Slot};

/// A request for a slot.
pub(super) struct SlotRequest<'a> {
    semaphore: &'a str,
    started: Instant,
}

impl<'a> SlotRequest<'a> {
    /// The request begins now.
    pub(super) fn new(semaphore: &'a Semaphore) -> Self {
        Self {
            semaphore: semaphore.name(),
            started: Instant::now(),
        }
    }

    /// Records that a slot was acquired, with its number if it has a lease.
    pub(super) fn record_granted(&self, number: Option<u32>) {
        let waited = self.started.elapsed();
        tracing::debug!(
            target: "diesel_locks::slot",
            outcome = "granted",
            semaphore = self.semaphore,
            number,
            ?waited,
            waited_us = micros(waited),
            "slot acquired"
        );
    }

    /// Records the outcome of a request that waits for a leased slot, and returns it.
    pub(super) fn record_outcome(&self, outcome: Result<Slot, Error>) -> Result<Slot, Error> {
        match &outcome {
            Ok(slot) => self.record_granted(Some(slot.number)),
            Err(error) => self.record_error(error),
        }
        outcome
    }

    /// Records that no slot was free, and the request did not wait.
    pub(super) fn record_refused(&self) {
        tracing::debug!(
            target: "diesel_locks::slot",
            outcome = "refused",
            semaphore = self.semaphore,
            "slot not acquired: all are held"
        );
    }

    /// Records the error with which the request ended.
    pub(super) fn record_error(&self, error: &Error) {
        let waited = self.started.elapsed();
        match error {
            Error::Unavailable { .. } => self.record_refused(),
            #[cfg(feature = "_pool")]
            Error::Stopped { .. } => tracing::debug!(
                target: "diesel_locks::slot",
                outcome = "stopped",
                semaphore = self.semaphore,
                ?waited,
                waited_us = micros(waited),
                "wait for a slot stopped"
            ),
            error if error.is_timeout() => tracing::warn!(
                target: "diesel_locks::slot",
                outcome = "timed_out",
                semaphore = self.semaphore,
                ?waited,
                waited_us = micros(waited),
                "slot timed out"
            ),
            error => tracing::warn!(
                target: "diesel_locks::slot",
                outcome = "failed",
                semaphore = self.semaphore,
                %error,
                "slot failed"
            ),
        }
    }
}

/// Records that a slot was released after this time: with its number if it has a lease.
pub(super) fn record_released(semaphore: &str, number: Option<u32>, held: Duration) {
    tracing::debug!(
        target: "diesel_locks::slot",
        outcome = "released",
        semaphore,
        number,
        ?held,
        held_us = micros(held),
        "slot released"
    );
}

/// Records that a guard has lost its slot.
#[cfg(feature = "_pool")]
pub(super) fn record_lost(semaphore: &str, number: u32, held: Duration) {
    tracing::warn!(
        target: "diesel_locks::slot",
        outcome = "lost",
        semaphore,
        number,
        ?held,
        held_us = micros(held),
        "slot lost: its lease was not renewed in time, or it was released by force"
    );
}
