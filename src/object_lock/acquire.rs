//! A validated request and its remaining time.

use std::time::{Duration, Instant};

use crate::limits::{MAX_KEPT_IDS, NAMED_IDS};
#[cfg(feature = "_pool")]
use crate::waiting::Waiting;
use crate::{Error, LockRequest, ObjectId, Retention, Wait};

/// A [`LockRequest`] with valid ids, without duplicates, in the order in which all sessions lock them.
#[derive(Debug)]
pub struct Request {
    pub(crate) ids: Vec<ObjectId>,
    pub(crate) retention: Retention,
    pub(crate) wait: Wait,
    pub(crate) started: Instant,
}

impl Request {
    pub(crate) fn new(lock: LockRequest) -> Result<Self, Error> {
        let LockRequest {
            mut ids,
            wait,
            retention,
        } = lock;
        let wait = wait.unwrap_or_default();
        for id in &ids {
            id.validate()?;
        }
        wait.validate()?;
        // By bytes, whatever the database's collation: every process has the same order.
        ids.sort();
        ids.dedup();
        if retention == Retention::Kept && ids.len() > MAX_KEPT_IDS {
            return Err(Error::TooManyIds {
                ids: ids.len(),
                limit: MAX_KEPT_IDS,
            });
        }
        Ok(Self {
            ids,
            retention,
            wait,
            started: Instant::now(),
        })
    }

    /// The request of a method that does not wait.
    pub(crate) fn without_wait(lock: LockRequest, method: &'static str) -> Result<Self, Error> {
        match lock.wait {
            None | Some(Wait::No) => Self::new(lock.wait(Wait::No)),
            Some(wait @ (Wait::Forever | Wait::AtMost(_))) => {
                Err(Error::ConflictingWait { method, wait })
            }
        }
    }

    /// The wait for the locks, which begins now.
    #[cfg(feature = "_pool")]
    pub(crate) fn waiting(&self) -> Result<Waiting, Error> {
        Waiting::new(self.wait, self.resource())
    }

    /// The same request, which does not wait.
    #[cfg(feature = "_pool")]
    pub(crate) fn attempt(&self) -> Self {
        Self {
            ids: self.ids.clone(),
            retention: self.retention,
            wait: Wait::No,
            started: self.started,
        }
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.retention == Retention::Kept
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// The remaining time to wait; `None` without a limit.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        self.wait.remaining(self.started)
    }

    /// [`remaining`](Self::remaining) in milliseconds, rounded up so that no wait ends early. Zero means that the time
    /// is up, not "no limit" as on the servers: no statement may wait then, but a free lock is still acquired, because a
    /// statement takes time even without waiting.
    #[cfg(any(feature = "_postgres", feature = "_mysql"))]
    pub(crate) fn remaining_millis(&self) -> Option<i32> {
        self.remaining().map(|left| {
            let millis = left.as_nanos().div_ceil(1_000_000);
            i32::try_from(millis).unwrap_or(i32::MAX)
        })
    }

    /// Returns whether the time is up: always with [`Wait::No`], never with [`Wait::Forever`].
    #[cfg(any(feature = "_postgres", feature = "_mysql"))]
    pub(crate) fn is_expired(&self) -> bool {
        self.remaining().is_some_and(|left| left.is_zero())
    }

    /// The locks for errors.
    pub(crate) fn resource(&self) -> String {
        locks(&self.ids)
    }

    /// The ids for events.
    pub(crate) fn event_ids(&self) -> String {
        listed_ids(&self.ids, str::to_owned)
    }

    /// The error of a request that does not wait.
    pub(crate) fn unavailable(&self) -> Error {
        Error::Unavailable {
            resource: self.resource(),
        }
    }

    /// The error of a request in an open transaction that may hold the first `acquired` objects until it ends.
    #[cfg(feature = "_mysql")]
    pub(crate) fn partly_locked(&self, acquired: usize, error: Error) -> Error {
        if acquired == 0 || error.is_retryable() || error.is_transaction_aborted() {
            return error;
        }
        Error::PartlyLocked {
            resource: self.resource(),
            acquired: locks(&self.ids[..acquired]),
            source: Box::new(error),
        }
    }

    pub(crate) fn timed_out(&self, source: Option<diesel::result::Error>) -> Error {
        self.wait.timed_out(self.started, self.resource(), source)
    }
}

/// The locks for errors.
fn locks(ids: &[ObjectId]) -> String {
    let plural = if ids.len() == 1 { "" } else { "s" };
    let ids = listed_ids(ids, |id| format!("{id:?}"));
    format!("the object lock{plural} {ids}")
}

/// The ids; of many, the first ten.
fn listed_ids(ids: &[ObjectId], shown: impl Fn(&str) -> String) -> String {
    let named = ids.iter().take(NAMED_IDS).map(|id| shown(id.as_str()));
    let named = named.collect::<Vec<_>>().join(", ");
    match ids.len().saturating_sub(NAMED_IDS) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
