//! How it went.

use serde::{Deserialize, Serialize};

/// How an operation ended, as far as the worker knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// All of it took place: the database has confirmed it.
    Done,
    /// None of it took place: somebody else held what was asked for.
    Refused,
    /// None of it took place: it was rolled back by intent.
    RolledBack,
    /// It failed.
    Failed {
        /// In which way.
        kind: ErrorKind,
        /// The error's text.
        text: String,
    },
}

/// The database's answer when a slot was renewed or released.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Release {
    /// The lease had not ended.
    InTime,
    /// The lease had ended, and nobody else had the slot.
    Expired,
    /// The slot was another's by then.
    Lost,
    /// It could not be asked, or said something else.
    Failed {
        /// In which way.
        kind: ErrorKind,
        /// The error's text.
        text: String,
    },
}

/// The kinds of errors that a worker can tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// Another holds it, and the request was not to wait.
    Held,
    /// It was not free within the time asked for.
    TimedOut,
    /// A limit of the session ended a statement.
    StatementTimedOut,
    /// The victim of a deadlock.
    Deadlock,
    /// Can't be put in order with others.
    Serialization,
    /// The transaction had ended, or could not go on, before the end of its closure.
    Aborted,
    /// The slot belongs to another by now.
    SlotLost,
    /// A write at a resource was refused for its fence.
    Fenced,
    /// The pool had no connection to give.
    Pool,
    /// The connection is gone, or the server takes no writes any more. This crate has sent no COMMIT.
    Connection,
    /// The connection is gone, or COMMIT failed. Whether it took place is not known.
    OutcomeUnknown,
    /// The worker has dropped its future. Whether a COMMIT that was on its way took place is not known.
    Dropped,
    /// Any other.
    Other,
}

impl ErrorKind {
    /// Whether an operation that failed so may have taken place all the same.
    pub fn may_have_happened(self) -> bool {
        matches!(self, Self::OutcomeUnknown | Self::Dropped | Self::Other)
    }
}
