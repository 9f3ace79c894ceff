//! What is printed: times, durations, and texts that others have written.

use std::fmt::Display;
use std::io::{self, Write};
use std::time::Duration;

use diesel_locks::chrono::{DateTime, SecondsFormat, Utc};
use humantime::format_duration;
use serde_json::Value;

use crate::failure::Failure;

/// What a command has to say: lines for a person, and the same as JSON.
pub(crate) struct Report {
    pub(crate) text: String,
    pub(crate) json: Value,
    pub(crate) code: u8,
}

impl Report {
    pub(crate) fn new(text: impl Into<String>, json: Value) -> Self {
        Self {
            text: text.into(),
            json,
            code: 0,
        }
    }

    /// Nobody may read it: `list | head -1` is no error.
    pub(crate) fn print(&self, as_json: bool) -> Result<(), Failure> {
        let mut output = io::stdout().lock();
        let printed = if as_json {
            writeln!(output, "{}", self.json)
        } else {
            writeln!(output, "{}", self.text)
        };
        match printed.and_then(|()| output.flush()) {
            Err(source) if source.kind() != io::ErrorKind::BrokenPipe => Err(Failure::System {
                action: "write to standard output",
                source,
            }),
            _ => Ok(()),
        }
    }
}

/// Prints a line to standard error, if that can be written: `eprintln!` would panic.
pub(crate) fn print_error(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Whether a terminal shows a character as it is: no control character, none that is invisible or changes the direction of the
/// text.
pub(crate) fn is_visible(c: char) -> bool {
    // After a letter, since one that is combined with the one before would be escaped too.
    matches!(c, '\'' | '"' | '\\') || format!("a{c}").escape_debug().count() == 2
}

/// A name as it is, if a terminal shows it so; in quotes with escapes otherwise.
pub(crate) fn name(text: &str) -> String {
    let is_plain = !text.is_empty() && text.trim() == text && text.chars().all(is_visible);
    if is_plain {
        text.to_owned()
    } else {
        format!("{text:?}")
    }
}

/// Whole seconds, in the notation that arguments have: `1h 2m 3s`.
pub(crate) fn duration(duration: Duration) -> String {
    format_duration(Duration::from_secs(duration.as_secs())).to_string()
}

pub(crate) fn time(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%d %H:%M:%S UTC").to_string()
}

pub(crate) fn json_time(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// The time from one moment to a later one; zero if it is earlier.
pub(crate) fn between(from: DateTime<Utc>, to: DateTime<Utc>) -> Duration {
    (to - from).to_std().unwrap_or_default()
}

/// A number with its noun: `1 slot`, `2 slots`.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{duration, name};

    #[test]
    fn names_that_a_terminal_would_obey_are_escaped() {
        assert_eq!(name("collate logs/ä"), "collate logs/ä");
        assert_eq!(name("a\u{1b}[2J"), "\"a\\u{1b}[2J\"");
        assert_eq!(name(""), "\"\"");
        assert_eq!(name(" a"), "\" a\"");
        // Decomposed, as file names of macOS, and of a script whose vowels are combined.
        for plain in ["o'Neill \"x\" \\", "a\u{308}", "ที่"] {
            assert_eq!(name(plain), plain);
        }
        for hidden in "\u{202e}\u{2067}\u{200b}\u{2028}\u{feff}\u{e0041}\u{ad}".chars() {
            let escaped = format!("\"a{}b\"", hidden.escape_unicode());
            assert_eq!(name(&format!("a{hidden}b")), escaped);
        }
    }

    #[test]
    fn durations_are_whole_seconds() {
        assert_eq!(duration(Duration::from_millis(62_900)), "1m 2s");
        assert_eq!(duration(Duration::ZERO), "0s");
    }
}
