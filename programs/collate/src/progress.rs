//! Progress bars while the nodes work, and what happens to the nodes in one line below them.

use std::fmt::Write;

use indicatif::{
    HumanDuration, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle,
};
use program_support::errors::ErrorCounts;
use program_support::terminal;

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

/// Progress bars, a status line below them, and messages above them. All go to standard error.
pub(crate) struct ProgressBars {
    all: MultiProgress,
    sorted: ProgressBar,
    merged: ProgressBar,
    held: ProgressBar,
    status: ProgressBar,
    quiet: bool,
    errors: ErrorCounts,
}

/// The time that is left.
const LEFT: &str = "{left:10}";

impl ProgressBars {
    /// Without a terminal, only messages are printed; with `quiet`, only errors.
    pub(crate) fn new(files: usize, lines: usize, permits: u32, quiet: bool) -> Self {
        let all = MultiProgress::new();
        if quiet {
            all.set_draw_target(ProgressDrawTarget::hidden());
        }
        let add = |length: usize, template: &str| {
            let bar = all.add(ProgressBar::new(length as u64));
            // The default style stays when the template is refused.
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.with_key("left", left));
            }
            bar
        };
        let bar = |length, what, left| {
            let template =
                format!("{{wide_bar}} {{human_pos:>9}} of {{human_len:>9}} {what:<13} {left}");
            add(length, &template)
        };
        Self {
            sorted: bar(files, "log files", LEFT),
            merged: bar(lines, "lines by hour", LEFT),
            held: bar(permits as usize, "slots held", "          "),
            status: add(0, "{elapsed} {wide_msg}"),
            all,
            quiet,
            errors: ErrorCounts::default(),
        }
    }

    pub(crate) fn show(&self, progress: Progress) {
        self.sorted.set_position(progress.sorted as u64);
        self.merged.set_position(progress.merged as u64);
        self.held.set_position(progress.held as u64);
        self.status.tick();
    }

    /// While the log files are generated.
    pub(crate) fn show_generated(&self, files: usize) {
        self.sorted.set_position(files as u64);
    }

    /// Replaces the status line.
    pub(crate) fn set_status(&self, status: String) {
        self.status.set_message(status);
    }

    /// Prints a message, unless this is quiet.
    pub(crate) fn print(&self, message: &str) {
        if !self.quiet {
            self.all.suspend(|| terminal::print_to_stderr(message));
        }
    }

    /// Prints an error, or counts it if its text was printed before.
    pub(crate) fn print_error(&mut self, subject: &str, text: &str) {
        if let Some(message) = self.errors.add(subject, text) {
            self.all.suspend(|| {
                terminal::print_to_stderr(terminal::error(&message, terminal::stderr_width()));
            });
        }
    }

    /// Removes the bars, and prints how often errors occurred again.
    pub(crate) fn end(&self) {
        for bar in [&self.sorted, &self.merged, &self.held, &self.status] {
            bar.finish_and_clear();
        }
        for line in self.errors.summary() {
            terminal::print_to_stderr(terminal::error(&line, terminal::stderr_width()));
        }
    }
}
/// Writes the time that is left: nothing before the first step and after the last one.
fn left(state: &ProgressState, out: &mut dyn Write) {
    if (1..state.len().unwrap_or(0)).contains(&state.pos()) {
        // Nothing is lost if the bar can't be drawn.
        let _ = write!(out, "{:#} left", HumanDuration(state.eta()));
    }
}
