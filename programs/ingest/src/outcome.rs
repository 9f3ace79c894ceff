//! The outcome of a run: a table for people, one line of JSON for programs, and the exit code.

use std::fmt;
use std::process::ExitCode;

use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use serde::Serialize;

use crate::check::Verdict;
use crate::gathered::Gathered;
use crate::job::Job;
use crate::registration::Locking;
use crate::report::WAIT;
use crate::schedule;

/// The exit code that shells report for a program ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

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
        gathered: &Gathered,
        verdict: &Verdict,
    ) -> Self {
        let totals = gathered.total();
        let seconds = gathered.took.as_secs_f64();
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
            stored: verdict.stored,
            missing: verdict.missing,
            stale: verdict.stale,
            duplicates: verdict.duplicates,
            errors: totals.errors + gathered.other_errors,
            rejected: gathered.rejected.len(),
            retries: totals.retries,
            waits: totals.waits,
            longest_wait_ms: rounded(totals.longest_wait.as_secs_f64() * 1000.0),
            seconds: (seconds * 1000.0).round() / 1000.0,
            per_second: if seconds > 0.0 {
                rounded(f64::from(u32::try_from(totals.handled).unwrap_or(u32::MAX)) / seconds)
            } else {
                0.0
            },
            locked: !matches!(job.locking, Locking::Unlocked),
            writers_died: gathered.died,
            interrupted: gathered.interrupted,
        }
    }

    /// Without the lock wrong results are expected, and no failure.
    pub(crate) fn exit_code(&self) -> ExitCode {
        if self.interrupted {
            ExitCode::from(INTERRUPTED)
        } else if self.writers_died > 0
            || self.is_all_rejected()
            || (self.locked && !(self.is_right() && self.errors == 0))
        {
            ExitCode::FAILURE
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

    fn verdict(&self) -> &'static str {
        if self.interrupted {
            "interrupted"
        } else if self.writers_died > 0 {
            "a writer died"
        } else if self.is_all_rejected() {
            "every document was rejected"
        } else if self.is_right() && self.errors == 0 {
            "right: every id is stored once, in its newest version"
        } else if self.is_right() {
            "right, with errors on the way"
        } else if self.locked {
            "WRONG"
        } else {
            "WRONG, as can happen without the lock"
        }
    }
}

/// Rounds to tenths.
fn rounded(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lock = if self.locked {
            "under its object lock"
        } else {
            "WITHOUT a lock"
        };
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.add_row([
            "writers".to_owned(),
            format!(
                "{} processes x {} threads on {}, each id {lock}",
                self.processes, self.threads, self.backend
            ),
        ]);
        table.add_row([
            "documents".to_owned(),
            format!(
                "{}, {} of {} deliveries handled",
                self.documents, self.handled, self.deliveries
            ),
        ]);
        table.add_row([
            "of these".to_owned(),
            format!(
                "{} inserted, {} updated, {} dropped, {} errors",
                self.inserted, self.updated, self.dropped, self.errors
            ),
        ]);
        if self.rejected > 0 {
            table.add_row([
                "rejected".to_owned(),
                format!("{} documents", self.rejected),
            ]);
        }
        if self.retries > 0 {
            table.add_row([
                "retries".to_owned(),
                format!("{} transactions", self.retries),
            ]);
        }
        table.add_row([
            "speed".to_owned(),
            format!(
                "{:.0} documents per second, for {:.1} s",
                self.per_second, self.seconds
            ),
        ]);
        if self.locked {
            table.add_row([
                "waits".to_owned(),
                format!(
                    "{} locks took {} ms or longer, the longest {:.1} ms",
                    self.waits,
                    WAIT.as_millis(),
                    self.longest_wait_ms
                ),
            ]);
        }
        table.add_row([
            "check".to_owned(),
            format!(
                "{} ids stored, {} missing, {} stale, {} duplicates",
                self.stored, self.missing, self.stale, self.duplicates
            ),
        ]);
        table.add_row(["verdict", self.verdict()]);
        write!(f, "{table}")
    }
}
