//! What the coordinator and its nodes tell each other: lines of JSON. Times are those of [`now`].
//!
//! [`now`]: program_support::processes::now

use std::path::PathBuf;
use std::time::Duration;

use diesel_locks::prelude::*;
use program_support::database::Database;
use serde::{Deserialize, Serialize};

/// The semaphore of the process that queues.
pub(crate) const QUEUE: Semaphore = Semaphore::from_static("queue-logs", 1);

/// The number of log files of a list.
pub(crate) const FILES: usize = 10;

/// The semaphore of the workers. Its number of permits is an option.
pub(crate) const COLLATE: &str = "collate-logs";

#[derive(Deserialize, Serialize)]
pub(crate) struct Job {
    pub(crate) database: Database,
    pub(crate) directory: PathBuf,
    /// The number of this node, from 1.
    pub(crate) node: usize,
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
    Left {
        gate: Gate,
        fence: i64,
        at: Duration,
    },
    /// A worker has found that it no longer holds its slot or its list.
    Stale(Noticed),
    /// An error that ends the node.
    Failed(String),
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Held {
    pub(crate) slot: u32,
    pub(crate) fence: i64,
    pub(crate) from: Duration,
    pub(crate) until: Duration,
}

/// Where a stale worker was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) enum Noticed {
    /// During its work, when it renewed.
    Renewing,
    /// At the end of its work, which was refused.
    Committing,
}
