//! The independent computation of what must be in the table, and the comparison with what is.
//!
//! It shares no code with what the writers do: no lock, no comparison of versions, no statement, and
//! another XML library. Generated documents it does not parse at all.

use std::cmp::max;
use std::collections::{BTreeMap, HashMap, HashSet};

use anyhow::{Context, Result};
use chrono::NaiveDateTime;
use roxmltree::{Document, Node, ParsingOptions};
use sha2::{Digest as _, Sha256};

use crate::document::Digest;
use crate::files::Files;
use crate::source::Source;
use crate::store::Row;
use crate::{encoding, timestamp};

/// Orders the documents of one id.
type Age = (NaiveDateTime, Digest);

/// All documents of a run, as the check reads them.
pub(crate) struct Delivered {
    documents: Vec<Result<(String, Age)>>,
}

/// The newest document of each id.
pub(crate) struct Expected(HashMap<String, Age>);

/// How the table differs from the expectation, in ids.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Ids that are there.
    pub(crate) stored: usize,
    /// Ids that are not.
    pub(crate) missing: usize,
    /// Ids with another version than the newest.
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
            Source::Files(files) => read_file(files, index),
        });
        Self {
            documents: documents.collect(),
        }
    }

    /// Whether these rows are what a run of these documents leaves when it is stopped half-way: of each
    /// id one version at most, and something left to do.
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

    /// The newest of each id among the documents that were not rejected and what was stored before.
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

    /// Documents that the writers took and the check can't read: one of the two is wrong.
    pub(crate) fn disputed(&self, rejected: &BTreeMap<usize, String>) -> Vec<(usize, String)> {
        let unread = self
            .documents
            .iter()
            .enumerate()
            .filter_map(|(index, document)| {
                let reason = document.as_ref().err()?;
                Some((index, format!("{reason:#}")))
            });
        unread
            .filter(|(index, _)| !rejected.contains_key(index))
            .collect()
    }
}

impl Expected {
    pub(crate) fn compare(&self, rows: &[Row]) -> Verdict {
        let mut found: HashMap<&str, Vec<Age>> = HashMap::new();
        for row in rows.iter().filter(|row| self.0.contains_key(&row.id)) {
            found.entry(&row.id).or_default().push(age(row));
        }
        let is_stale = |(id, ages): &(&&str, &Vec<Age>)| !ages.contains(&self.0[**id]);
        Verdict {
            stored: found.len(),
            missing: self.0.len() - found.len(),
            stale: found.iter().filter(is_stale).count(),
            duplicates: found.values().map(|ages| ages.len() - 1).sum(),
        }
    }
}

/// By the text itself, so that half a text would be found.
fn age(row: &Row) -> Age {
    (row.timestamp, digest(&row.body))
}

fn digest(text: &[u8]) -> Digest {
    Sha256::digest(text).to_vec()
}

fn read_file(files: &Files, index: usize) -> Result<(String, Age)> {
    let bytes = files.read(index)?;
    let text = encoding::decode(&bytes)?;
    let options = ParsingOptions {
        allow_dtd: true,
        ..ParsingOptions::default()
    };
    let document = Document::parse_with_options(&text, options)?;
    let id = text_of(&document, &files.elements.id)?;
    let timestamp = timestamp::parse(&text_of(&document, &files.elements.timestamp)?)?;
    Ok((id, (timestamp, digest(&bytes))))
}

fn text_of(document: &Document, name: &str) -> Result<String> {
    let has_name = |node: &Node| {
        let source = &document.input_text()[node.range()];
        let after = source
            .strip_prefix('<')
            .and_then(|tag| tag.strip_prefix(name));
        node.is_element()
            && after.is_some_and(|rest| rest.starts_with([' ', '\t', '\r', '\n', '/', '>']))
    };
    let mut children = document.root_element().children();
    let element = children
        .find(has_name)
        .with_context(|| format!("no <{name}>"))?;
    Ok(element
        .children()
        .filter_map(|part| part.is_text().then(|| part.text())?)
        .collect())
}
