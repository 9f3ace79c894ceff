//! The source of the documents: generated, or files.

use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use chrono::{DateTime, NaiveDateTime, TimeDelta};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

/// The documents of a run, by index.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) enum Source {
    Generated(Generator),
    Files(Files),
}

/// The names, as written in the files, of the elements with a document's id and timestamp.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Elements {
    pub(crate) id: String,
    pub(crate) timestamp: String,
}

impl Source {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Generated(generator) => generator.len(),
            Self::Files(files) => files.len(),
        }
    }

    pub(crate) fn is_generated(&self) -> bool {
        matches!(self, Self::Generated(_))
    }

    /// The name of the document in messages.
    pub(crate) fn name(&self, index: usize) -> String {
        match self {
            Self::Generated(_) => format!("generated document {index}"),
            Self::Files(files) => files.name(index),
        }
    }

    pub(crate) fn read(&self, index: usize) -> Result<Vec<u8>> {
        match self {
            Self::Generated(generator) => Ok(generator.document(index).xml.into_bytes()),
            Self::Files(files) => files.read(index),
        }
    }

    pub(crate) fn elements(&self) -> Elements {
        match self {
            Self::Generated(_) => elements(),
            Self::Files(files) => files.elements.clone(),
        }
    }
}

/// The `*.xml` files of a directory.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Files {
    paths: Vec<String>,
    /// The number of other files in the directory, which are ignored.
    pub(crate) others: usize,
    elements: Elements,
}

impl Files {
    pub(crate) fn of(directory: &Path, elements: Elements) -> Result<Self> {
        let unreadable = || format!("can't read the directory {}", directory.display());
        let mut paths = Vec::new();
        let mut others = 0;
        for entry in fs::read_dir(directory).with_context(unreadable)? {
            let path = entry.with_context(unreadable)?.path();
            if path.is_dir() {
                continue;
            }
            let extension = path.extension().unwrap_or_default();
            if extension.eq_ignore_ascii_case("xml") {
                // A path that is not UTF-8 will not be found, so the document is rejected.
                paths.push(path.to_string_lossy().into_owned());
            } else {
                others += 1;
            }
        }
        ensure!(
            !paths.is_empty(),
            "no *.xml files in {}",
            directory.display()
        );
        paths.sort();
        Ok(Self {
            paths,
            others,
            elements,
        })
    }

    fn len(&self) -> usize {
        self.paths.len()
    }

    fn name(&self, index: usize) -> String {
        let path = &self.paths[index];
        let name = Path::new(path).file_name().and_then(OsStr::to_str);
        name.unwrap_or(path).to_owned()
    }

    fn read(&self, index: usize) -> Result<Vec<u8>> {
        fs::read(&self.paths[index]).context("can't read the file")
    }
}

/// One of this many documents arrives directly after another version of the same id, at another server.
const FOLLOWS: usize = 4;

/// The number of versions by which a document may arrive early or late.
const DISORDER: u64 = 3;

/// Generates documents from the seed, the number of documents and the number of ids alone, so that all processes
/// generate equal documents, and a second run can finish the first.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Generator {
    seed: u64,
    documents: usize,
    ids: usize,
}

/// A document, and its properties, which need not be parsed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Generated {
    pub(crate) id: String,
    pub(crate) timestamp: NaiveDateTime,
    pub(crate) xml: String,
}

fn elements() -> Elements {
    Elements {
        id: "doc:ID".to_owned(),
        timestamp: "doc:SentAt".to_owned(),
    }
}

impl Generator {
    pub(crate) fn new(seed: u64, documents: usize, ids: usize) -> Self {
        Self {
            seed,
            documents,
            ids: ids.max(1),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.documents
    }

    /// The document that arrives as number `index`.
    pub(crate) fn document(&self, index: usize) -> Generated {
        let number = self.number(index);
        let version = self.version(index);
        let id = format!("generated|{}|{number:06}", self.seed);
        let timestamp = DateTime::UNIX_EPOCH.naive_utc()
            + TimeDelta::days(365 * 50)
            + TimeDelta::seconds(i64::try_from(version).unwrap_or(i64::MAX));
        let xml = xml(&id, timestamp, &mut self.chance(number, version));
        Generated { id, timestamp, xml }
    }

    /// The number of the document's id.
    fn number(&self, index: usize) -> u64 {
        let follows = index % FOLLOWS == FOLLOWS - 1;
        let drawn = if follows { index - 1 } else { index };
        let ids = self.ids as u64;
        self.chance(drawn as u64, 0).random_range(0..ids)
    }

    /// Later documents tend to have larger versions, but not in order, and some versions repeat. About half of the
    /// documents are newer than all before them.
    fn version(&self, index: usize) -> u64 {
        let per_id = 2 * self.documents.div_ceil(self.ids);
        let due = index as u64 * per_id as u64 / self.documents as u64;
        due + self.chance(index as u64, 1).random_range(0..=2 * DISORDER)
    }

    /// Random numbers that depend only on the seed and these two numbers.
    fn chance(&self, first: u64, second: u64) -> StdRng {
        let mut seed = [0; 32];
        for (part, number) in seed.chunks_mut(8).zip([self.seed, first, second]) {
            part.copy_from_slice(&number.to_le_bytes());
        }
        StdRng::from_seed(seed)
    }
}

fn xml(id: &str, timestamp: NaiveDateTime, chance: &mut StdRng) -> String {
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <Order xmlns=\"urn:example:order\" xmlns:doc=\"urn:example:document\">\n  \
           <doc:ID>{id}</doc:ID>\n  \
           <doc:SentAt>{}Z</doc:SentAt>\n",
        timestamp.format("%FT%T")
    );
    for line in 1..=chance.random_range(1..=8) {
        // Writing to a string can't fail.
        let _ = writeln!(
            xml,
            "  <Line number=\"{line}\"><Item>{:06}</Item><Quantity>{}</Quantity></Line>",
            chance.random_range(0..1_000_000),
            chance.random_range(1..100)
        );
    }
    xml.push_str("</Order>\n");
    xml
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn the_same_job_gives_the_same_documents() {
        let one = Generator::new(7, 100, 10);
        let other = Generator::new(7, 100, 10);
        assert!((0..100).all(|index| one.document(index) == other.document(index)));
        let another_seed = Generator::new(8, 100, 10);
        assert_ne!(one.document(0), another_seed.document(0));
    }

    #[test]
    fn one_version_of_an_id_has_one_text() {
        let generator = Generator::new(1, 2000, 50);
        let mut texts = HashMap::new();
        for index in 0..generator.len() {
            let document = generator.document(index);
            let xml = document.xml.clone();
            let text = texts
                .entry((document.id, document.timestamp))
                .or_insert(xml);
            assert_eq!(*text, document.xml);
        }
        assert!(texts.len() < generator.len(), "no document came twice");
    }

    #[test]
    fn versions_arrive_out_of_order_and_about_half_are_news() {
        let generator = Generator::new(1, 2000, 100);
        let mut newest = HashMap::new();
        let mut news = 0;
        let mut late = 0;
        for index in 0..generator.len() {
            let document = generator.document(index);
            let newest = newest.entry(document.id).or_insert(NaiveDateTime::MIN);
            news += usize::from(document.timestamp > *newest);
            late += usize::from(document.timestamp < *newest);
            *newest = document.timestamp.max(*newest);
        }
        assert_eq!(newest.len(), 100);
        assert!((800..1600).contains(&news), "{news} of 2000 were news");
        assert!(late > 200, "{late} of 2000 were late");
    }
}
