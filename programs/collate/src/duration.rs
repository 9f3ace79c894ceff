//! Durations on the command line: `1s`, `500ms`, `2m`.

use std::time::Duration;

/// A whole number and its unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let of = match unit {
        "ms" => Duration::from_millis,
        "s" => Duration::from_secs,
        "m" => |minutes: u64| Duration::from_secs(minutes.saturating_mul(60)),
        _ => return Err("a time is a whole number and ms, s or m: 500ms".to_owned()),
    };
    number.parse().map(of).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_numbers_with_units() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for text in ["", "1", "s", "1.5s", "-1s", "1 s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
