//! What is told to `tracing`, target `diesel_locks`.

use std::time::Duration;

use crate::Error;
use crate::engine::Grant;
use crate::object_lock::acquire::Request;
use crate::transaction::retry::RetryReason;

/// An event for the outcome of a request, which is passed on.
pub(crate) fn record_outcome(
    request: &Request,
    outcome: Result<Grant, Error>,
) -> Result<Grant, Error> {
    match &outcome {
        Ok(Grant::Locked) => {
            tracing::debug!(ids = %request.resource(), waited = ?request.elapsed(), "object lock acquired");
        }
        Ok(Grant::Held) => {
            tracing::debug!(ids = %request.resource(), "object lock refused: held by another");
        }
        Err(error) if error.is_timeout() => {
            tracing::warn!(ids = %request.resource(), waited = ?request.elapsed(), "object lock timed out");
        }
        Err(error) => {
            tracing::warn!(ids = %request.resource(), %error, "object lock failed");
        }
    }
    outcome
}

/// The transaction that held the locks has ended, or its savepoint.
pub(crate) fn record_released(request: &Request, held: Duration) {
    tracing::debug!(ids = %request.resource(), ?held, "object lock freed");
}

/// A transaction is begun again after a pause.
pub(crate) fn record_retry(reason: RetryReason, attempt: u32, pause: Duration) {
    tracing::warn!(%reason, attempt, ?pause, "transaction given up by the database, to be tried again");
}
