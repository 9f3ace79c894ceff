//! Tasks of a runtime that may be shut down.

use std::future::pending;

use tokio::task::JoinError;

/// Waits for the end of a task that nobody aborts. If it is cancelled all the same, its runtime is being shut down, and
/// drops the caller too.
pub(crate) async fn joined<T>(
    task: impl Future<Output = Result<T, JoinError>>,
) -> Result<T, JoinError> {
    match task.await {
        Err(error) if error.is_cancelled() => pending().await,
        joined => joined,
    }
}
