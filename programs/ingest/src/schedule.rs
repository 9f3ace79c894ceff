//! Which writer gets which documents, in which order.

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use crate::job::Job;
use crate::source::Source;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::Generator;
    use crate::upsert::Locking;

    #[test]
    fn writers_share_generated_documents_and_every_repetition_has_all() {
        let mut all = Vec::new();
        for writer in 0..3 {
            let job = Job {
                database_url: String::new(),
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
