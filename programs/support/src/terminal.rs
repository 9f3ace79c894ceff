//! Colours and the width of the terminal. Print styled text by the macros of `anstream`: they remove the
//! styles where the output is not a terminal, or `NO_COLOR` is set.

use std::process::ExitCode;

use anstyle::{AnsiColor, Style};

/// What is as it should be.
pub const GOOD: Style = AnsiColor::Green.on_default().bold();
/// What is wrong.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// What the reader should look at.
pub const WARNING: Style = AnsiColor::Yellow.on_default();
/// Headings.
pub const HEADING: Style = Style::new().bold();
/// What is less important.
pub const FAINT: Style = Style::new().dimmed();

/// The text in this style.
pub fn styled(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// The columns of the terminal that standard output is; `None` if it is none.
pub fn width() -> Option<u16> {
    terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| width.0)
}

/// The columns of the terminal that standard error is; `None` if it is none.
pub fn stderr_width() -> Option<u16> {
    terminal_size::terminal_size_of(std::io::stderr()).map(|(width, _)| width.0)
}

/// Prints styled text and a line end to standard output.
pub fn print(text: impl std::fmt::Display) {
    anstream::println!("{text}");
}

/// Prints styled text and a line end to standard error.
pub fn print_to_stderr(text: impl std::fmt::Display) {
    anstream::eprintln!("{text}");
}

/// Returns the exit code of a program. Prints an error with all its causes to standard error.
pub fn exit_code(program: &str, ended: anyhow::Result<ExitCode>) -> ExitCode {
    ended.unwrap_or_else(|error| {
        anstream::eprintln!("{}: {error:#}", styled(BAD, program));
        ExitCode::FAILURE
    })
}

/// The words of the text in lines of at most `width` columns. A longer word has a line of its own.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// An error message: a red `error:`, and the message beside it, in lines of at most `width` columns.
pub fn error(message: &str, width: Option<u16>) -> String {
    const LABEL: &str = "error:";
    let indent = " ".repeat(LABEL.len() + 1);
    let text = paragraph(message, &indent, width);
    format!("{} {}", styled(BAD, LABEL), text.trim_start())
}

/// The text as a paragraph: lines of at most `width` columns, each with the indent before it; one line without
/// a width.
pub fn paragraph(text: &str, indent: &str, width: Option<u16>) -> String {
    let room = width.map_or(usize::MAX, |width| {
        usize::from(width).saturating_sub(indent.len())
    });
    let lines = wrapped(text, room);
    let lines: Vec<String> = lines.iter().map(|line| format!("{indent}{line}")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;

    use super::{error, paragraph};

    #[test]
    fn error_messages_are_wrapped_beside_the_label() {
        let text = error("document 1: database is locked", Some(24));
        assert_eq!(
            strip_str(&text).to_string(),
            "error: document 1:\n       database is\n       locked"
        );
    }

    #[test]
    fn paragraphs_are_wrapped_between_words() {
        let text = "one two three, a-very-long-word four";
        assert_eq!(
            paragraph(text, "  ", Some(11)),
            "  one two\n  three,\n  a-very-long-word\n  four"
        );
        assert_eq!(paragraph(text, " ", None), format!(" {text}"));
    }
}
