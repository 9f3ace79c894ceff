//! The source of the documents: generated, or files.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use chrono::{DateTime, NaiveDateTime, TimeDelta};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// The documents of a run, by index.
pub(crate) enum Source {
    Generated(Generator),
    Files(Files),
}

/// The names, as written in the files, of the elements with a document's id and timestamp.
#[derive(Clone)]
pub(crate) struct Elements {
    pub(crate) id: String,
    pub(crate) timestamp: String,
}

impl Source {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Generated(generator) => generator.documents,
            Self::Files(files) => files.paths.len(),
        }
    }

    /// The name of the document in messages.
    pub(crate) fn name(&self, index: usize) -> String {
        match self {
            Self::Generated(_) => format!("generated document {index}"),
            Self::Files(files) => files.paths[index].clone(),
        }
    }

    pub(crate) fn read(&self, index: usize) -> Result<Vec<u8>> {
        match self {
            Self::Generated(generator) => Ok(generator.document(index).xml.into_bytes()),
            Self::Files(files) => fs::read(&files.paths[index]).context("can't read the file"),
        }
    }

    pub(crate) fn elements(&self) -> Elements {
        match self {
            Self::Generated(_) => Elements {
                id: "doc:ID".to_owned(),
                timestamp: "doc:SentAt".to_owned(),
            },
            Self::Files(files) => files.elements.clone(),
        }
    }
}

/// The `*.xml` files of a directory.
pub(crate) struct Files {
    paths: Vec<String>,
    elements: Elements,
}

impl Files {
    pub(crate) fn of(directory: &Path, elements: Elements) -> Result<Self> {
        let unreadable = || format!("can't read the directory {}", directory.display());
        let mut paths = Vec::new();
        for entry in fs::read_dir(directory).with_context(unreadable)? {
            let path = entry.with_context(unreadable)?.path();
            let extension = path.extension().unwrap_or_default();
            if extension.eq_ignore_ascii_case("xml") && !path.is_dir() {
                // A path that is not UTF-8 will not be found, so the document is rejected.
                paths.push(path.to_string_lossy().into_owned());
            }
        }
        ensure!(
            !paths.is_empty(),
            "no *.xml files in {}",
            directory.display()
        );
        paths.sort();
        Ok(Self { paths, elements })
    }
}

/// One of this many documents arrives directly after another version of the same id, at another server.
const FOLLOWS: usize = 4;

/// The number of versions by which a document may arrive early or late.
const DISORDER: u64 = 3;

/// The average number of documents per id.
const DOCUMENTS_PER_ID: usize = 20;

/// Generates documents from the seed and the number of documents alone, so that all processes generate equal documents,
/// and a second run can finish the first.
pub(crate) struct Generator {
    seed: u64,
    documents: usize,
    ids: usize,
}

/// A document, and its properties, which need not be parsed.
pub(crate) struct Generated {
    pub(crate) id: String,
    pub(crate) timestamp: NaiveDateTime,
    pub(crate) xml: String,
}

impl Generator {
    pub(crate) fn new(seed: u64, documents: usize) -> Self {
        Self {
            seed,
            documents,
            ids: (documents / DOCUMENTS_PER_ID).max(1),
        }
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
