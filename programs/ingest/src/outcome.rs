//! The outcome of a run: a table for people, one line of JSON for programs, and the exit code.

use std::fmt;
use std::process::ExitCode;

use program_support::outcome::{
    INTERRUPTED, OutcomeTable, Verdict, per_second, tenths, thousandths,
};
use serde::Serialize;

use crate::check::CheckResult;
use crate::job::Job;
use crate::report::WAIT;
use crate::run_totals::RunTotals;
use crate::schedule;
use crate::upsert::Locking;

/// The exit code if documents were rejected, and nothing else is wrong.
const REJECTED: u8 = 3;

#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    backend: &'static str,
    /// The number of different documents.
    documents: usize,
    /// The number of deliveries to writers: planned and completed.
    deliveries: usize,
    handled: usize,
    inserted: usize,
    updated: usize,
    dropped: usize,
    processes: usize,
    threads: usize,
    stored: usize,
    missing: usize,
    stale: usize,
    duplicates: usize,
    errors: usize,
    rejected: usize,
    retries: u32,
    waits: usize,
    longest_wait_ms: f64,
    seconds: f64,
    per_second: f64,
    locked: bool,
    writers_died: usize,
    interrupted: bool,
}

impl Outcome {
    pub(crate) fn new(
        backend: &'static str,
        job: &Job,
        run: &RunTotals,
        checked: &CheckResult,
    ) -> Self {
        let totals = run.total();
        let seconds = run.took.as_secs_f64();
        Self {
            backend,
            documents: job.source.len(),
            deliveries: schedule::total(job),
            handled: totals.handled,
            inserted: totals.inserted,
            updated: totals.updated,
            dropped: totals.dropped,
            processes: job.writers,
            threads: job.threads,
            stored: checked.stored,
            missing: checked.missing,
            stale: checked.stale,
            duplicates: checked.duplicates,
            errors: totals.errors + run.other_errors,
            rejected: run.rejected.len(),
            retries: totals.retries,
            waits: totals.waits,
            longest_wait_ms: tenths(totals.longest_wait.as_secs_f64() * 1000.0),
            seconds: thousandths(seconds),
            per_second: per_second(totals.handled, seconds),
            locked: !matches!(job.locking, Locking::Unlocked),
            writers_died: run.died,
            interrupted: run.interrupted,
        }
    }

    /// Without the lock wrong results are expected, and no failure.
    pub(crate) fn exit_code(&self) -> ExitCode {
        if self.interrupted {
            ExitCode::from(INTERRUPTED)
        } else if self.writers_died > 0 || (self.locked && !(self.is_right() && self.errors == 0)) {
            ExitCode::FAILURE
        } else if self.rejected > 0 {
            ExitCode::from(REJECTED)
        } else {
            ExitCode::SUCCESS
        }
    }

    /// Whether documents are left for another run.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.interrupted || self.writers_died > 0
    }

    /// Whether the table contains what it must.
    fn is_right(&self) -> bool {
        self.missing + self.stale + self.duplicates == 0
    }

    fn is_all_rejected(&self) -> bool {
        self.rejected == self.documents
    }

    fn verdict(&self) -> Verdict {
        if self.interrupted {
            Verdict::Doubtful("interrupted")
        } else if self.writers_died > 0 {
            Verdict::Wrong("a writer died")
        } else if self.is_all_rejected() {
            Verdict::Wrong("every document was rejected")
        } else if self.is_right() && self.errors == 0 && self.rejected > 0 {
            Verdict::Doubtful("right, but without the documents that were rejected")
        } else if self.is_right() && self.errors == 0 {
            Verdict::Right("right: every id is stored once, in its newest version")
        } else if self.is_right() && self.locked {
            Verdict::Wrong("right, but with errors")
        } else if self.is_right() {
            Verdict::Doubtful("right, but with errors, which the lock prevents")
        } else if self.locked {
            Verdict::Wrong("WRONG")
        } else {
            Verdict::Doubtful("WRONG, as expected without the lock")
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lock = if self.locked {
            "each id under its object lock"
        } else {
            "WITHOUT locks"
        };
        let mut table = OutcomeTable::default();
        table
            .row(
                "writers",
                format!(
                    "{} processes x {} threads on {}, {lock}",
                    self.processes, self.threads, self.backend
                ),
            )
            .row(
                "documents",
                format!(
                    "{}, {} of {} deliveries handled",
                    self.documents, self.handled, self.deliveries
                ),
            )
            .row(
                "of these",
                format!(
                    "{} inserted, {} updated, {} dropped, {} errors",
                    self.inserted, self.updated, self.dropped, self.errors
                ),
            );
        if self.rejected > 0 {
            table.row("rejected", format!("{} documents", self.rejected));
        }
        if self.retries > 0 {
            table.row("retries", format!("{} transactions", self.retries));
        }
        table.row(
            "speed",
            format!(
                "{:.0} documents per second, for {:.1} s",
                self.per_second, self.seconds
            ),
        );
        if self.locked {
            table.row(
                "waits",
                format!(
                    "{} locks took {} ms or longer, the longest {:.1} ms",
                    self.waits,
                    WAIT.as_millis(),
                    self.longest_wait_ms
                ),
            );
        }
        table.row(
            "check",
            format!(
                "{} ids stored, {} missing, {} stale, {} duplicates",
                self.stored, self.missing, self.stale, self.duplicates
            ),
        );
        table.write(f, self.verdict())
    }
}
