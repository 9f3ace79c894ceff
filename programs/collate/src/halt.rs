//! Why a piece of work came to its end early.

use std::io;

use crate::report::Noticed;

#[derive(Debug)]
pub(crate) enum Halt {
    /// The node is to end.
    Stopped,
    /// The slot or the list is not ours any more.
    Stale(Noticed),
    Failed(anyhow::Error),
}

impl From<diesel_locks::Error> for Halt {
    fn from(error: diesel_locks::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<diesel::result::Error> for Halt {
    fn from(error: diesel::result::Error) -> Self {
        Self::from(diesel_locks::Error::from(error))
    }
}

impl From<io::Error> for Halt {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.into())
    }
}
