//! The timestamps in XML documents.

use anyhow::{Context, Result, anyhow, ensure};
use chrono::{DateTime, Datelike, NaiveDateTime, TimeDelta, Timelike};

/// Reads an `xs:date` or `xs:dateTime` as a time in UTC, in whole microseconds, which all databases can store.
pub(crate) fn parse(text: &str) -> Result<NaiveDateTime> {
    let text = text.trim();
    let dated = match (
        text.contains('T'),
        text.split_at_checked("2020-10-01".len()),
    ) {
        (false, Some((date, zone))) => format!("{date}T00:00:00{zone}"),
        _ => text.to_owned(),
    };
    let (dated, more) = match end_of_day(&dated) {
        Some(begin) => (begin, TimeDelta::days(1)),
        None => (dated, TimeDelta::zero()),
    };
    let moment = DateTime::parse_from_rfc3339(&dated)
        .map(|moment| moment.naive_utc())
        .or_else(|_| NaiveDateTime::parse_from_str(&dated, "%Y-%m-%dT%H:%M:%S%.f"))
        .ok()
        // A leap second, which neither has.
        .filter(|moment| moment.nanosecond() < 1_000_000_000)
        .and_then(|moment| moment.checked_add_signed(more))
        .ok_or_else(|| anyhow!("{text:?} is neither an xs:date nor an xs:dateTime"))?;
    ensure!(
        (1000..=9999).contains(&moment.year()),
        "{text:?} is outside of the years 1000 to 9999"
    );
    DateTime::from_timestamp_micros(moment.and_utc().timestamp_micros())
        .map(|moment| moment.naive_utc())
        .with_context(|| format!("{text:?} is out of range"))
}

/// The begin of the day, if this is its end, 24:00:00.
fn end_of_day(dated: &str) -> Option<String> {
    let (date, time) = dated.split_once('T')?;
    let rest = time.strip_prefix("24:00:00")?;
    let zone = match rest.strip_prefix('.') {
        Some(fraction) => fraction.strip_prefix('0')?.trim_start_matches('0'),
        None => rest,
    };
    (!zone.starts_with(|c: char| c.is_ascii_digit())).then(|| format!("{date}T00:00:00{zone}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        parse(text).map_or_else(|error| error.to_string(), |moment| moment.to_string())
    }

    #[test]
    fn reads_dates_and_times_with_and_without_zone() {
        assert_eq!(read("2020-10-01"), "2020-10-01 00:00:00");
        assert_eq!(read(" 2020-10-01\n"), "2020-10-01 00:00:00");
        assert_eq!(read("2020-10-01+02:00"), "2020-09-30 22:00:00");
        assert_eq!(read("2020-10-01Z"), "2020-10-01 00:00:00");
        assert_eq!(read("2020-10-01T12:30:00"), "2020-10-01 12:30:00");
        assert_eq!(read("2020-10-01T12:30:00-01:00"), "2020-10-01 13:30:00");
    }

    #[test]
    fn end_of_a_day_is_the_begin_of_the_next() {
        assert_eq!(read("2020-12-31T24:00:00"), "2021-01-01 00:00:00");
        assert_eq!(read("2020-10-01T24:00:00.00Z"), "2020-10-02 00:00:00");
        assert_eq!(read("2020-10-01T24:00:00+02:00"), "2020-10-01 22:00:00");
    }

    #[test]
    fn cuts_off_what_is_finer_than_a_microsecond() {
        assert_eq!(
            read("2020-10-01T12:30:00.1234567Z"),
            "2020-10-01 12:30:00.123456"
        );
    }

    #[test]
    fn refuses_what_is_no_timestamp() {
        let neither = "is neither an xs:date nor an xs:dateTime";
        for text in [
            "",
            "yesterday",
            "2020-13-01",
            "01/10/2020",
            "2020-10-01T25:00:00",
            "2020-10-01T24:00:01",
            "2020-10-01T24:00:00.5",
            "2020-10-01T24:00:00.05",
            "2020-10-01T24:00:00.",
            "2020-10-01T24:30:00Z",
            "2020-10-01T23:59:60Z",
            "2020-10-01T23:59:60",
            "zehnter Oktöber",
        ] {
            assert_eq!(read(text), format!("{text:?} {neither}"));
        }
        assert!(read("0999-12-31").contains("years 1000 to 9999"));
    }
}
