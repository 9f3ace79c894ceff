//! What the coordinator and its nodes tell each other: lines of JSON.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use diesel_locks::prelude::*;
use program_support::database::Database;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// The semaphore of the process that queues.
pub(crate) const QUEUE: Semaphore = Semaphore::from_static("queue-logs", 1);

/// The semaphore of the workers. Its number of permits is an option.
pub(crate) const COLLATE: &str = "collate-logs";

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Job {
    pub(crate) database: Database,
    pub(crate) directory: PathBuf,
    pub(crate) threads: usize,
    pub(crate) permits: u32,
    pub(crate) lease: Duration,
    pub(crate) tick: Duration,
    pub(crate) read_time: Duration,
    /// The number of log files of a list.
    pub(crate) list: usize,
    /// A worker that has lost its slot is stopped when it commits, at the latest.
    pub(crate) fenced: bool,
    /// It is not stopped earlier.
    pub(crate) careless: bool,
    /// The number of this node, from 1.
    pub(crate) node: usize,
}

impl Job {
    pub(crate) fn collate(&self) -> Semaphore {
        Semaphore::new(COLLATE, self.permits)
    }
}

/// One of the two semaphores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub(crate) enum Gate {
    Queue,
    Collate,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Report {
    /// The slot is held at least from one time to another: sent after it was granted or renewed.
    Held(Gate, Held),
    /// The slot is about to be released, or known to be lost.
    Left { gate: Gate, fence: i64, at: Moment },
    /// A worker has found that it no longer holds its slot or its list.
    Stale(Noticed),
    /// An error that ends the node.
    Failed(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Held {
    pub(crate) slot: u32,
    pub(crate) fence: i64,
    pub(crate) from: Moment,
    pub(crate) until: Moment,
}

/// Where a stale worker was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) enum Noticed {
    /// During its work, when it renewed.
    Renewing,
    /// At the end of its work, which was refused.
    Committing,
}

/// A time of the monotonic clock, which all processes of the machine share, unlike Rust's `Instant`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub(crate) struct Moment(Duration);

impl Moment {
    pub(crate) fn now() -> Self {
        // The clock is not negative, so the conversion can't fail.
        Self(
            clock_gettime(ClockId::Monotonic)
                .try_into()
                .unwrap_or_default(),
        )
    }

    pub(crate) fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    /// The time since `earlier`; zero if that is later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(test)]
impl Moment {
    pub(crate) fn at_ms(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }
}

/// Why work ended early.
#[derive(Debug)]
pub(crate) enum StopReason {
    /// The node must end.
    Stopped,
    /// The worker no longer holds the slot or the list.
    Stale(Noticed),
    Failed(anyhow::Error),
}

impl From<diesel_locks::Error> for StopReason {
    fn from(error: diesel_locks::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<diesel::result::Error> for StopReason {
    fn from(error: diesel::result::Error) -> Self {
        Self::from(diesel_locks::Error::from(error))
    }
}

impl From<io::Error> for StopReason {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.into())
    }
}
