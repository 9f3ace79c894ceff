//! Which errors of the database `run_as_leader` and `run_on_timer` retry, and when.

use std::time::Duration;

use crate::{Error, backoff};

/// The pauses after errors that follow each other.
const MIN_PAUSE: Duration = Duration::from_millis(200);
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// The number of errors since the last success.
#[derive(Default)]
pub(super) struct Failures(u32);

impl Failures {
    pub(super) fn reset(&mut self) {
        self.0 = 0;
    }

    /// Logs an error that may pass, and returns the pause until the next attempt. Returns other errors.
    pub(super) fn pause_after(&mut self, error: Error, semaphore: &str) -> Result<Duration, Error> {
        if !may_pass(&error) {
            return Err(error);
        }
        let pause = backoff::jittered(backoff::growing(self.0, MIN_PAUSE, MAX_PAUSE));
        self.0 = self.0.saturating_add(1);
        let failures = self.0;
        tracing::warn!(semaphore, failures, ?pause, %error, "no slot requested: error; retrying");
        Ok(pause)
    }
}

/// Whether the same request may succeed later although neither the program nor the database's schema changes.
fn may_pass(error: &Error) -> bool {
    error.is_busy()
        || error.is_retryable()
        || matches!(
            error,
            Error::Database(_)
                | Error::ReadOnly { .. }
                | Error::OutcomeUnknown { .. }
                | Error::TransactionAborted { .. }
                | Error::SlotLost { .. }
                | Error::LockTableFull { .. }
        )
}

#[cfg(all(test, feature = "_async_pool"))]
mod tests {
    use super::*;
    use crate::error::AsyncPoolError;

    #[test]
    fn error_of_a_pool_is_retried_unless_the_pool_is_closed() {
        let mut failures = Failures::default();
        let (waited, step) = (None, None);
        let timed_out = AsyncPoolError::TimedOut { waited, step };
        for error in [timed_out, AsyncPoolError::Hook("no answer".into())] {
            assert!(failures.pause_after(error.into(), "leader").is_ok());
        }
        for error in [
            AsyncPoolError::Closed,
            AsyncPoolError::Other("no runtime".into()),
        ] {
            let result = failures.pause_after(error.into(), "leader");
            assert!(matches!(result, Err(Error::AsyncPool(_))), "{result:?}");
        }
    }
}
