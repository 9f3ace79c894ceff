//! Errors of which there may be thousands: each text is printed once, the others are counted.

use std::collections::HashMap;

/// Different texts that are printed. A text may name a process or a row, so that no two are the same.
const MOST_TEXTS: usize = 20;

/// Counts errors by their text.
#[derive(Debug, Default)]
pub struct ErrorCounts {
    /// The texts in the order of their first occurrence.
    texts: Vec<(String, usize)>,
    indexes: HashMap<String, usize>,
    /// Errors with a text that is not among them.
    others: usize,
}

impl ErrorCounts {
    /// Counts an error. Returns the message to be printed now: none for a text that was printed before.
    pub fn add(&mut self, subject: &str, text: &str) -> Option<String> {
        if let Some(index) = self.indexes.get(text) {
            self.texts[*index].1 += 1;
            return None;
        }
        if self.texts.len() == MOST_TEXTS {
            self.others += 1;
            return None;
        }
        self.indexes.insert(text.to_owned(), self.texts.len());
        self.texts.push((text.to_owned(), 1));
        Some(format!("{subject}: {text}"))
    }

    /// The messages to be printed at the end: how often each text occurred again.
    pub fn summary(&self) -> Vec<String> {
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
