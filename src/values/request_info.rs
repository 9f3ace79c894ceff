//! A request of a lock pool or a renewer: what it is for, and how long it waits or is inside.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::texts::{Rounded, counted};
use crate::values::lock_request::locks;
use crate::{ObjectId, Semaphore};

/// A request that has not ended, as returned by [`LockPool::requests`](crate::LockPool::requests) and
/// [`SlotRenewer::requests`](crate::SlotRenewer::requests). Its text is a line for a log:
/// `the object lock "Account:4711": inside for 40 s, made 42 s ago`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestInfo {
    /// What it is for. Its text is that in errors.
    pub subject: RequestSubject,
    /// How long ago the request was made.
    pub age: Duration,
    /// How long ago the request was granted: its closure runs, its transaction ends, or the guard that it returned lives. `None` while
    /// it waits, makes an attempt, or pauses before the next one.
    pub inside_for: Option<Duration>,
}

/// What a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestSubject {
    /// Object locks.
    Objects {
        /// The objects, without duplicates, in the byte order of their ids.
        ids: Arc<[ObjectId]>,
        /// Those among them whose lock is [shared](crate::LockRequest::shared), in the same order.
        shared: Arc<[ObjectId]>,
    },
    /// Slots of a semaphore.
    Slots {
        /// The semaphore.
        semaphore: Semaphore,
        /// How many are requested, all or none.
        permits: u32,
    },
    /// A transaction without locks: `run_transaction`.
    Transaction,
}

impl RequestSubject {
    pub(crate) fn slots(semaphore: &Semaphore, permits: u32) -> Self {
        Self::Slots {
            semaphore: semaphore.clone(),
            permits,
        }
    }
}

impl fmt::Display for RequestInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (subject, age) = (&self.subject, Rounded(self.age));
        match self.inside_for {
            None => write!(f, "{subject}: waits, made {age} ago"),
            Some(inside) => {
                let inside = Rounded(inside);
                write!(f, "{subject}: inside for {inside}, made {age} ago")
            }
        }
    }
}

impl fmt::Display for RequestSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Objects { ids, shared } => f.pad(&locks(ids, shared)),
            Self::Slots { semaphore, permits } => f.pad(&match permits {
                1 => semaphore.slot_resource(),
                _ => semaphore.resource(&counted(*permits, "slot")),
            }),
            Self::Transaction => f.pad("a transaction"),
        }
    }
}
