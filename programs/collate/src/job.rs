//! What the coordinator tells a node: one line of JSON on its standard input, so that a password in the
//! database URL is in no list of processes.

use std::path::PathBuf;
use std::time::Duration;

use diesel_locks::prelude::*;
use serde::{Deserialize, Serialize};

/// Whoever holds its slot queues.
pub(crate) const QUEUE: Semaphore = Semaphore::from_static("queue-logs", 1);

/// The semaphore of those who collate. Its number of permits is an option.
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
    /// Log files of a list.
    pub(crate) list: usize,
    /// Who has lost a slot is stopped, at the latest when he wants to commit.
    pub(crate) fenced: bool,
    /// Not before.
    pub(crate) careless: bool,
    /// Which node this is, from 1.
    pub(crate) node: usize,
}

impl Job {
    pub(crate) fn collate(&self) -> Semaphore {
        Semaphore::new(COLLATE, self.permits)
    }
}
