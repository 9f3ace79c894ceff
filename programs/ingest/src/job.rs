//! A writer's job: one line of JSON on its standard input, so that a password in the database URL is in no list of
//! processes.

use serde::{Deserialize, Serialize};

use crate::source::Source;
use crate::upsert::Locking;

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Job {
    pub(crate) database_url: String,
    pub(crate) source: Source,
    pub(crate) seed: u64,
    pub(crate) repeat: usize,
    pub(crate) locking: Locking,
    pub(crate) threads: usize,
    /// The number of writers, and the index of this one.
    pub(crate) writers: usize,
    pub(crate) writer: usize,
}
