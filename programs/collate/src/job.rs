//! A node's job: one line of JSON on its standard input, so that a password in the database URL is in no list of
//! processes.

use std::path::PathBuf;
use std::time::Duration;

use diesel_locks::prelude::*;
use serde::{Deserialize, Serialize};

/// The semaphore of the process that queues.
pub(crate) const QUEUE: Semaphore = Semaphore::from_static("queue-logs", 1);

/// The semaphore of the workers. Its number of permits is an option.
pub(crate) const COLLATE: &str = "collate-logs";

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Job {
    pub(crate) database_url: String,
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
