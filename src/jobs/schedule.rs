//! When a job on a timer is due: at the multiples of a period, or by a cron expression in a time zone.
//!
//! Around a change of the zone's offset, an expression that names its hours is due once at each of its times: in the hour that comes
//! twice the first time, and for a time in an hour that is skipped when the hour after it begins. croner does so for a single time
//! of the day, so an expression with several is taken apart. An expression with `*` in the hours is due at each matching time that
//! the clocks of the zone show.

use std::time::Duration;

#[cfg(feature = "cron")]
use chrono::{DateTime, Utc};
#[cfg(feature = "cron")]
use chrono_tz::Tz;
#[cfg(feature = "cron")]
use croner::{
    Cron,
    errors::CronError,
    parser::{CronParser, Seconds, Year},
};

use crate::Error;
use crate::error::limits::{LONGEST_LEASE, SHORTEST_PERIOD};
use crate::jobs::check_interval;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Schedule {
    Period(Duration),
    #[cfg(feature = "cron")]
    Cron {
        expression: String,
        zone: String,
    },
}

impl Schedule {
    /// Fails if it can't be used.
    pub(crate) fn ticks(&self, offset: Duration) -> Result<Ticks, Error> {
        let due = match self {
            Self::Period(period) => {
                check_interval("period", *period, SHORTEST_PERIOD..=LONGEST_LEASE)?;
                Due::Period(i64::try_from(period.as_micros()).unwrap_or(i64::MAX))
            }
            #[cfg(feature = "cron")]
            Self::Cron { expression, zone } => Due::Cron(CronTimes::new(expression, zone)?),
        };
        let offset = match &due {
            // Less than a period, so that the times do not overflow.
            Due::Period(period) => offset.as_micros() % u128::from(period.unsigned_abs()),
            #[cfg(feature = "cron")]
            Due::Cron(_) => {
                check_interval("offset", offset, Duration::ZERO..=LONGEST_LEASE)?;
                offset.as_micros()
            }
        };
        Ok(Ticks {
            due,
            offset: i64::try_from(offset).unwrap_or(i64::MAX),
        })
    }
}

/// The ticks of a job. All times are in microseconds since 1970 UTC. A tick is named by the time at which it is due.
pub(crate) struct Ticks {
    due: Due,
    offset: i64,
}

enum Due {
    /// Its length.
    Period(i64),
    #[cfg(feature = "cron")]
    Cron(CronTimes),
}

// A period always has a tick; an expression may not.
#[cfg_attr(not(feature = "cron"), expect(clippy::unnecessary_wraps))]
impl Ticks {
    /// The last tick that is not later than this time.
    pub(crate) fn last(&self, time: i64) -> Result<i64, Error> {
        let time = time.saturating_sub(self.offset);
        let due = match &self.due {
            Due::Period(period) => time.div_euclid(*period).saturating_mul(*period),
            #[cfg(feature = "cron")]
            Due::Cron(times) => times.last(time)?,
        };
        Ok(due.saturating_add(self.offset))
    }

    /// The tick that follows one.
    pub(crate) fn next(&self, tick: i64) -> Result<i64, Error> {
        Ok(match &self.due {
            Due::Period(period) => tick.saturating_add(*period),
            #[cfg(feature = "cron")]
            Due::Cron(times) => {
                let next = times.next(tick.saturating_sub(self.offset))?;
                next.saturating_add(self.offset)
            }
        })
    }
}

#[cfg(feature = "cron")]
struct CronTimes {
    expression: String,
    /// One for each time of the day, unless the hours have a `*`.
    expressions: Vec<Cron>,
    zone: Tz,
}

#[cfg(feature = "cron")]
impl CronTimes {
    fn new(expression: &str, zone: &str) -> Result<Self, Error> {
        let invalid = |reason| invalid(expression, zone, reason);
        let zone: Tz = zone
            .parse()
            .map_err(|_| invalid("the time zone is not in the IANA database".to_owned()))?;
        let expressions = times_of_day(expression).map_err(|error| {
            invalid(match error {
                CronError::TimeSearchLimitExceeded => "it is never due".to_owned(),
                error => error.to_string(),
            })
        })?;
        Ok(Self {
            expression: expression.to_owned(),
            expressions,
            zone,
        })
    }

    /// The last one that is not later.
    fn last(&self, time: i64) -> Result<i64, Error> {
        self.find(time, |it, before| it.find_previous_occurrence(before, true))
            .map(|all| all.into_iter().fold(i64::MIN, i64::max))
    }

    /// The first one that is later.
    fn next(&self, time: i64) -> Result<i64, Error> {
        self.find(time, |it, after| it.find_next_occurrence(after, false))
            .map(|all| all.into_iter().fold(i64::MAX, i64::min))
    }

    /// What each expression finds. Fails at a gap of more than two hours in the times of the zone.
    fn find(
        &self,
        time: i64,
        find: impl Fn(&Cron, &DateTime<Tz>) -> Result<DateTime<Tz>, CronError>,
    ) -> Result<Vec<i64>, Error> {
        let failed = |error: CronError| {
            let reason = format!("no time is found: {error}");
            invalid(&self.expression, self.zone.name(), reason)
        };
        let time = DateTime::<Utc>::from_timestamp_micros(time).ok_or(CronError::InvalidTime);
        let time = time.map_err(failed)?.with_timezone(&self.zone);
        let found = self.expressions.iter().map(|it| find(it, &time));
        let micros = |found: Result<DateTime<Tz>, _>| Ok(found.map_err(failed)?.timestamp_micros());
        found.map(micros).collect()
    }
}

#[cfg(feature = "cron")]
fn invalid(expression: &str, zone: &str, reason: String) -> Error {
    Error::InvalidSchedule {
        expression: expression.to_owned(),
        zone: zone.to_owned(),
        reason,
    }
}

#[cfg(feature = "cron")]
fn times_of_day(expression: &str) -> Result<Vec<Cron>, CronError> {
    let parser = CronParser::builder()
        .seconds(Seconds::Disallowed)
        .year(Year::Disallowed)
        .build();
    let whole = parser.parse(expression)?;
    // Fails for an expression like `0 0 30 2 *`.
    whole.find_next_occurrence(&DateTime::<Utc>::UNIX_EPOCH, true)?;
    let fields: Vec<&str> = expression.split_whitespace().collect();
    let [_, hours, date @ ..] = &fields[..] else {
        // A name such as `@daily`.
        return Ok(vec![whole]);
    };
    if hours.contains('*') {
        return Ok(vec![whole]);
    }
    let (date, mut times) = (date.join(" "), Vec::new());
    for hour in 0..24 {
        for minute in 0..60 {
            if whole.pattern.hour_match(hour)? && whole.pattern.minute_match(minute)? {
                times.push(parser.parse(&format!("{minute} {hour} {date}"))?);
            }
        }
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every(period: Duration, offset: Duration) -> Result<Ticks, Error> {
        Schedule::Period(period).ticks(offset)
    }

    #[test]
    fn ticks_are_multiples_of_the_period_after_the_offset() {
        let hour = Duration::from_secs(3600);
        let ticks = every(24 * hour, 50 * hour).expect("valid");
        let hours = |hours: i64| hours * 3_600_000_000;
        for (time, tick) in [
            (0, hours(-22)),
            (hours(2) - 1, hours(-22)),
            (hours(2), hours(2)),
            (hours(26), hours(26)),
        ] {
            assert_eq!(ticks.last(time).ok(), Some(tick), "{time}");
        }
        assert_eq!(ticks.next(hours(26)).ok(), Some(hours(50)));
    }

    #[test]
    fn longest_period_and_offset_do_not_overflow() {
        let ticks = every(LONGEST_LEASE, Duration::MAX).expect("valid");
        let last = ticks.last(i64::MAX / 2).expect("a tick");
        assert!(ticks.next(last).expect("a tick") > i64::MAX / 2);
        assert!(ticks.last(i64::MIN).expect("a tick") < 0);
    }
}

#[cfg(all(test, feature = "cron"))]
mod cron_tests {
    use super::*;

    const MINUTE: i64 = 60_000_000;

    fn micros(time: &str) -> i64 {
        let time = DateTime::parse_from_rfc3339(time).expect("a time");
        time.timestamp_micros()
    }

    /// The times in a stretch, found forwards; backwards they are the same.
    fn between(times: &CronTimes, from: i64, until: i64) -> Vec<i64> {
        let next = |time| times.next(time).expect("a time");
        let last = |time| times.last(time).expect("a time");
        let mut found = Vec::new();
        let mut time = next(from - 1);
        while time < until {
            found.push(time);
            time = next(time);
        }
        let mut backwards = Vec::new();
        let mut time = last(until - 1);
        while time >= from {
            backwards.push(time);
            time = last(time - 1);
        }
        backwards.reverse();
        assert_eq!(found, backwards);
        found
    }

    /// On these days the clocks of Berlin skip the hour from 2 to 3, and show it twice.
    #[test]
    fn times_in_an_hour_that_is_skipped_or_comes_twice() {
        let skips = ["2026-03-28T23:00:00Z", "2026-03-29T03:00:00Z"];
        let twice = ["2026-10-24T22:00:00Z", "2026-10-25T03:00:00Z"];
        // In UTC.
        for (expression, night, expected) in [
            ("30 2 * * *", skips, "01:00"),
            ("0,30 2 * * *", skips, "01:00"),
            ("30 1-3 * * *", skips, "00:30 01:00 01:30"),
            ("30 */2 * * *", skips, "23:30 02:30"),
            ("30 2 * * *", twice, "00:30"),
            ("*/20 2 * * *", twice, "00:00 00:20 00:40"),
            ("30 2,14 * * *", twice, "00:30"),
            ("30 2 * * MON", twice, ""),
            ("15 * * * SUN", twice, "22:15 23:15 00:15 01:15 02:15"),
            ("@daily", twice, "22:00"),
        ] {
            let times = CronTimes::new(expression, "Europe/Berlin").expect("valid");
            let [from, until] = night.map(micros);
            let found = between(&times, from, until).into_iter().map(|time| {
                let time = DateTime::from_timestamp_micros(time).expect("a time");
                time.to_rfc3339()[11..16].to_owned()
            });
            let found: Vec<_> = found.collect();
            assert_eq!(found.join(" "), expected, "{expression}");
        }
    }

    /// Two nodes that look at times a minute apart find the same ticks, around every change of these zones in a year.
    #[test]
    fn ticks_are_the_same_forwards_and_backwards_in_all_zones() {
        let zones = [
            "UTC",
            "Europe/Berlin",
            "America/New_York",
            "America/St_Johns",
            "Australia/Lord_Howe",
            "Africa/Casablanca",
            "Asia/Beirut",
            "Asia/Tehran",
        ];
        let expressions = [
            "30 2 * * *",
            "0 0 * * *",
            "15 */2 * * *",
            "15 1-3 * * *",
            "59 23 L * *",
            "0 */3 * * 1-5",
        ];
        let (from, until) = (
            micros("2011-12-01T00:00:00Z"),
            micros("2012-12-01T00:00:00Z"),
        );
        let mut ticks = 0;
        for (zone, expression) in zones
            .iter()
            .flat_map(|zone| expressions.map(|it| (zone, it)))
        {
            let times = CronTimes::new(expression, zone).expect("valid");
            let found = between(&times, from, until);
            assert!(
                found.is_sorted_by(|one, other| one < other),
                "{zone} {expression}"
            );
            for pair in found.windows(2) {
                let &[one, next] = pair else { continue };
                for time in [one + MINUTE, next - 1] {
                    assert_eq!(
                        times.last(time).ok(),
                        Some(one),
                        "{zone} {expression} {time}"
                    );
                    assert_eq!(
                        times.next(time).ok(),
                        Some(next),
                        "{zone} {expression} {time}"
                    );
                }
            }
            ticks += found.len();
        }
        assert!(ticks > 60_000, "{ticks}");
    }

    /// Samoa skipped 30 December 2011. A job would otherwise never be due again, without a word.
    #[test]
    fn time_that_is_not_found_is_an_error() {
        let times = CronTimes::new("30 2 * * *", "Pacific/Apia").expect("valid");
        let before = micros("2011-12-30T00:00:00Z");
        let error = times.next(before).expect_err("in the gap");
        assert!(error.to_string().contains("Pacific/Apia"), "{error}");
        let error = times.next(i64::MAX).expect_err("after the last year");
        assert!(matches!(error, Error::InvalidSchedule { .. }), "{error:?}");
    }

    #[test]
    fn offset_beyond_the_limit_is_an_error() {
        let schedule = Schedule::Cron {
            expression: "@daily".to_owned(),
            zone: "UTC".to_owned(),
        };
        let error = schedule.ticks(Duration::MAX).err().expect("too long");
        assert!(matches!(error, Error::InvalidInterval { .. }), "{error:?}");
    }

    #[test]
    fn unusable_expressions_and_zones_are_named() {
        for (expression, zone, reason) in [
            ("0 2 * * *", "Europe/Atlantis", "IANA"),
            ("", "UTC", "empty"),
            ("0 0 2 * * *", "UTC", "5 fields"),
            ("0 2 * *", "UTC", "fields"),
            ("0 25 * * *", "UTC", "25"),
            ("0 2 30 2 *", "UTC", "never"),
        ] {
            let error = CronTimes::new(expression, zone).err().expect("unusable");
            let text = error.to_string();
            assert!(text.contains(reason) && text.contains(zone), "{text}");
        }
    }
}
