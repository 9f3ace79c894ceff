//! The time limit of a wait for the write lock.

use std::time::{Duration, Instant};

use crate::object_lock::acquire::Request;
use crate::object_lock::backend::LockOutcome;
use crate::{Error, Wait};

/// How long to wait for other writers.
pub(super) struct Deadline<'a> {
    pub(super) wait: Wait,
    started: Instant,
    /// `None` for a change that locks no objects.
    request: Option<&'a Request>,
}

impl<'a> Deadline<'a> {
    pub(super) fn new(wait: Wait) -> Self {
        Self {
            wait,
            started: Instant::now(),
            request: None,
        }
    }

    pub(super) fn of(request: &'a Request) -> Self {
        Self {
            wait: request.wait,
            started: request.started,
            request: Some(request),
        }
    }

    /// The remaining time; `None` without a limit.
    pub(super) fn remaining(&self) -> Option<Duration> {
        self.wait.remaining(self.started)
    }

    /// The name of the lock for errors.
    pub(super) fn resource(&self) -> String {
        self.request.map_or_else(
            || "the write lock of the database".to_owned(),
            Request::resource,
        )
    }

    /// An error if the lock is not acquired.
    pub(super) fn require(&self, outcome: LockOutcome) -> Result<(), Error> {
        match outcome {
            LockOutcome::Acquired => Ok(()),
            LockOutcome::Unavailable => Err(self.timed_out(None)),
        }
    }

    pub(super) fn timed_out(&self, source: Option<diesel::result::Error>) -> Error {
        self.wait.timed_out(self.started, self.resource(), source)
    }
}
