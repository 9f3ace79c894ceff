//! For how long a slot is asked for, and by whom.

use std::time::Duration;

use crate::name::{self, NameKind};
use crate::{Error, limits};

/// For how long a slot is leased, by whom, and for how long at least.
///
/// The lease begins when the statement that grants the slot runs, by the database's clock. It is counted
/// in microseconds, fractions rounded up, and goes from [`LeaseOptions::SHORTEST`] (1 ms) to [`LeaseOptions::LONGEST`]
/// (100 years); anything else is [`Error::InvalidLease`] before anything is sent to the database.
///
/// How long? Longer than the longest pause that a healthy holder may have between two refreshes (garbage
/// collection of a neighbour, a slow query, a fail-over), and no longer than the others can wait after a
/// crash. A `SlotGuard` refreshes at a third of it.
///
/// ```
/// use diesel_locks::LeaseOptions;
/// use std::time::Duration;
///
/// // A timer on three nodes, every minute: whoever is first keeps the slot for 50 s, however quick.
/// let lease = LeaseOptions::new(Duration::from_secs(300))
///     .hold_at_least(Duration::from_secs(50))
///     .holder("node-2");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a lease is nothing until it is given to a connection"]
pub struct LeaseOptions {
    duration: Duration,
    hold_at_least: Duration,
    holder: Option<String>,
}

impl LeaseOptions {
    /// The shortest lease.
    pub const SHORTEST: Duration = limits::SHORTEST_LEASE;

    /// The longest lease: 36,525 days, about 100 years.
    pub const LONGEST: Duration = limits::LONGEST_LEASE;

    /// A lease that ends after `duration` unless it is refreshed or released before.
    pub fn new(duration: Duration) -> Self {
        Self {
            duration,
            hold_at_least: Duration::ZERO,
            holder: None,
        }
    }

    /// Who holds the slot, as [`held_slots`](crate::SemaphoreExt::held_slots) shows it: 0 to
    /// [`MAX_NAME_CHARS`](crate::MAX_NAME_CHARS) (255) characters without NUL. It is for people; what tells
    /// holders apart is the token.
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = Some(holder.into());
        self
    }

    /// Keeps the slot for so long after the grant, even if it is released before: a job on a timer of
    /// several nodes, whose clocks differ by less than that, runs once per tick.
    ///
    /// At most the lease itself. An operator's
    /// [`force_release_all`](crate::SemaphoreExt::force_release_all) frees it all the same.
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

    pub(crate) fn micros(&self) -> Result<i64, Error> {
        micros(self.duration)
    }

    pub(crate) fn at_least_micros(&self) -> Result<i64, Error> {
        if self.hold_at_least > self.duration {
            return Err(Error::InvalidLease {
                asked: self.hold_at_least,
                why: "hold_at_least is longer than the lease",
            });
        }
        Ok(up_to_micros(self.hold_at_least))
    }

    /// Checks all of it.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.micros()?;
        self.at_least_micros()?;
        Ok(name::check(
            NameKind::Holder,
            self.holder.as_deref().unwrap_or_default(),
        )?)
    }
}

/// The duration of a lease in microseconds.
pub(crate) fn micros(duration: Duration) -> Result<i64, Error> {
    let why = if duration < LeaseOptions::SHORTEST {
        "the shortest lease is 1 ms"
    } else if duration > LeaseOptions::LONGEST {
        "the longest lease is 36,525 days"
    } else {
        return Ok(up_to_micros(duration));
    };
    Err(Error::InvalidLease {
        asked: duration,
        why,
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
