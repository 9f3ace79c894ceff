//! Colours. Print styled text by the macros of `anstream`: they remove the styles where the output is not a terminal,
//! or `NO_COLOR` is set.

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

/// The text in this style.
pub fn styled(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
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
