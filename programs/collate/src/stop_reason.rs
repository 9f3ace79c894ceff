//! Why work ended early.

use std::io;

use crate::report::Noticed;

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
