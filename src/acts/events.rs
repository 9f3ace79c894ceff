//! Events for `tracing`: those of the page `operation::events` of the documentation.

use std::time::{Duration, Instant};

use crate::values::lock_request::{LockOutcome, Request};
use crate::values::retry_policy::RetryReason;
use crate::{Error, Semaphore};

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

pub(crate) fn record_locks(request: &Request, outcome: Result<LockOutcome, &Error>) {
    let waited = request.elapsed();
    match outcome {
        Ok(LockOutcome::Acquired) => tracing::debug!(
            target: "diesel_locks::object_lock",
            outcome = "granted",
            ids = %request.event_ids(),
            ?waited,
            waited_us = micros(waited),
            "object lock acquired"
        ),
        Ok(LockOutcome::Unavailable) | Err(Error::Unavailable { .. }) => tracing::debug!(
            target: "diesel_locks::object_lock",
            outcome = "refused",
            ids = %request.event_ids(),
            "object lock not acquired: already held"
        ),
        #[cfg(feature = "_pool")]
        Err(Error::Stopped { .. }) => tracing::debug!(
            target: "diesel_locks::object_lock",
            outcome = "stopped",
            ids = %request.event_ids(),
            ?waited,
            waited_us = micros(waited),
            "wait for an object lock stopped"
        ),
        Err(error) if error.is_timeout() => tracing::warn!(
            target: "diesel_locks::object_lock",
            outcome = "timed_out",
            ids = %request.event_ids(),
            ?waited,
            waited_us = micros(waited),
            "object lock timed out"
        ),
        Err(error) => tracing::warn!(
            target: "diesel_locks::object_lock",
            outcome = "failed",
            ids = %request.event_ids(),
            %error,
            "object lock failed"
        ),
    }
}

pub(crate) fn record_locks_released(request: &Request, held: Duration) {
    tracing::debug!(
        target: "diesel_locks::object_lock",
        outcome = "released",
        ids = %request.event_ids(),
        ?held,
        held_us = micros(held),
        "object lock released"
    );
}

/// Records the outcome of a request for a slot: its number if it is leased.
pub(crate) fn record_slot(
    semaphore: &Semaphore,
    started: Instant,
    outcome: Result<Option<u32>, &Error>,
) {
    let (semaphore, waited) = (semaphore.name(), started.elapsed());
    match outcome {
        Ok(number) => tracing::debug!(
            target: "diesel_locks::slot",
            outcome = "granted",
            semaphore,
            number,
            ?waited,
            waited_us = micros(waited),
            "slot acquired"
        ),
        Err(Error::Unavailable { .. }) => tracing::debug!(
            target: "diesel_locks::slot",
            outcome = "refused",
            semaphore,
            "slot not acquired: all are held"
        ),
        #[cfg(feature = "_pool")]
        Err(Error::Stopped { .. }) => tracing::debug!(
            target: "diesel_locks::slot",
            outcome = "stopped",
            semaphore,
            ?waited,
            waited_us = micros(waited),
            "wait for a slot stopped"
        ),
        Err(error) if error.is_timeout() => tracing::warn!(
            target: "diesel_locks::slot",
            outcome = "timed_out",
            semaphore,
            ?waited,
            waited_us = micros(waited),
            "slot timed out"
        ),
        Err(error) => tracing::warn!(
            target: "diesel_locks::slot",
            outcome = "failed",
            semaphore,
            %error,
            "slot failed"
        ),
    }
}

pub(crate) fn record_slot_released(semaphore: &str, number: Option<u32>, held: Duration) {
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

#[cfg(feature = "_pool")]
pub(crate) fn record_slot_lost(semaphore: &str, number: u32, held: Duration) {
    tracing::warn!(
        target: "diesel_locks::slot",
        outcome = "lost",
        semaphore,
        number,
        ?held,
        held_us = micros(held),
        "slot lost: its lease was not renewed, or it was released by force"
    );
}

#[cfg(feature = "_pool")]
pub(crate) fn record_slot_stalled(semaphore: &str, number: u32, pause: Duration) {
    tracing::warn!(
        target: "diesel_locks::slot",
        outcome = "stalled",
        semaphore,
        number,
        ?pause,
        "slot not renewed: its holder has not reported progress"
    );
}

pub(crate) fn record_retry(reason: RetryReason, attempt: u32, pause: Duration) {
    tracing::warn!(
        target: "diesel_locks::transaction",
        outcome = "retried",
        %reason,
        attempt,
        ?pause,
        "transaction aborted by the database, retrying"
    );
}
