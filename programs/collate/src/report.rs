//! A node's reports to the coordinator: lines of JSON on its standard output.

use serde::{Deserialize, Serialize};

use crate::clock::Moment;

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
