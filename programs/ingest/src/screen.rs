//! The progress display.

use std::fmt::Write;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

/// The most errors, and the most rejections, that are printed.
const PRINTED: usize = 20;

/// The progress bar, and the messages above it. Both go to standard error.
pub(crate) struct Screen {
    bar: ProgressBar,
    errors: usize,
}

impl Screen {
    /// Without a terminal, or with `quiet`, only messages are printed.
    pub(crate) fn new(length: usize, what: &str, quiet: bool) -> Self {
        let bar = if quiet {
            ProgressBar::hidden()
        } else {
            ProgressBar::new(length as u64)
        };
        let style = ProgressStyle::with_template(&format!(
            "{{wide_bar}} {{human_pos}}/{{human_len}} {what}, {{rate}} per second, {{eta}} left"
        ));
        // The default style stays when the template is refused.
        if let Ok(style) = style {
            bar.set_style(style.with_key("rate", rate));
        }
        Self { bar, errors: 0 }
    }

    /// Starts the clock of the display, after the preparations.
    pub(crate) fn begin(&self) {
        self.bar.reset();
    }

    pub(crate) fn progress(&self, done: usize) {
        self.bar.set_position(done as u64);
    }

    pub(crate) fn say(&self, message: &str) {
        self.bar.suspend(|| eprintln!("{message}"));
    }

    /// Prints an error, if it is one of the first: there may be thousands.
    pub(crate) fn error(&mut self, message: &str) {
        self.errors += 1;
        if self.errors <= PRINTED {
            self.say(&format!("error: {message}"));
        }
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
        if self.errors > PRINTED {
            self.say(&format!("{} more errors", self.errors - PRINTED));
        }
    }
}

/// Writes the rate as a whole number.
fn rate(state: &ProgressState, out: &mut dyn Write) {
    // The display is not essential: ignore the error.
    let _ = write!(out, "{:.0}", state.per_sec());
}
