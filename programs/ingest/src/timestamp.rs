//! The timestamps in XML documents.

use anyhow::{Context, Result, anyhow, ensure};
use chrono::{DateTime, Datelike, NaiveDateTime};

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
    let moment = DateTime::parse_from_rfc3339(&dated)
        .map(|moment| moment.naive_utc())
        .or_else(|_| NaiveDateTime::parse_from_str(&dated, "%Y-%m-%dT%H:%M:%S%.f"))
        .map_err(|_| anyhow!("{text:?} is neither an xs:date nor an xs:dateTime"))?;
    ensure!(
        (1000..=9999).contains(&moment.year()),
        "{text:?} is outside of the years 1000 to 9999"
    );
    DateTime::from_timestamp_micros(moment.and_utc().timestamp_micros())
        .map(|moment| moment.naive_utc())
        .with_context(|| format!("{text:?} is out of range"))
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
            "zehnter Oktöber",
        ] {
            assert_eq!(read(text), format!("{text:?} {neither}"));
        }
        assert!(read("0999-12-31").contains("years 1000 to 9999"));
    }
}
