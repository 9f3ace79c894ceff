//! A job on a timer, and its ticks.

use std::time::Duration;

use crate::error::limits::{LONGEST_LEASE, SHORTEST_PERIOD};
use crate::{Error, Semaphore};

/// A job that is due once per period, on one of all nodes: see [`SlotRenewer::run_on_timer`](crate::SlotRenewer::run_on_timer).
///
/// Its ticks are at `offset + n * period` since 1970-01-01 00:00 UTC, by the database's clock: a period of an hour is due at
/// each full hour.
///
/// ```
/// use diesel_locks::TimerJob;
/// use std::time::Duration;
///
/// const HOUR: Duration = Duration::from_secs(3600);
///
/// // At 02:00 UTC.
/// let report = TimerJob::new("nightly-report", 24 * HOUR).offset(2 * HOUR);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a job does nothing until it is passed to a renewer"]
#[doc(alias("cron", "schedule", "scheduled job", "ScheduledTask"))]
pub struct TimerJob {
    pub(crate) semaphore: Semaphore,
    period: Duration,
    offset: Duration,
}

impl TimerJob {
    /// Creates a job that is due every `period`, from [`SHORTEST_PERIOD`](crate::limits::SHORTEST_PERIOD) to
    /// [`LONGEST_LEASE`](crate::limits::LONGEST_LEASE); fractions of a microsecond are cut off.
    ///
    /// `name` is that of a semaphore with one permit, whose slot the running node holds. Use it for nothing else, and not for a
    /// job with another period, unless that is to take the place of this one.
    pub fn new(name: impl AsRef<str>, period: Duration) -> Self {
        Self {
            semaphore: Semaphore::new(name, 1),
            period,
            offset: Duration::ZERO,
        }
    }

    /// Sets how much later than at the multiples of its period the job is due.
    pub fn offset(mut self, offset: Duration) -> Self {
        self.offset = offset;
        self
    }

    /// Returns the semaphore whose slot the running node holds: for [`held_slots`](crate::InspectExt::held_slots).
    pub fn semaphore(&self) -> &Semaphore {
        &self.semaphore
    }

    pub(crate) fn ticks(&self) -> Result<Ticks, Error> {
        if !(SHORTEST_PERIOD..=LONGEST_LEASE).contains(&self.period) {
            return Err(Error::InvalidInterval {
                subject: "period",
                requested: self.period,
                shortest: SHORTEST_PERIOD,
                longest: LONGEST_LEASE,
            });
        }
        let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        let period = micros(self.period);
        let offset = i64::try_from(self.offset.as_micros() % self.period.as_micros());
        Ok(Ticks {
            period,
            offset: offset.unwrap_or(0) % period,
        })
    }
}

/// The ticks of a job, in microseconds since 1970 UTC.
#[derive(Clone, Copy)]
pub(crate) struct Ticks {
    period: i64,
    offset: i64,
}

impl Ticks {
    /// The number of the tick to which a time belongs: the last one that is not later.
    pub(crate) fn number(self, micros: i64) -> i64 {
        micros.saturating_sub(self.offset).div_euclid(self.period)
    }

    pub(crate) fn start(self, number: i64) -> i64 {
        number
            .saturating_mul(self.period)
            .saturating_add(self.offset)
    }

    pub(crate) fn end(self, number: i64) -> i64 {
        self.start(number.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_multiples_of_the_period_after_the_offset() {
        let hour = Duration::from_secs(3600);
        let ticks = TimerJob::new("job", 24 * hour).offset(50 * hour).ticks();
        let ticks = ticks.expect("valid");
        let hours = |hours: i64| hours * 3_600_000_000;
        assert_eq!(ticks.offset, hours(2));
        for (time, number) in [(0, -1), (hours(2) - 1, -1), (hours(2), 0), (hours(26), 1)] {
            assert_eq!(ticks.number(time), number, "{time}");
        }
        assert_eq!(ticks.start(1), hours(26));
        assert_eq!(ticks.end(1), hours(50));
    }

    #[test]
    fn unusable_periods_name_the_limits() {
        for period in [Duration::ZERO, Duration::from_millis(99), Duration::MAX] {
            let error = TimerJob::new("job", period)
                .ticks()
                .err()
                .expect("unusable");
            assert!(error.to_string().contains("100 ms to 100 years"), "{error}");
        }
    }

    #[test]
    fn longest_period_and_offset_do_not_overflow() {
        let ticks = TimerJob::new("job", LONGEST_LEASE)
            .offset(Duration::MAX)
            .ticks();
        let ticks = ticks.expect("valid");
        assert!(ticks.end(ticks.number(i64::MAX / 2)) > i64::MAX / 2);
        assert!(ticks.number(i64::MIN) < 0);
    }
}
