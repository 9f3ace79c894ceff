//! The outcome of a run: a table for people, one line of JSON for programs, and the exit code.

use std::fmt;
use std::process::ExitCode;

use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use serde::Serialize;

use crate::arguments::{Arguments, Careless};
use crate::check::Verdict;
use crate::office::Counts;

/// The exit code that shells report for a program ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    backend: &'static str,
    meetings: u32,
    /// The number of passes in the table, and of passes whose COMMIT succeeded.
    passes: usize,
    issued: usize,
    organisers: usize,
    gaps: usize,
    repeats: usize,
    /// The number of transactions that failed after drawing: all, and by kind.
    rollbacks: usize,
    failed: usize,
    panicked: usize,
    disconnected: usize,
    /// The number of retries of transactions that the database aborted.
    retries: u32,
    errors: usize,
    seconds: f64,
    per_second: f64,
    careless: Option<Careless>,
    interrupted: bool,
}

impl Outcome {
    pub(crate) fn new(
        backend: &'static str,
        arguments: &Arguments,
        counts: &Counts,
        verdict: Verdict,
    ) -> Self {
        let seconds = counts.took.as_secs_f64();
        let issued = u32::try_from(counts.issued).unwrap_or(u32::MAX);
        Self {
            backend,
            meetings: arguments.meetings.get(),
            passes: verdict.passes,
            issued: counts.issued,
            organisers: arguments.organisers.get(),
            gaps: verdict.gaps,
            repeats: verdict.repeats,
            rollbacks: counts.failed + counts.panicked + counts.disconnected,
            failed: counts.failed,
            panicked: counts.panicked,
            disconnected: counts.disconnected,
            retries: counts.retries,
            errors: counts.errors,
            seconds: (seconds * 1000.0).round() / 1000.0,
            per_second: if seconds > 0.0 {
                (f64::from(issued) / seconds * 10.0).round() / 10.0
            } else {
                0.0
            },
            careless: arguments.careless,
            interrupted: counts.interrupted,
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        if !self.is_right() || self.errors > 0 {
            ExitCode::FAILURE
        } else if self.interrupted {
            ExitCode::from(INTERRUPTED)
        } else {
            ExitCode::SUCCESS
        }
    }

    /// Whether the passes of every meeting are numbered from 1, and the table contains exactly the issued passes.
    fn is_right(&self) -> bool {
        self.gaps + self.repeats == 0 && self.passes == self.issued
    }

    fn verdict(&self) -> &'static str {
        match (self.is_right(), self.careless) {
            (true, _) if self.errors > 0 => "right, with errors on the way",
            (true, _) if self.interrupted => "right as far as it came: interrupted",
            (true, _) => "right: the passes of every meeting are numbered 1 to n",
            (false, None) => "WRONG",
            (false, Some(Careless::Max)) => "WRONG: others read the same largest number",
            (false, Some(Careless::OwnTransaction)) => {
                "WRONG: numbers are lost when passes are not issued"
            }
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbering = if self.careless.is_some() {
            "WITHOUT the gap-free sequence"
        } else {
            "by a gap-free sequence for each meeting"
        };
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.add_row([
            "organisers".to_owned(),
            format!(
                "{} on {}, numbering {numbering}",
                self.organisers, self.backend
            ),
        ]);
        table.add_row([
            "issued".to_owned(),
            format!("{} passes for {} meetings", self.issued, self.meetings),
        ]);
        table.add_row([
            "rolled back".to_owned(),
            format!(
                "{} transactions: {} errors, {} panics, {} lost connections",
                self.rollbacks, self.failed, self.panicked, self.disconnected
            ),
        ]);
        if self.retries > 0 {
            table.add_row([
                "retries".to_owned(),
                format!("{} transactions", self.retries),
            ]);
        }
        table.add_row([
            "speed".to_owned(),
            format!(
                "{:.0} passes per second, for {:.1} s",
                self.per_second, self.seconds
            ),
        ]);
        table.add_row([
            "check".to_owned(),
            format!(
                "{} passes stored, {} gaps, {} repeats, {} errors",
                self.passes, self.gaps, self.repeats, self.errors
            ),
        ]);
        table.add_row(["verdict", self.verdict()]);
        write!(f, "{table}")
    }
}
