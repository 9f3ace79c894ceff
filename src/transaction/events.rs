//! Events of transactions for `tracing`, target `diesel_locks::transaction`.

use std::time::Duration;

use crate::transaction::retry::RetryReason;

/// A transaction is restarted after a pause.
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
