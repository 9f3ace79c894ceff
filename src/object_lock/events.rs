//! `tracing` events with the target `diesel_locks`.

use std::time::Duration;

use crate::Error;
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
    match outcome {
        Ok(LockOutcome::Acquired) => {
            tracing::debug!(ids = %request.resource(), waited = ?request.elapsed(), "object lock acquired");
        }
        Ok(LockOutcome::Unavailable) => {
            tracing::debug!(ids = %request.resource(), "object lock not acquired: already held");
        }
        Err(error) if error.is_timeout() => {
            tracing::warn!(ids = %request.resource(), waited = ?request.elapsed(), "object lock timed out");
        }
        Err(error) => {
            tracing::warn!(ids = %request.resource(), %error, "object lock failed");
        }
    }
}

/// Records that the transaction or savepoint that held the locks has ended.
pub(crate) fn record_released(request: &Request, held: Duration) {
    tracing::debug!(ids = %request.resource(), ?held, "object lock released");
}
