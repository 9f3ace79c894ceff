//! The options of a lease: its duration, its holder, and its minimum hold time.

use std::time::Duration;

use crate::Error;
use crate::limits::{LONGEST_LEASE, SHORTEST_LEASE};
use crate::name::{self, NameKind};

/// The options of a lease: its duration, the holder's text, and a minimum hold time.
///
/// The lease begins when the statement that grants the slot runs, by the database's clock. The duration is rounded
/// up to microseconds (SQLite's clock counts milliseconds) and ranges from [`LeaseOptions::SHORTEST`] (1 ms) to
/// [`LeaseOptions::LONGEST`] (100 years). Other durations fail with [`Error::InvalidLease`] before anything is sent to the
/// database.
///
/// Choose a duration that is longer than the longest pause of a healthy holder between two renewals (a GC pause, a
/// slow query, a fail-over), and not longer than other servers can wait after the holder has crashed. A `SlotRenewer`
/// renews all its slots together, three times in the shortest of their leases.
///
/// ```
/// use diesel_locks::LeaseOptions;
/// use std::time::Duration;
///
/// // A job that a timer starts once a minute on each of three servers, whose clocks differ by less than 20 s. A server
/// // that crashes in the job keeps the slot for at most 50 s: another server runs the job a minute later.
/// let lease = LeaseOptions::new(Duration::from_secs(50))
///     .hold_at_least(Duration::from_secs(20))
///     .holder("node-2");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "lease options do nothing until they are passed to a connection"]
#[doc(alias("ttl", "expiry", "ShedLock", "LockConfiguration"))]
pub struct LeaseOptions {
    duration: Duration,
    hold_at_least: Duration,
    holder: Option<String>,
}

impl LeaseOptions {
    /// The shortest lease: 1 ms.
    pub const SHORTEST: Duration = SHORTEST_LEASE;

    /// The longest lease: 36,525 days, about 100 years.
    pub const LONGEST: Duration = LONGEST_LEASE;

    /// Creates options of a lease that expires after `duration` unless it is renewed or released before.
    #[doc(alias("lockAtMostFor", "lock_at_most_for", "ttl"))]
    pub fn new(duration: Duration) -> Self {
        Self {
            duration,
            hold_at_least: Duration::ZERO,
            holder: None,
        }
    }

    /// Sets a text that names the holder in [`held_slots`](crate::InspectExt::held_slots): 0 to
    /// [`MAX_NAME_CHARS`](crate::limits::MAX_NAME_CHARS) (255) characters without NUL.
    ///
    /// The text is informational. Holders are identified by their tokens.
    #[doc(alias("owner", "locked_by", "lockedBy"))]
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = Some(holder.into());
        self
    }

    /// Sets a minimum hold time: the slot stays unavailable for this time after the grant, even if it is released
    /// earlier.
    ///
    /// With a semaphore of one permit, one of all servers whose timers fire within this time runs the job. Choose it longer
    /// than the servers' clocks differ, and shorter than the timer's period. It is at most the lease: longer is
    /// [`Error::InvalidLease`]. A job that fails is not repeated within this time. A server that crashes keeps the slot until
    /// the lease expires: choose a lease that is shorter than the period too, and renew it while the job runs.
    ///
    /// [`force_release_all`](crate::SemaphoreExt::force_release_all) ignores it.
    #[doc(alias("lockAtLeastFor", "lock_at_least_for", "ShedLock", "debounce"))]
    pub fn hold_at_least(mut self, duration: Duration) -> Self {
        self.hold_at_least = duration;
        self
    }

    pub(crate) fn duration(&self) -> Duration {
        self.duration
    }

    pub(crate) fn holder_text(&self) -> Option<&str> {
        self.holder.as_deref()
    }

    /// The same lease, held at least for `time`.
    #[cfg(feature = "_pool")]
    pub(crate) fn at_least(&self, time: Duration) -> Self {
        Self {
            duration: self.duration.max(time),
            hold_at_least: self.hold_at_least.max(time),
            holder: self.holder.clone(),
        }
    }

    pub(crate) fn micros(&self) -> Result<i64, Error> {
        micros(self.duration)
    }

    pub(crate) fn min_hold_micros(&self) -> Result<i64, Error> {
        if self.hold_at_least > self.duration {
            return Err(Error::InvalidLease {
                requested: self.hold_at_least,
                reason: "hold_at_least is longer than the lease",
            });
        }
        Ok(up_to_micros(self.hold_at_least))
    }

    /// Checks all options.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.micros()?;
        self.min_hold_micros()?;
        Ok(name::validate(
            NameKind::Holder,
            self.holder.as_deref().unwrap_or_default(),
        )?)
    }
}

/// The duration of a lease in microseconds.
pub(crate) fn micros(duration: Duration) -> Result<i64, Error> {
    let reason = if duration < LeaseOptions::SHORTEST {
        "the shortest lease is 1 ms"
    } else if duration > LeaseOptions::LONGEST {
        "the longest lease is 36,525 days"
    } else {
        return Ok(up_to_micros(duration));
    };
    Err(Error::InvalidLease {
        requested: duration,
        reason,
    })
}

pub(crate) fn up_to_micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_of_a_microsecond_count_as_one() {
        assert_eq!(micros(Duration::new(1, 1)).ok(), Some(1_000_001));
        assert_eq!(
            LeaseOptions::new(LeaseOptions::LONGEST).micros().ok(),
            Some(3_155_760_000_000_000)
        );
    }

    #[test]
    fn unusable_leases_name_the_limit() {
        for (lease, why) in [
            (LeaseOptions::new(Duration::ZERO), "1 ms"),
            (LeaseOptions::new(Duration::from_micros(999)), "1 ms"),
            (LeaseOptions::new(Duration::MAX), "36,525 days"),
            (
                LeaseOptions::new(Duration::from_secs(1)).hold_at_least(Duration::from_secs(2)),
                "hold_at_least",
            ),
        ] {
            let error = lease.check().expect_err("unusable");
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
