//! What the coordinator and the writers tell each other: lines of JSON. Which writer gets which documents, in which order.

use std::time::Duration;

use program_support::database::Database;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use crate::source::Source;
use crate::writer::{Fate, Upserted};

/// A writer's job.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Job {
    pub(crate) database: Database,
    pub(crate) source: Source,
    pub(crate) seed: u64,
    pub(crate) repeat: usize,
    pub(crate) locking: Locking,
    pub(crate) threads: usize,
    /// The number of writers, and the index of this one.
    pub(crate) writers: usize,
    pub(crate) writer: usize,
}

/// What prevents two transactions from changing the same id at the same time.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) enum Locking {
    /// Nothing.
    Unlocked,
    /// The id's object lock, whose row is deleted.
    Transient,
    /// The id's object lock, whose row is kept.
    Kept,
}

/// The indexes of the documents for the job's writer, in order of arrival.
///
/// Generated documents go to the writers in turn, so that successive documents are processed at the same time; each
/// repetition starts with another writer. Files all go to every writer, shuffled each time.
pub(crate) fn deliveries(job: &Job) -> Vec<usize> {
    let all = 0..job.source.len();
    match &job.source {
        Source::Generated(_) => (0..job.repeat)
            .flat_map(|pass| {
                let turn = (job.writer + pass) % job.writers;
                all.clone().skip(turn).step_by(job.writers)
            })
            .collect(),
        Source::Files(_) => {
            let mut chance = StdRng::seed_from_u64(job.seed.wrapping_add(job.writer as u64));
            let mut deliveries = Vec::new();
            for _ in 0..job.repeat {
                let mut pass: Vec<_> = all.clone().collect();
                pass.shuffle(&mut chance);
                deliveries.extend(pass);
            }
            deliveries
        }
    }
}

/// The number of documents that all writers get together.
pub(crate) fn total(job: &Job) -> usize {
    let receivers = match &job.source {
        Source::Generated(_) => 1,
        Source::Files(_) => job.writers,
    };
    job.source.len() * job.repeat * receivers
}

/// The time from which acquiring a lock counts as a wait. Without a wait the statements take less, unless the machine
/// is busy.
const WAIT: Duration = Duration::from_millis(5);

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Generator;

    #[test]
    fn writers_share_generated_documents_and_every_repetition_has_all() {
        let mut all = Vec::new();
        for writer in 0..3 {
            let job = Job {
                database: Database::from_url("a.sqlite").unwrap(),
                source: Source::Generated(Generator::new(1, 10, 5)),
                seed: 1,
                repeat: 2,
                locking: Locking::Transient,
                threads: 1,
                writers: 3,
                writer,
            };
            all.extend(deliveries(&job));
            assert_eq!(total(&job), 20);
        }
        all.sort_unstable();
        let twice: Vec<_> = (0..10).flat_map(|index| [index, index]).collect();
        assert_eq!(all, twice);
    }
}
