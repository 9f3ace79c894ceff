//! The time limit of a wait for the write lock.

use std::time::{Duration, Instant};

use crate::object_lock::acquire::Request;
use crate::{Error, Wait};

/// How long to wait for other writers.
pub(super) enum Deadline<'a> {
    /// The limit of a request for object locks.
    OfRequest(&'a Request),
    /// The limit of a change that locks no objects.
    Of { wait: Wait, started: Instant },
}

impl Deadline<'_> {
    pub(super) fn new(wait: Wait) -> Self {
        Self::Of {
            wait,
            started: Instant::now(),
        }
    }

    pub(super) fn wait(&self) -> Wait {
        match self {
            Self::OfRequest(request) => request.wait,
            Self::Of { wait, .. } => *wait,
        }
    }

    /// The remaining time; `None` without a limit.
    pub(super) fn remaining(&self) -> Option<Duration> {
        match self {
            Self::OfRequest(request) => request.remaining(),
            Self::Of { wait, started } => match wait {
                Wait::Forever => None,
                Wait::AtMost(limit) => Some(limit.saturating_sub(started.elapsed())),
                Wait::No => Some(Duration::ZERO),
            },
        }
    }

    /// The name of the lock for errors.
    pub(super) fn resource(&self) -> String {
        match self {
            Self::OfRequest(request) => request.resource(),
            Self::Of { .. } => "the write lock of the database".to_owned(),
        }
    }

    pub(super) fn timed_out(&self, source: Option<diesel::result::Error>) -> Error {
        match self {
            Self::OfRequest(request) => request.timed_out(source),
            Self::Of { wait, started } => Error::LockTimeout {
                resource: self.resource(),
                limit: match wait {
                    Wait::AtMost(limit) => Some(*limit),
                    Wait::Forever | Wait::No => None,
                },
                waited: started.elapsed(),
                source,
            },
        }
    }
}
