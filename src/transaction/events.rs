//! Events of transactions for `tracing`, target `diesel_locks`.

use std::time::Duration;

use crate::transaction::retry::RetryReason;

/// A transaction is restarted after a pause.
pub(crate) fn record_retry(reason: RetryReason, attempt: u32, pause: Duration) {
    tracing::warn!(%reason, attempt, ?pause, "transaction aborted by the database, retrying");
}
