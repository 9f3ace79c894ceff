//! The job of a worker process.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::engine::Engine;
use crate::sabotage::Sabotage;

/// The job of a worker process, a line of JSON on its standard input. It works until that ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) engine: Engine,
    pub(crate) cluster: Option<Cluster>,
    pub(crate) url: String,
    /// Counted over the whole run.
    pub(crate) process: u32,
    /// Which worker it is.
    pub(crate) worker: u32,
    pub(crate) threads: u32,
    /// Threads that use connections of diesel-async.
    pub(crate) async_threads: u32,
    /// Whether these drop futures.
    pub(crate) drops: bool,
    pub(crate) seed: u64,
    pub(crate) sabotage: Option<Sabotage>,
    /// Where histories are written.
    pub(crate) directory: PathBuf,
}
