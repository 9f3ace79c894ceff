//! Which errors of the database `run_as_leader` and `run_on_timer` retry, and when.

use std::time::Duration;

use crate::{Error, StopToken, backoff};

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

    /// Logs an error that may pass, and waits until the next attempt is due or `stop` is stopped. Returns other errors.
    pub(super) fn back_off(
        &mut self,
        error: Error,
        semaphore: &str,
        stop: &StopToken,
    ) -> Result<(), Error> {
        if !may_pass(&error) {
            return Err(error);
        }
        let pause = backoff::jittered(backoff::growing(self.0, MIN_PAUSE, MAX_PAUSE));
        self.0 = self.0.saturating_add(1);
        let failures = self.0;
        tracing::warn!(semaphore, failures, ?pause, %error, "no slot requested: error; retrying");
        stop.sleep(pause);
        Ok(())
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
