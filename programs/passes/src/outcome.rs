//! The outcome of a run: a table for people, one line of JSON for programs, and the exit code.

use std::fmt;
use std::process::ExitCode;

use program_support::outcome::{INTERRUPTED, OutcomeTable, Verdict, per_second, thousandths};
use serde::Serialize;

use crate::arguments::{Arguments, Careless};
use crate::check::CheckResult;
use crate::coordinator::Counts;

#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    backend: &'static str,
    meetings: u32,
    /// The number of passes in the table, and of passes whose COMMIT succeeded.
    passes: usize,
    issued: usize,
    workers: usize,
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
        checked: CheckResult,
    ) -> Self {
        let seconds = counts.took.as_secs_f64();
        Self {
            backend,
            meetings: arguments.meetings.get(),
            passes: checked.passes,
            issued: counts.issued,
            workers: arguments.workers.get(),
            gaps: checked.gaps,
            repeats: checked.repeats,
            rollbacks: counts.failed + counts.panicked + counts.disconnected,
            failed: counts.failed,
            panicked: counts.panicked,
            disconnected: counts.disconnected,
            retries: counts.retries,
            errors: counts.errors,
            seconds: thousandths(seconds),
            per_second: per_second(counts.issued, seconds),
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

    fn verdict(&self) -> Verdict {
        match (self.is_right(), self.careless) {
            (true, _) if self.errors > 0 => Verdict::Wrong("right, but with errors"),
            (true, _) if self.interrupted => Verdict::Doubtful("interrupted; right so far"),
            (true, _) => Verdict::Right("right: the passes of every meeting are numbered 1 to n"),
            (false, None) => Verdict::Wrong("WRONG"),
            (false, Some(Careless::Max)) => {
                Verdict::Wrong("WRONG: several workers read the same largest number")
            }
            (false, Some(Careless::OwnTransaction)) => {
                Verdict::Wrong("WRONG: the numbers of passes that were not issued are lost")
            }
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbering = if self.careless.is_some() {
            "WITHOUT the gap-free sequence"
        } else {
            "numbers from a gap-free sequence for each meeting"
        };
        let mut table = OutcomeTable::default();
        table
            .row(
                "workers",
                format!("{} on {}, {numbering}", self.workers, self.backend),
            )
            .row(
                "issued",
                format!("{} passes for {} meetings", self.issued, self.meetings),
            )
            .row(
                "rolled back",
                format!(
                    "{} transactions: {} errors, {} panics, {} lost connections",
                    self.rollbacks, self.failed, self.panicked, self.disconnected
                ),
            );
        if self.retries > 0 {
            table.row("retries", format!("{} transactions", self.retries));
        }
        table
            .row(
                "speed",
                format!(
                    "{:.0} passes per second, for {:.1} s",
                    self.per_second, self.seconds
                ),
            )
            .row(
                "check",
                format!(
                    "{} passes stored, {} gaps, {} repeats, {} errors",
                    self.passes, self.gaps, self.repeats, self.errors
                ),
            );
        table.write(f, self.verdict())
    }
}
