//! What a node tells the coordinator: lines of JSON on its standard output.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use crate::clock::Moment;

/// Which of the two semaphores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub(crate) enum Gate {
    Queue,
    Collate,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Report {
    /// The slot is held from one moment to another at least: after it was granted or refreshed.
    Held(Gate, Held),
    /// It is about to be released, or known to be lost.
    Left { gate: Gate, fence: i64, at: Moment },
    /// A worker has found that its slot, or its list, is not its own any more.
    Stale(Noticed),
    /// Something that ends the node.
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
    /// In the middle of its work.
    Refreshing,
    /// Its work was done, and was refused.
    Committing,
}

/// One line on standard output; `false` when nobody reads it any more.
pub(crate) fn tell(report: &Report) -> bool {
    serde_json::to_string(report)
        .map_err(io::Error::from)
        .and_then(|line| writeln!(io::stdout(), "{line}"))
        .is_ok()
}
