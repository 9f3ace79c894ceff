//! A progress bar, and messages above it. Both go to standard error.

use std::fmt::Write;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use crate::errors::ErrorCounts;
use crate::terminal;

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
            self.print(&terminal::error(&message, terminal::stderr_width()));
        }
    }

    /// Removes the bar, and prints how often errors occurred again.
    pub fn end(&self) {
        self.bar.finish_and_clear();
        for line in self.errors.summary() {
            self.print(&terminal::error(&line, terminal::stderr_width()));
        }
    }
}

/// Writes the rate as a whole number.
fn rate(state: &ProgressState, out: &mut dyn Write) {
    // Nothing is lost if the bar can't be drawn.
    let _ = write!(out, "{:.0}", state.per_sec());
}
