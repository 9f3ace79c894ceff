//! Computes independently what must be in the table, and compares.
//!
//! Shares no code with the writers but the reading of files: no lock, no comparison of versions, and no statement.
//! Generated documents are not parsed at all.

use std::cmp::max;
use std::collections::{BTreeMap, HashMap, HashSet};

use anyhow::Result;
use chrono::NaiveDateTime;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::document::{Digest, Document};
use crate::source::Source;
use crate::store::Row;

/// Orders the documents of one id.
type Age = (NaiveDateTime, Digest);

/// All documents of a run, as read by the check.
pub(crate) struct Delivered {
    documents: Vec<Result<(String, Age)>>,
}

/// The newest document of each id.
pub(crate) struct Expected(HashMap<String, Age>);

/// How the table differs from what is expected, in numbers of ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct CheckResult {
    /// Ids in the table.
    pub(crate) stored: usize,
    /// Ids that are missing.
    pub(crate) missing: usize,
    /// Ids with a version that is not the newest.
    pub(crate) stale: usize,
    /// Rows beyond the first of an id.
    pub(crate) duplicates: usize,
}

impl Delivered {
    pub(crate) fn read(source: &Source) -> Self {
        let documents = (0..source.len()).map(|index| match source {
            Source::Generated(generator) => {
                let document = generator.document(index);
                let digest = digest(document.xml.as_bytes());
                Ok((document.id, (document.timestamp, digest)))
            }
            Source::Files(_) => {
                let document = Document::read(source.read(index)?, &source.elements())?;
                let digest = digest(&document.body);
                Ok((document.id, (document.version.timestamp, digest)))
            }
        });
        Self {
            documents: documents.collect(),
        }
    }

    /// Whether a run with these documents that was stopped can have left these rows: at most one version of each id,
    /// and some work left.
    pub(crate) fn were_begun(&self, rows: &[Row]) -> bool {
        let digests: HashSet<_> = self
            .documents
            .iter()
            .flatten()
            .map(|(_, age)| &age.1)
            .collect();
        let verdict = self.expected(&BTreeMap::new(), &[]).compare(rows);
        !rows.is_empty()
            && verdict.duplicates == 0
            && verdict.missing + verdict.stale > 0
            && rows.iter().all(|row| digests.contains(&digest(&row.body)))
    }

    /// The newest version of each id, among the documents that were not rejected and the rows from before the run.
    pub(crate) fn expected(&self, rejected: &BTreeMap<usize, String>, before: &[Row]) -> Expected {
        let mut newest: HashMap<String, Age> = HashMap::new();
        for (index, document) in self.documents.iter().enumerate() {
            let Ok((id, age)) = document else { continue };
            if rejected.contains_key(&index) {
                continue;
            }
            newest
                .entry(id.clone())
                .and_modify(|newest| {
                    if age > newest {
                        newest.clone_from(age);
                    }
                })
                .or_insert_with(|| age.clone());
        }
        for row in before {
            if let Some(newest) = newest.get_mut(&row.id) {
                *newest = max(newest.clone(), age(row));
            }
        }
        Expected(newest)
    }
}

impl Expected {
    pub(crate) fn compare(&self, rows: &[Row]) -> CheckResult {
        let mut found: HashMap<&str, Vec<Age>> = HashMap::new();
        for row in rows.iter().filter(|row| self.0.contains_key(&row.id)) {
            found.entry(&row.id).or_default().push(age(row));
        }
        let is_stale = |(id, ages): &(&&str, &Vec<Age>)| !ages.contains(&self.0[**id]);
        CheckResult {
            stored: found.len(),
            missing: self.0.len() - found.len(),
            stale: found.iter().filter(is_stale).count(),
            duplicates: found.values().map(|ages| ages.len() - 1).sum(),
        }
    }
}

/// Computed from the stored text, so that a truncated text is detected.
fn age(row: &Row) -> Age {
    (row.timestamp, digest(&row.body))
}

fn digest(text: &[u8]) -> Digest {
    Sha256::digest(text).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Generator;

    fn delivered() -> (Delivered, Generator) {
        let generator = Generator::new(1, 300, 10);
        let delivered = Delivered::read(&Source::Generated(generator.clone()));
        (delivered, generator)
    }

    fn row(generator: &Generator, index: usize) -> Row {
        let document = generator.document(index);
        Row {
            seq: 1,
            id: document.id,
            timestamp: document.timestamp,
            body: document.xml.into_bytes(),
            generated: true,
        }
    }

    /// The rows that must be in the table: of each id the one with the latest timestamp.
    fn right_rows(generator: &Generator) -> Vec<Row> {
        let mut rows: Vec<_> = (0..generator.len())
            .map(|index| row(generator, index))
            .collect();
        rows.sort_by(|a, b| (&a.id, b.timestamp).cmp(&(&b.id, a.timestamp)));
        rows.dedup_by(|later, earlier| later.id == earlier.id);
        rows
    }

    fn verdict(change: impl FnOnce(&mut Vec<Row>, &Generator)) -> (usize, usize, usize, usize) {
        let (delivered, generator) = delivered();
        let mut rows = right_rows(&generator);
        change(&mut rows, &generator);
        let verdict = delivered.expected(&BTreeMap::new(), &[]).compare(&rows);
        (
            verdict.stored,
            verdict.missing,
            verdict.stale,
            verdict.duplicates,
        )
    }

    #[test]
    fn the_newest_of_each_id_is_right() {
        assert_eq!(verdict(|_, _| ()), (10, 0, 0, 0));
    }

    #[test]
    fn finds_missing_ids_and_duplicates() {
        assert_eq!(verdict(|rows, _| drop(rows.pop())), (9, 1, 0, 0));
        assert_eq!(verdict(|rows, _| rows.push(rows[0].clone())), (10, 0, 0, 1));
        assert_eq!(verdict(|rows, _| rows.clear()), (0, 10, 0, 0));
    }

    #[test]
    fn finds_old_versions_and_half_texts() {
        let first = |rows: &mut Vec<Row>, generator: &Generator| {
            let old = row(generator, 0);
            let place = rows.iter().position(|row| row.id == old.id).unwrap();
            rows[place] = old;
        };
        assert_eq!(verdict(first), (10, 0, 1, 0));
        assert_eq!(verdict(|rows, _| rows[0].body.truncate(100)), (10, 0, 1, 0));
    }

    #[test]
    fn stored_version_may_be_newer() {
        let (delivered, generator) = delivered();
        let mut rows = right_rows(&generator);
        rows[0].timestamp += chrono::TimeDelta::days(1);
        let expected = delivered.expected(&BTreeMap::new(), &rows[..1]);
        assert_eq!(expected.compare(&rows).stale, 0);
    }

    #[test]
    fn tells_a_begun_run_from_a_finished_one_and_from_another() {
        let (delivered, generator) = delivered();
        let mut rows = right_rows(&generator);
        assert!(!delivered.were_begun(&[]));
        assert!(!delivered.were_begun(&rows), "finished");
        let last = rows.pop().unwrap();
        assert!(delivered.were_begun(&rows));
        rows.push(row(&Generator::new(2, 300, 10), 0));
        assert!(!delivered.were_begun(&rows), "another run's row");
        rows.pop();
        rows.extend([last.clone(), last]);
        assert!(!delivered.were_begun(&rows), "a duplicate");
    }
}
