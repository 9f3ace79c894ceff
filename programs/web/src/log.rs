//! Lines on standard error.

use std::error::Error;

/// Writes a line. Control characters are escaped, so that a text of the database or of a client stays one line.
pub(crate) fn line(text: &str) {
    eprintln!("web: {}", escaped(text));
}

/// The text of an error, and those of its causes.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Writes an error when it begins, changes or ends.
#[derive(Default)]
pub(crate) struct Changes(Option<String>);

impl Changes {
    /// Takes the present error, of what `subject` names.
    pub(crate) fn see(&mut self, subject: &str, error: Option<String>) {
        if let Some(text) = self.change(subject, error) {
            line(&text);
        }
    }

    fn change(&mut self, subject: &str, error: Option<String>) -> Option<String> {
        if self.0 == error {
            return None;
        }
        self.0 = error;
        Some(match &self.0 {
            Some(error) => format!("{subject}: {error}"),
            None => format!("{subject}: no error any more"),
        })
    }
}

fn escaped(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::{Changes, escaped};

    #[test]
    fn text_stays_one_line() {
        assert_eq!(escaped("a\nb\u{1b}[31m \"Ä\""), "a\\nb\\u{1b}[31m \"Ä\"");
    }

    #[test]
    fn error_is_told_when_it_changes() {
        let mut changes = Changes::default();
        let mut see = |error: Option<&str>| changes.change("the page", error.map(str::to_owned));
        assert_eq!(see(None), None);
        assert_eq!(see(Some("down")).as_deref(), Some("the page: down"));
        assert_eq!(see(Some("down")), None);
        assert_eq!(see(Some("locked")).as_deref(), Some("the page: locked"));
        assert_eq!(see(None).as_deref(), Some("the page: no error any more"));
        assert_eq!(see(None), None);
    }
}
