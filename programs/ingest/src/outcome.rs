//! The outcome of a run: its figures, the verdict and the exit code.

use std::process::ExitCode;

use program_support::database::Engine;
use program_support::outcome::{INTERRUPTED, Verdict, per_second, tenths, thousandths};
use serde::Serialize;

use crate::check::CheckResult;
use crate::coordinator::RunTotals;
use crate::job::{Job, Locking, total};

/// The exit code if documents were rejected, and nothing else is wrong.
const REJECTED: u8 = 3;

#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    backend: Engine,
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
    #[serde(flatten)]
    checked: CheckResult,
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
    pub(crate) fn new(job: &Job, run: &RunTotals, checked: CheckResult) -> Self {
        let totals = run.total();
        let seconds = run.took.as_secs_f64();
        Self {
            backend: job.database.engine,
            documents: job.source.len(),
            deliveries: total(job),
            handled: totals.handled,
            inserted: totals.inserted,
            updated: totals.updated,
            dropped: totals.dropped,
            processes: job.writers,
            threads: job.threads,
            checked,
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
        self.checked.missing + self.checked.stale + self.checked.duplicates == 0
    }

    fn is_all_rejected(&self) -> bool {
        self.rejected == self.documents
    }

    pub(crate) fn verdict(&self) -> Verdict {
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
