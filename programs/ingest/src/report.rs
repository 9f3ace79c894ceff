//! A writer's reports to the coordinator: lines of JSON on its standard output.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::upsert::{Fate, Upserted};

/// The time from which acquiring a lock counts as a wait. Without a wait the statements take less, unless the machine
/// is busy.
pub(crate) const WAIT: Duration = Duration::from_millis(5);

#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Report {
    /// The writer is connected and waits for the start.
    Ready,
    /// The totals so far.
    Progress(Totals),
    /// The document with this index can't be read.
    Rejected { index: usize, reason: String },
    /// Storing the document with this index failed.
    Failed { index: usize, error: String },
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Totals {
    /// Documents that were inserted, updated, dropped or rejected, or that failed.
    pub(crate) handled: usize,
    pub(crate) inserted: usize,
    pub(crate) updated: usize,
    pub(crate) dropped: usize,
    pub(crate) errors: usize,
    pub(crate) retries: u32,
    /// Locks that took at least [`WAIT`] to acquire.
    pub(crate) waits: usize,
    pub(crate) longest_wait: Duration,
}

impl Totals {
    pub(crate) fn add_upserted(&mut self, upserted: &Upserted) {
        self.handled += 1;
        match upserted.fate {
            Fate::Inserted => self.inserted += 1,
            Fate::Updated => self.updated += 1,
            Fate::Dropped => self.dropped += 1,
        }
        self.retries += upserted.retries;
        self.waits += usize::from(upserted.waited >= WAIT);
        self.longest_wait = self.longest_wait.max(upserted.waited);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.handled += other.handled;
        self.inserted += other.inserted;
        self.updated += other.updated;
        self.dropped += other.dropped;
        self.errors += other.errors;
        self.retries += other.retries;
        self.waits += other.waits;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
    }
}
