//! A progress bar, and messages above it. Both go to standard error.

use std::fmt::Write;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use crate::terminal::{BAD, styled};

/// A progress bar of one line.
pub struct Progress {
    bar: ProgressBar,
    errors: ErrorCounts,
}

impl Progress {
    /// A bar up to `length`; `unit` says of what. Without a terminal, or with `quiet`, only messages are
    /// printed.
    pub fn new(length: usize, unit: &str, quiet: bool) -> Self {
        let bar = if quiet {
            ProgressBar::hidden()
        } else {
            ProgressBar::new(length as u64)
        };
        let style = ProgressStyle::with_template(&format!(
            "{{wide_bar}} {{human_pos}}/{{human_len}} {unit}, {{rate}} per second, {{eta}} left"
        ));
        // The default style stays when the template is refused.
        if let Ok(style) = style {
            bar.set_style(style.with_key("rate", rate));
        }
        Self {
            bar,
            errors: ErrorCounts::default(),
        }
    }

    /// Measures the time from now on, without the preparations.
    pub fn begin(&self) {
        self.bar.reset();
    }

    /// Shows that `done` of the length are done.
    pub fn set(&self, done: usize) {
        self.bar.set_position(done as u64);
    }

    /// Prints a message.
    pub fn print(&self, message: &str) {
        self.bar.suspend(|| anstream::eprintln!("{message}"));
    }

    /// Prints an error, or counts it if its text was printed before. `subject` is not part of the text.
    pub fn print_error(&mut self, subject: &str, text: &str) {
        if let Some(message) = self.errors.add(subject, text) {
            self.print(&format!("{} {message}", styled(BAD, "error:")));
        }
    }

    /// Removes the bar, and prints how often errors occurred again.
    pub fn end(&self) {
        self.bar.finish_and_clear();
        for line in self.errors.summary() {
            self.print(&format!("{} {line}", styled(BAD, "error:")));
        }
    }
}

/// Writes the rate as a whole number.
fn rate(state: &ProgressState, out: &mut dyn Write) {
    // Nothing is lost if the bar can't be drawn.
    let _ = write!(out, "{:.0}", state.per_sec());
}

/// Different texts that are printed. A text may name a process or a row, so that no two are the same.
const MOST_TEXTS: usize = 20;

/// Counts errors by their text, of which there may be thousands: each text is printed once, the others are counted.
#[derive(Debug, Default)]
struct ErrorCounts {
    /// The texts in the order of their first occurrence.
    texts: Vec<(String, usize)>,
    /// Errors with a text that is not among them.
    others: usize,
}

impl ErrorCounts {
    /// Counts an error. Returns the message to be printed now: none for a text that was printed before.
    fn add(&mut self, subject: &str, text: &str) -> Option<String> {
        if let Some((_, count)) = self.texts.iter_mut().find(|(known, _)| known == text) {
            *count += 1;
            return None;
        }
        if self.texts.len() == MOST_TEXTS {
            self.others += 1;
            return None;
        }
        self.texts.push((text.to_owned(), 1));
        Some(format!("{subject}: {text}"))
    }

    /// The messages to be printed at the end: how often each text occurred again.
    fn summary(&self) -> Vec<String> {
        let again = self.texts.iter().filter(|(_, count)| *count > 1);
        let mut lines: Vec<String> = again
            .map(|(text, count)| format!("{} times more: {text}", count - 1))
            .collect();
        if self.others > 0 {
            lines.push(format!("{} errors with other texts", self.others));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::{ErrorCounts, MOST_TEXTS};

    #[test]
    fn equal_texts_are_printed_once_and_counted() {
        let mut errors = ErrorCounts::default();
        let first = errors.add("document 1", "database is locked");
        assert_eq!(first.as_deref(), Some("document 1: database is locked"));
        assert_eq!(errors.add("document 2", "database is locked"), None);
        assert_eq!(errors.add("document 3", "database is locked"), None);
        let other = errors.add("document 4", "disk full");
        assert_eq!(other.as_deref(), Some("document 4: disk full"));
        assert_eq!(errors.summary(), ["2 times more: database is locked"]);
    }

    #[test]
    fn no_error_is_left_out_of_the_counts() {
        let mut errors = ErrorCounts::default();
        let mut printed = 0;
        for number in 0..MOST_TEXTS + 3 {
            printed += usize::from(errors.add("x", &number.to_string()).is_some());
        }
        assert_eq!(printed, MOST_TEXTS);
        assert_eq!(errors.summary(), ["3 errors with other texts"]);
    }
}
