//! What is shown while connections are at work.

use std::fmt::Write;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

/// Errors and rejections that are printed, of each kind.
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

    /// The time of the preparations does not count.
    pub(crate) fn begin(&self) {
        self.bar.reset();
    }

    pub(crate) fn progress(&self, done: usize) {
        self.bar.set_position(done as u64);
    }

    pub(crate) fn say(&self, message: &str) {
        self.bar.suspend(|| eprintln!("{message}"));
    }

    /// Prints the first errors; there may be thousands of a kind.
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

/// In whole numbers.
fn rate(state: &ProgressState, out: &mut dyn Write) {
    // A progress bar that can't be drawn is nobody's concern.
    let _ = write!(out, "{:.0}", state.per_sec());
}
