//! The outcome of a measurement: a table for people, one line of JSON for programs, and the exit code.

use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

use program_support::outcome::{OutcomeTable, Verdict, thousandths};
use serde::Serialize;

use crate::arguments::MeasureArguments;
use crate::check::Checked;
use crate::measure::Seen;
use crate::store::Store;
use crate::witness::Witness;

#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    backend: &'static str,
    clients: u32,
    seconds: u64,
    /// Revisions of the document: stored, and answered.
    stored: usize,
    answered: usize,
    reports: usize,
    hung_up: usize,
    /// Closures that were dropped before their end, because their clients hung up.
    cut_off: usize,
    busy: usize,
    missing: usize,
    repeats: usize,
    gaps: usize,
    unexplained: usize,
    /// Closures that ran while too many others did.
    overlaps: usize,
    /// Requests that waited after all clients had gone.
    left_waiting: usize,
    /// Locks that were not free then.
    left_locked: usize,
    errors: usize,
    /// How long the lock was acquired, the document revised and committed, after the last client had gone.
    free_after_ms: Option<f64>,
    /// The same after the client had hung up whose closure was cut off first.
    free_after_cut_off_ms: Option<f64>,
    health_checks: usize,
    health_median_ms: f64,
    health_slowest_ms: f64,
}

impl Outcome {
    pub(crate) fn new(
        store: &dyn Store,
        options: &MeasureArguments,
        seen: &Seen,
        checked: &Checked,
        mut health: Vec<Duration>,
        free_after: Option<Duration>,
        left_waiting: usize,
    ) -> Self {
        health.sort_unstable();
        let middle = health.get(health.len() / 2).copied().unwrap_or_default();
        let slowest = health.last().copied().unwrap_or_default();
        let overlaps = store.witnesses().map(Witness::violations);
        Self {
            backend: store.engine(),
            clients: options.clients,
            seconds: options.seconds,
            stored: checked.stored,
            answered: seen.revisions.len(),
            reports: seen.reports,
            hung_up: seen.hung_up,
            cut_off: seen.cut_off,
            busy: seen.busy,
            missing: checked.missing,
            repeats: checked.repeats,
            gaps: checked.gaps,
            unexplained: checked.unexplained,
            overlaps: overlaps.iter().sum(),
            left_waiting,
            left_locked: usize::from(free_after.is_none()),
            errors: seen.errors,
            free_after_ms: free_after.map(millis),
            free_after_cut_off_ms: seen.free_after_cut_off.map(millis),
            health_checks: health.len(),
            health_median_ms: millis(middle),
            health_slowest_ms: millis(slowest),
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        if self.faults() == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    fn faults(&self) -> usize {
        self.missing
            + self.repeats
            + self.gaps
            + self.unexplained
            + self.overlaps
            + self.left_waiting
            + self.left_locked
            + self.errors
    }
}

fn millis(time: Duration) -> f64 {
    thousandths(time.as_secs_f64() * 1e3)
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = OutcomeTable::default();
        let free = self.free_after_ms.map_or_else(
            || "the lock was NOT free afterwards".to_owned(),
            |ms| format!("the lock was free, and the document revised, {ms:.1} ms afterwards"),
        );
        let cut_off = self.free_after_cut_off_ms.map_or_else(String::new, |ms| {
            format!("; the next client had its answer {ms:.1} ms after the first of them")
        });
        table
            .row(
                "revisions",
                format!(
                    "{} stored, {} answered, {} clients hung up, {} were told to try again",
                    self.stored, self.answered, self.hung_up, self.busy
                ),
            )
            .row(
                "cut off",
                format!("{} closures before their end{cut_off}", self.cut_off),
            )
            .row("reports", self.reports.to_string())
            .row(
                "health",
                format!(
                    "{} checks meanwhile: median {:.1} ms, slowest {:.1} ms",
                    self.health_checks, self.health_median_ms, self.health_slowest_ms
                ),
            )
            .row(
                "check",
                format!(
                    "{} missing, {} repeats, {} gaps, {} unexplained, {} overlaps, {} errors",
                    self.missing,
                    self.repeats,
                    self.gaps,
                    self.unexplained,
                    self.overlaps,
                    self.errors
                ),
            )
            .row(
                "left",
                format!("{} requests that wait; {free}", self.left_waiting),
            );
        let verdict = if self.faults() == 0 {
            Verdict::Right("right: every answered revision is stored once, and nothing is left")
        } else {
            Verdict::Wrong("WRONG")
        };
        table.write(f, verdict)
    }
}
