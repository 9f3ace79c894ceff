//! What is drawn: the lists, as much as the window has room for.

use std::time::{Duration, Instant};

use humantime::format_duration;

use crate::output::{counted, duration, is_visible, time};
use crate::watch::reader::Reading;

/// How much longer than the interval a reading may take before it is said.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct Picture {
    reading: Reading,
    interval: Duration,
    /// Why there is no newer reading.
    pub(super) problem: Option<String>,
    /// When the database or its client has last returned something.
    pub(super) answered: Instant,
}

impl Picture {
    pub(super) fn new(reading: Reading, interval: Duration) -> Self {
        Self {
            reading,
            interval,
            problem: None,
            answered: Instant::now(),
        }
    }

    /// At most `rows` lines, each of at most `columns` characters.
    pub(super) fn lines(&self, rows: usize, columns: usize) -> Vec<String> {
        let every = format_duration(self.interval);
        let mut lines = vec![format!(
            "read {} (database's clock), every {every}; q quits",
            time(self.reading.at)
        )];
        let silent = self.answered.elapsed();
        let problem = if silent > self.interval + PATIENCE {
            Some(format!("no answer for {}", duration(silent)))
        } else {
            self.problem.clone()
        };
        if let Some(problem) = problem {
            let problem = format!("not read since: {problem}: trying again");
            // An error is one long line.
            let characters: Vec<_> = problem.chars().collect();
            lines.extend(characters.chunks(columns.max(1)).map(String::from_iter));
        }
        lines.push(String::new());
        lines.extend(self.reading.text.lines().map(str::to_owned));
        if lines.len() > rows {
            let shown = rows.saturating_sub(1);
            let hidden = counted(lines.len() - shown, "line");
            lines.truncate(shown);
            lines.push(format!(
                "{hidden} not shown: enlarge the window, or select by --prefix"
            ));
        }
        lines.iter().map(|line| cut(line, columns)).collect()
    }
}

/// A terminal would obey control characters, which messages of a server may have.
fn cut(line: &str, columns: usize) -> String {
    let plain = line.chars().map(|c| if is_visible(c) { c } else { '?' });
    if line.chars().count() <= columns {
        return plain.collect();
    }
    let mut text: String = plain.take(columns.saturating_sub(1)).collect();
    text.push('…');
    text
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use diesel_locks::chrono::DateTime;

    use super::{Picture, cut};
    use crate::watch::reader::Reading;

    fn picture(text: &str) -> Picture {
        let (text, at) = (text.to_owned(), DateTime::UNIX_EPOCH);
        Picture::new(Reading { text, at }, Duration::from_secs(1))
    }

    #[test]
    fn lines_that_have_no_room_are_counted() {
        let picture = picture("a\nb\nc\nd");
        let all = picture.lines(6, 80);
        assert!(
            all[0].starts_with("read 1970-01-01 00:00:00 UTC"),
            "{all:?}"
        );
        assert_eq!(all[1..], ["", "a", "b", "c", "d"]);
        let some = picture.lines(5, 80);
        assert_eq!(some[1..4], ["", "a", "b"]);
        assert!(some[4].starts_with("2 lines not shown: "), "{some:?}");
        assert_eq!(picture.lines(1, 80).len(), 1);
    }

    #[test]
    fn long_and_harmful_lines_fit() {
        assert_eq!(cut("abcde", 5), "abcde");
        assert_eq!(cut("abcdef", 5), "abcd…");
        assert_eq!(cut("a\u{1b}[2J\u{202e}", 80), "a?[2J?");
    }

    #[test]
    fn problems_and_silence_are_said_in_full() {
        let mut picture = picture("a");
        picture.problem = Some("no route to the server".to_owned());
        let lines = picture.lines(24, 20);
        assert_eq!(
            lines[1..4],
            [
                "not read since: no r",
                "oute to the server: ",
                "trying again"
            ]
        );
        picture.answered = Instant::now()
            .checked_sub(Duration::from_secs(90))
            .expect("a time");
        let lines = picture.lines(24, 80);
        assert!(lines[1].contains("no answer for 1m 30s"), "{lines:?}");
    }
}
