//! Computes independently what must be in the table, and compares.
//!
//! Shares no code with the writers but the reading of files: no lock, no comparison of versions, and no statement.
//! Generated documents are not parsed at all.

use std::collections::HashMap;

use anyhow::{Error, Result};
use chrono::NaiveDateTime;
use sha2::{Digest as _, Sha256};

use crate::document::{Digest, Document};
use crate::source::Source;
use crate::store::Row;

/// Orders the documents of one id.
type Age = (NaiveDateTime, Digest);

/// The newest document of each id.
pub(crate) struct Expected(HashMap<String, Age>);

/// How the table differs from what is expected, in numbers of ids.
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

impl Expected {
    /// The newest version of each id, among the documents and the rows from before the run. Calls `reject` with the
    /// documents that can't be read.
    pub(crate) fn of(
        source: &Source,
        before: &[Row],
        mut reject: impl FnMut(usize, &Error),
    ) -> Self {
        let mut newest: HashMap<String, Age> = HashMap::new();
        for index in 0..source.len() {
            match read(source, index) {
                Ok((id, age)) => {
                    let newest = newest.entry(id).or_insert_with(|| age.clone());
                    if age > *newest {
                        *newest = age;
                    }
                }
                Err(reason) => reject(index, &reason),
            }
        }
        for row in before {
            if let Some(newest) = newest.get_mut(&row.id)
                && age(row) > *newest
            {
                *newest = age(row);
            }
        }
        Self(newest)
    }

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

fn read(source: &Source, index: usize) -> Result<(String, Age)> {
    match source {
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

    /// The rows of all documents, the newest of each id first.
    fn all_rows() -> Vec<Row> {
        let generator = Generator::new(1, 200);
        let rows = (0..200).map(|index| {
            let document = generator.document(index);
            Row {
                seq: 1,
                id: document.id,
                timestamp: document.timestamp,
                body: document.xml.into_bytes(),
            }
        });
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by(|a, b| (&a.id, b.timestamp).cmp(&(&b.id, a.timestamp)));
        rows
    }

    /// The ids that are stored, missing and stale, and the duplicates, after a change of the right rows.
    fn verdict(change: impl FnOnce(&mut Vec<Row>)) -> [usize; 4] {
        let source = Source::Generated(Generator::new(1, 200));
        let mut rows = all_rows();
        rows.dedup_by(|later, earlier| later.id == earlier.id);
        change(&mut rows);
        let expected = Expected::of(&source, &[], |_, reason| panic!("{reason}"));
        let found = expected.compare(&rows);
        [found.stored, found.missing, found.stale, found.duplicates]
    }

    #[test]
    fn finds_what_is_missing_stale_truncated_and_there_twice() {
        assert_eq!(verdict(|_| ()), [10, 0, 0, 0]);
        assert_eq!(verdict(|rows| drop(rows.pop())), [9, 1, 0, 0]);
        assert_eq!(verdict(|rows| rows.push(rows[0].clone())), [10, 0, 0, 1]);
        assert_eq!(verdict(|rows| rows[0].body.truncate(100)), [10, 0, 1, 0]);
        let oldest = all_rows().pop().unwrap();
        assert_eq!(verdict(|rows| rows[9] = oldest), [10, 0, 1, 0]);
    }
}
