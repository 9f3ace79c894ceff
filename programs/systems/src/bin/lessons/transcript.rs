//! The lines of a lesson: what a session does, and what the database answers.

use anstyle::{AnsiColor, Style};
use program_support::terminal::{FAINT, WARNING, styled};

use crate::session::SessionName;

/// Columns of the statement, if the answer is in the same line.
const STATEMENT: usize = 45;
/// Columns of the answer in the same line.
const ANSWER: usize = 24;

impl SessionName {
    fn style(self) -> Style {
        match self {
            Self::A => AnsiColor::Cyan.on_default(),
            Self::B => AnsiColor::Magenta.on_default(),
        }
    }
}

/// A step. The answer is in the line of the statement if both are short, otherwise in the next line.
pub(crate) fn step(number: u32, session: SessionName, statement: &str, answer: &str) -> String {
    let begin = format!(
        "  {}  {}",
        styled(FAINT, format!("{number:>2}")),
        styled(session.style(), session)
    );
    // Errors and waits stand out.
    let is_answer = answer == "ok" || answer.chars().all(|c| c.is_ascii_digit());
    let styled_answer = if is_answer || answer.starts_with("attempts") {
        answer.to_owned()
    } else {
        styled(WARNING, answer)
    };
    let (between, columns) = if statement.len() <= STATEMENT && answer.chars().count() <= ANSWER {
        ("  ", STATEMENT)
    } else {
        ("\n         -> ", 0)
    };
    let statement = styled(session.style(), format!("{statement:<columns$}"));
    format!("{begin}  {statement}{between}{styled_answer}")
}

/// What a part shows, below its steps.
pub(crate) fn note(text: &str, style: Style) -> String {
    format!("  =>  {}", styled(style, text))
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;

    use super::step;
    use crate::session::SessionName::{A, B};

    #[test]
    fn answer_is_beside_the_statement_if_both_are_short() {
        let line = step(1, A, "BEGIN", "ok");
        let expected = format!("   1  A  {:<45}  ok", "BEGIN");
        assert_eq!(strip_str(&line).to_string(), expected);
        let answer = "SERIALIZATION FAILURE: could not serialize access";
        let lines = step(3, B, "COMMIT", answer);
        let expected = format!("   3  B  COMMIT\n         -> {answer}");
        assert_eq!(strip_str(&lines).to_string(), expected);
    }
}
