//! A run: starts the writers, counts their reports, and checks the result.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use program_support::connection::AnyConnection;
use program_support::database::Database;
use program_support::outcome::{
    Errors, INTERRUPTED, Verdict, json, milliseconds, per_second, print, thousandths,
};
use program_support::processes::{Children, Event};

use crate::Options;
use crate::check::Expected;
use crate::source::Source;
use crate::store;
use crate::writer::{Fate, Job, REPEAT, Report};

/// The exit code if documents were rejected, and nothing else is wrong.
const REJECTED: u8 = 3;

/// Runs the program with these options.
pub(crate) fn ingest(options: &Options, database: &Database) -> Result<ExitCode> {
    let mut writers = Children::new()?;
    let source = options.source()?;
    let mut conn = AnyConnection::open(database)?;
    diesel_locks::migrate(&mut conn)?;
    store::create_table(&mut conn)?;
    let before = store::all_rows(&mut conn)?;
    let mut rejected = 0;
    let expected = Expected::of(&source, &before, |index, reason| {
        rejected += 1;
        eprintln!("rejected: {}: {reason:#}", source.name(index));
    });
    let duplicates = expected.compare(&before).duplicates;
    ensure!(
        duplicates == 0,
        "the table has {duplicates} duplicates already, from a run with --unlocked: drop ingest_documents"
    );

    let processes = options.processes.get();
    for writer in 0..processes {
        let database = database.clone();
        writers.start(&Job { database, writer })?;
    }
    let counts = Counts::of_writers(writers, &source);
    let checked = expected.compare(&store::all_rows(&mut conn)?);
    let times = match source {
        Source::Generated(_) => 1,
        Source::Files(_) => processes * REPEAT,
    };
    let outcome = json!({
        "backend": database.engine,
        // Different ones, and those that all writers get together.
        "documents": source.len(),
        "deliveries": source.len() * times,
        "handled": counts.handled,
        "inserted": counts.inserted,
        "updated": counts.updated,
        "dropped": counts.dropped,
        "processes": processes,
        "threads": options.threads,
        "stored": checked.stored,
        "missing": checked.missing,
        "stale": checked.stale,
        "duplicates": checked.duplicates,
        "errors": counts.errors.0,
        "rejected": rejected,
        "retries": counts.retries,
        "waits": counts.waits,
        "longest_wait_ms": milliseconds(counts.longest_wait),
        "seconds": thousandths(counts.took.as_secs_f64()),
        "per_second": per_second(counts.handled, counts.took),
        "locked": !options.unlocked,
        "writers_died": counts.writers_died,
        "interrupted": counts.interrupted,
    });
    let is_right = checked.missing + checked.stale + checked.duplicates == 0;
    let verdict = verdict(is_right, !options.unlocked, rejected, &counts);
    Ok(print(&outcome, verdict, options.output.json))
}

/// Without the lock wrong results are expected, and no failure.
fn verdict(is_right: bool, locked: bool, rejected: usize, counts: &Counts) -> Verdict {
    if counts.interrupted {
        Verdict(INTERRUPTED, "interrupted")
    } else if counts.writers_died > 0 {
        Verdict(1, "a writer died")
    } else if !is_right && locked {
        Verdict(1, "WRONG")
    } else if !is_right {
        Verdict(0, "WRONG, as expected without the lock")
    } else if counts.errors.0 > 0 && locked {
        Verdict(1, "right, but with errors")
    } else if counts.errors.0 > 0 {
        Verdict(0, "right, but with errors, which the lock prevents")
    } else if rejected > 0 {
        Verdict(
            REJECTED,
            "right, but without the documents that were rejected",
        )
    } else {
        Verdict(0, "right: every id is stored once, in its newest version")
    }
}

/// The time from which acquiring a lock counts as a wait. Without a wait the statements take less, unless the machine
/// is busy.
const WAIT: Duration = Duration::from_millis(5);

/// The totals of the writers' reports.
#[derive(Default)]
struct Counts {
    /// Deliveries that were inserted, updated, dropped or rejected, or that failed.
    handled: usize,
    inserted: usize,
    updated: usize,
    dropped: usize,
    errors: Errors,
    retries: u32,
    /// Locks that took at least [`WAIT`] to acquire.
    waits: usize,
    writers_died: usize,
    interrupted: bool,
    longest_wait: Duration,
    /// The time from the start of the writers to the last document.
    took: Duration,
}

impl Counts {
    /// Returns when all writers have ended.
    fn of_writers(mut writers: Children<Report>, source: &Source) -> Self {
        let mut counts = Self::default();
        let began = Instant::now();
        while writers.are_running() {
            match writers.next(Duration::from_millis(100)) {
                Some(Event::Reported(_, report)) => {
                    counts.add(&report, source);
                    counts.took = began.elapsed();
                }
                Some(Event::Ended(writer, Err(error))) => {
                    counts.writers_died += 1;
                    let subject = format!("writer {}", writer + 1);
                    counts.errors.add(&subject, &format!("{error:#}"));
                }
                _ => {}
            }
        }
        counts.interrupted = writers.interrupted;
        counts
    }

    fn add(&mut self, report: &Report, source: &Source) {
        self.handled += 1;
        match report {
            Report::Upserted(upserted) => {
                match upserted.fate {
                    Fate::Inserted => self.inserted += 1,
                    Fate::Updated => self.updated += 1,
                    Fate::Dropped => self.dropped += 1,
                }
                self.retries += upserted.retries;
                self.waits += usize::from(upserted.waited >= WAIT);
                self.longest_wait = self.longest_wait.max(upserted.waited);
            }
            Report::Rejected => {}
            Report::Failed { index, error } => self.errors.add(&source.name(*index), error),
        }
    }
}
