//! Events of object locks for `tracing`, target `diesel_locks::object_lock`.

use std::time::Duration;

use crate::Error;
use crate::events::micros;
use crate::object_lock::acquire::Request;
use crate::object_lock::backend::LockOutcome;

/// Records the outcome of a request, and returns it.
pub(crate) fn record_outcome(
    request: &Request,
    outcome: Result<LockOutcome, Error>,
) -> Result<LockOutcome, Error> {
    record(request, outcome.as_ref().copied());
    outcome
}

/// Records the outcome of a request.
pub(crate) fn record(request: &Request, outcome: Result<LockOutcome, &Error>) {
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

/// Records that the transaction or savepoint that held the locks has ended.
pub(crate) fn record_released(request: &Request, held: Duration) {
    tracing::debug!(
        target: "diesel_locks::object_lock",
        outcome = "released",
        ids = %request.event_ids(),
        ?held,
        held_us = micros(held),
        "object lock released"
    );
}
