//! The lines of a lesson: what a session does, and what the database answers.

use anstyle::{AnsiColor, Style};
use program_support::terminal::{FAINT, WARNING, styled, wrapped};

use crate::scenario::SessionName;

/// Columns before the statement: the number of the step and the session.
const STEP: usize = 9;
/// Columns of the statement, if the answer is in the same line.
const STATEMENT: usize = 45;

impl SessionName {
    fn style(self) -> Style {
        match self {
            Self::A => AnsiColor::Cyan.on_default(),
            Self::B => AnsiColor::Magenta.on_default(),
        }
    }
}

/// A step. The answer is in the line of the statement if both fit into `width`, otherwise in the next
/// lines. Without a width everything fits.
pub(crate) fn step(
    number: u32,
    session: SessionName,
    statement: &str,
    answer: &str,
    width: Option<u16>,
) -> String {
    let begin = format!(
        "  {}  {}",
        styled(FAINT, format!("{number:>2}")),
        styled(session.style(), session)
    );
    let statement_style = session.style();
    let fits = width.is_none_or(|width| {
        let columns = STATEMENT.max(statement.len()) + 2 + answer.chars().count();
        STEP + columns <= usize::from(width)
    });
    let answer = Answer(answer);
    if fits {
        let padded = format!("{statement:<STATEMENT$}");
        return format!(
            "{begin}  {}  {}",
            styled(statement_style, padded),
            answer.styled()
        );
    }
    let indent = " ".repeat(STEP);
    let room = usize::from(width.unwrap_or(u16::MAX)).saturating_sub(indent.len() + 3);
    let mut lines = vec![format!("{begin}  {}", styled(statement_style, statement))];
    for (index, line) in wrapped(answer.0, room).into_iter().enumerate() {
        let arrow = if index == 0 { "-> " } else { "   " };
        lines.push(format!("{indent}{arrow}{}", answer.style_of(&line)));
    }
    lines.join("\n")
}

/// What a part shows, below its steps.
pub(crate) fn note(text: &str, style: Style, width: Option<u16>) -> String {
    let room = usize::from(width.unwrap_or(u16::MAX)).saturating_sub(6);
    let lines = wrapped(text, room).into_iter().enumerate();
    let lines = lines.map(|(index, line)| {
        let arrow = if index == 0 { "=>" } else { "  " };
        format!("  {arrow}  {}", styled(style, line))
    });
    lines.collect::<Vec<_>>().join("\n")
}

struct Answer<'a>(&'a str);

impl Answer<'_> {
    fn styled(&self) -> String {
        self.style_of(self.0)
    }

    /// Errors and waits stand out.
    fn style_of(&self, text: &str) -> String {
        let is_answer = self.0 == "ok" || self.0.chars().all(|c| c.is_ascii_digit());
        if is_answer || self.0.starts_with("attempts") {
            text.to_owned()
        } else {
            styled(WARNING, text)
        }
    }
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;
    use program_support::terminal::GOOD;

    use super::{note, step};
    use crate::scenario::SessionName::{A, B};

    fn plain(text: &str) -> String {
        strip_str(text).to_string()
    }

    #[test]
    fn answer_is_beside_the_statement_if_it_fits() {
        let line = plain(&step(1, A, "BEGIN", "ok", Some(80)));
        assert_eq!(line, format!("   1  A  {:<45}  ok", "BEGIN"));
        let wide = plain(&step(12, B, &"x".repeat(70), "a long answer", None));
        assert_eq!(wide.lines().count(), 1);
    }

    #[test]
    fn answer_is_below_the_statement_otherwise() {
        let answer = "SERIALIZATION FAILURE: could not serialize access due to concurrent update";
        let text = plain(&step(3, B, "COMMIT", answer, Some(60)));
        assert_eq!(
            text,
            "   3  B  COMMIT\n         \
             -> SERIALIZATION FAILURE: could not serialize\n            \
             access due to concurrent update"
        );
    }

    #[test]
    fn notes_are_wrapped() {
        let text = plain(&note("nobody fails, nothing is lost", GOOD, Some(24)));
        assert_eq!(text, "  =>  nobody fails,\n      nothing is lost");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let text = plain(&step(3, B, "COMMIT", &"word ".repeat(40), Some(80)));
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
}
