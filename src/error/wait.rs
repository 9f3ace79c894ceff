//! How long a request waits.

use std::time::{Duration, Instant};

use crate::error::definition::Error;
use crate::error::limits::LONGEST_WAIT;

/// How long to wait for a lock or a slot that is held. If a request does not say, the method decides:
/// [`LockRequest::wait`](crate::LockRequest::wait). [Blocking](crate::operation::blocking) lists all methods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias("timeout", "lock_timeout", "NOWAIT", "block", "try_lock"))]
pub enum Wait {
    /// Waits until the lock or a slot is free.
    ///
    /// Limits of the session end the wait for a lock with [`Error::LockTimeout`](crate::Error::LockTimeout): `lock_timeout` and
    /// `statement_timeout` on PostgreSQL, `max_execution_time` on MySQL, `max_statement_time` on MariaDB. A wait for a slot polls: a
    /// limit of the session applies to each query. On SQLite a connection that writes does not end it, however long that takes.
    ///
    /// In an open transaction on MySQL and MariaDB, `innodb_lock_wait_timeout` (50 s by default) ends the wait too: the transaction
    /// may be part of a deadlock that InnoDB does not detect, through a table that a third session wants to alter, or with
    /// `innodb_deadlock_detect = OFF`. A method that begins its own transaction has done nothing yet, and begins again.
    ///
    /// In an open transaction use [`Wait::AtMost`] for slots: a wait for a slot polls, so that no server detects a deadlock in which
    /// it takes part.
    #[default]
    Forever,
    /// Waits for at most this time, then returns [`Error::LockTimeout`](crate::Error::LockTimeout). A wait for a lock may end
    /// late: by 250 ms and 1 ms for each object; on MySQL by 1 s if another session inserts its row at the same moment. A wait for a
    /// slot ends after one more query; for [several permits](crate::LeaseOptions::permits) after one more for each permit, or 2 s
    /// (0.5 s on a pool of diesel-async).
    ///
    /// The time is rounded up to milliseconds, and at most [`LONGEST_WAIT`](crate::limits::LONGEST_WAIT), or the error is
    /// [`Error::InvalidWait`](crate::Error::InvalidWait). A free lock or slot is always acquired, even with a zero time-out. During
    /// a wait for a lock it replaces the limits of the session that [`Wait::Forever`] lists. On SQLite the last attempt to lease a
    /// free slot may end later: it waits for another writer for up to 5 s, or `busy_timeout` if that is longer.
    ///
    /// On a connection of diesel-async the wait also ends if the server sends nothing for 2 s after the limit, and 1 ms for each
    /// object. The connection is then lost, as if the future had been dropped (`operation::dropped_futures`). A connection of Diesel
    /// itself waits for the answer: set time-outs for its network.
    AtMost(Duration),
    /// Does not wait. Returns [`Error::Unavailable`](crate::Error::Unavailable) if the lock or all slots are held: for callers that
    /// return the error. The methods with `try_` return `None`, for callers that go on without the lock.
    No,
}

/// [`Wait::AtMost`].
impl From<Duration> for Wait {
    fn from(limit: Duration) -> Self {
        Self::AtMost(limit)
    }
}

impl Wait {
    pub(crate) fn limit(self) -> Option<Duration> {
        match self {
            Self::AtMost(limit) => Some(limit),
            Self::Forever | Self::No => None,
        }
    }

    pub(crate) fn validate(self) -> Result<(), Error> {
        match self.limit() {
            Some(requested) if requested > LONGEST_WAIT => Err(Error::InvalidWait { requested }),
            _ => Ok(()),
        }
    }

    /// The remaining time of a wait that started then; `None` without a limit.
    pub(crate) fn remaining(self, started: Instant) -> Option<Duration> {
        match self {
            Self::Forever => None,
            Self::AtMost(limit) => Some(limit.saturating_sub(started.elapsed())),
            Self::No => Some(Duration::ZERO),
        }
    }

    /// The error of a wait that started then and has timed out.
    pub(crate) fn timed_out(
        self,
        started: Instant,
        resource: String,
        source: Option<diesel::result::Error>,
    ) -> Error {
        Error::LockTimeout {
            resource,
            waited: started.elapsed(),
            limit: self.limit(),
            source,
        }
    }
}
