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

/// Writes an error when it begins, changes or ends. Keeps what tells one error from another.
#[derive(Default)]
pub(crate) struct Changes(Option<String>);

impl Changes {
    /// Takes the present error, of what `subject` names.
    pub(crate) fn see(&mut self, subject: &str, error: Option<String>) {
        let error = error.map(|error| (error.clone(), error));
        self.see_kind(subject, error);
    }

    /// Takes the kind of the present error, and its text: another text of the same kind is not written.
    pub(crate) fn see_kind(&mut self, subject: &str, error: Option<(String, String)>) {
        if let Some(text) = self.change(subject, error) {
            line(&text);
        }
    }

    fn change(&mut self, subject: &str, error: Option<(String, String)>) -> Option<String> {
        let (kind, text) = error.unzip();
        if self.0 == kind {
            return None;
        }
        self.0 = kind;
        let text = text.as_deref().unwrap_or("no error any more");
        Some(format!("{subject}: {text}"))
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
        let mut see = |error: Option<(&str, &str)>| {
            let error = error.map(|(kind, text)| (kind.to_owned(), text.to_owned()));
            changes.change("the page", error)
        };
        assert_eq!(see(None), None);
        let down = see(Some(("down", "error 11")));
        assert_eq!(down.as_deref(), Some("the page: error 11"));
        assert_eq!(see(Some(("down", "error 115"))), None);
        let locked = see(Some(("locked", "locked")));
        assert_eq!(locked.as_deref(), Some("the page: locked"));
        assert_eq!(see(None).as_deref(), Some("the page: no error any more"));
        assert_eq!(see(None), None);
    }
}
