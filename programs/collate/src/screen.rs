//! The progress display.

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The most errors that are printed.
const PRINTED: usize = 20;

/// The progress of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Log files that are sorted into parts.
    pub(crate) sorted: usize,
    /// Lines in the files of the hours.
    pub(crate) merged: usize,
    /// Slots that are held.
    pub(crate) held: usize,
}

/// Progress bars, and messages above them. All go to standard error.
pub(crate) struct Screen {
    all: MultiProgress,
    sorted: ProgressBar,
    merged: ProgressBar,
    held: ProgressBar,
    quiet: bool,
    errors: usize,
}

impl Screen {
    /// Without a terminal, or with `quiet`, only messages are printed.
    pub(crate) fn new(files: usize, lines: usize, permits: u32, quiet: bool) -> Self {
        let all = MultiProgress::new();
        if quiet {
            all.set_draw_target(ProgressDrawTarget::hidden());
        }
        let bar = |length: usize, what: &str| {
            let bar = all.add(ProgressBar::new(length as u64));
            let style = ProgressStyle::with_template(&format!(
                "{{wide_bar}} {{human_pos:>9}} of {{human_len:>9}} {what:<15}"
            ));
            // The default style stays when the template is refused.
            if let Ok(style) = style {
                bar.set_style(style);
            }
            bar
        };
        Self {
            sorted: bar(files, "log files"),
            merged: bar(lines, "lines by hour"),
            held: bar(permits as usize, "slots held"),
            all,
            quiet,
            errors: 0,
        }
    }

    pub(crate) fn progress(&self, progress: Progress) {
        self.sorted.set_position(progress.sorted as u64);
        self.merged.set_position(progress.merged as u64);
        self.held.set_position(progress.held as u64);
    }

    /// Shows how many log files have been generated.
    pub(crate) fn made(&self, files: usize) {
        self.sorted.set_position(files as u64);
    }

    pub(crate) fn say(&self, message: &str) {
        self.all.suspend(|| eprintln!("{message}"));
    }

    /// Prints a message, unless `quiet` is set.
    pub(crate) fn mention(&self, message: &str) {
        if !self.quiet {
            self.say(message);
        }
    }

    /// Prints an error, if it is one of the first: there may be thousands.
    pub(crate) fn error(&mut self, message: &str) {
        self.errors += 1;
        if self.errors <= PRINTED {
            self.say(&format!("error: {message}"));
        }
    }

    pub(crate) fn end(&self) {
        for bar in [&self.sorted, &self.merged, &self.held] {
            bar.finish_and_clear();
        }
        if self.errors > PRINTED {
            self.say(&format!("{} more errors", self.errors - PRINTED));
        }
    }
}
