//! A checked request, and the time that is left for it.

use std::time::{Duration, Instant};

use crate::limits::{MAX_KEPT_IDS, NAMED_IDS};
use crate::{Error, LockRequest, ObjectId, Retention, Wait};

/// An [`LockRequest`] with usable ids, in the one order in which everybody locks them, without
/// duplicates.
#[derive(Debug)]
pub struct Request {
    pub(crate) ids: Vec<ObjectId>,
    pub(crate) retention: Retention,
    pub(crate) wait: Wait,
    started: Instant,
}

impl Request {
    pub(crate) fn new(lock: LockRequest) -> Result<Self, Error> {
        let LockRequest {
            mut ids,
            wait,
            retention,
        } = lock;
        for id in &ids {
            id.validate()?;
        }
        if let Wait::AtMost(requested) = wait
            && requested > Wait::LONGEST
        {
            return Err(Error::InvalidWait { requested });
        }
        // Order of bytes, whatever the database's collation: every process sorts alike.
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

    pub(crate) fn nowait(mut self) -> Self {
        self.wait = Wait::No;
        self
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.retention == Retention::Kept
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// What is left of the time asked for; `None` without a limit.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        match self.wait {
            Wait::Forever => None,
            Wait::AtMost(limit) => Some(limit.saturating_sub(self.elapsed())),
            Wait::No => Some(Duration::ZERO),
        }
    }

    /// [`remaining`](Self::remaining) in milliseconds, rounded up so that nobody gives up early. Zero, which means
    /// "no limit" to all servers, is when the time is up: then nothing may wait any more, but what is free
    /// is had, for a statement takes time even if it does not wait.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) fn remaining_millis(&self) -> Option<i32> {
        self.remaining().map(|left| {
            let millis = left.as_nanos().div_ceil(1_000_000);
            i32::try_from(millis).unwrap_or(i32::MAX)
        })
    }

    /// Always so when it is not to wait, never when for ever.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) fn is_expired(&self) -> bool {
        self.remaining().is_some_and(|left| left.is_zero())
    }

    /// The ids as text, for errors and events; the first of many.
    pub(crate) fn resource(&self) -> String {
        let named = self.ids.iter().take(NAMED_IDS).map(ObjectId::as_str);
        let named = named.collect::<Vec<_>>().join(", ");
        match self.ids.len().saturating_sub(NAMED_IDS) {
            0 => named,
            more => format!("{named} and {more} more"),
        }
    }

    pub(crate) fn timed_out(&self, source: Option<diesel::result::Error>) -> Error {
        Error::LockTimeout {
            resource: self.resource(),
            waited: self.elapsed(),
            limit: match self.wait {
                Wait::AtMost(limit) => Some(limit),
                Wait::No | Wait::Forever => None,
            },
            source,
        }
    }
}
