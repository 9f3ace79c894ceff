//! The command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Parser, Subcommand, ValueEnum};
use program_support::arguments::{DatabaseArguments, OutputArguments};

use crate::files::Files;
use crate::generator::Generator;
use crate::source::{Elements, Source};

/// Stores XML documents from several processes, each id under its object lock, and checks the result.
///
/// Each document has an id and a timestamp. Several documents have the same id: its versions, which arrive at
/// several servers at the same time, in any order and more than once. The first document of an id is inserted. A
/// newer version replaces the stored one; an older one is dropped. Writers are processes with several threads each.
/// At the end the table is compared with the result of an independent computation.
///
/// NEWEST is the version with the latest timestamp; of several with the same timestamp, the one with the largest
/// SHA-256. That choice is arbitrary, but the same in every order of arrival.
///
/// RUNNING AGAIN on the same database, which --database-url names: it is kept, and missing tables are created in it.
/// Documents of --input are added to those that are stored. Generated documents
/// start with an empty table, unless an earlier run with the same documents was stopped: then the run finishes it.
/// Generated documents and files do not affect each other.
///
/// EXIT CODES: 0, the table is right; 3, it is right, but documents were rejected; 1, it is wrong, or the run failed; 130,
/// the run was interrupted.
#[derive(Parser)]
#[command(
    name = "ingest",
    version,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) role: Option<Role>,
    #[command(flatten)]
    pub(crate) options: Options,
}

#[derive(Subcommand)]
pub(crate) enum Role {
    /// A writer, started by this program.
    #[command(hide = true)]
    Writer,
}

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) database: DatabaseArguments,

    /// Number of writer processes
    #[arg(long, value_name = "N", default_value = "3")]
    pub(crate) processes: NonZeroUsize,

    /// Number of threads, and connections, of each process
    #[arg(long, value_name = "N", default_value = "4")]
    pub(crate) threads: NonZeroUsize,

    /// Number of documents to generate
    #[arg(long, value_name = "N", default_value = "20000")]
    documents: NonZeroUsize,

    /// Number of different ids to generate [default: a twentieth of the documents]
    #[arg(long, value_name = "N")]
    ids: Option<NonZeroUsize>,

    /// Seed of the random numbers: the same seed gives the same documents in the same order
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Read the *.xml files of this directory instead; every writer gets all of them
    #[arg(long, value_name = "DIR", conflicts_with_all = ["documents", "ids"], requires_all = ["id_element", "timestamp_element"])]
    input: Option<PathBuf>,

    /// The element with the id, as written in the files (cbc:ID): the first such child of the root
    ///
    /// Its text is the id, including spaces.
    #[arg(long, value_name = "NAME", requires = "input")]
    id_element: Option<String>,

    /// The element with the timestamp (cbc:IssueDate), likewise: xs:date or xs:dateTime
    ///
    /// Without a time zone it is UTC. Fractions of a microsecond are cut off.
    #[arg(long, value_name = "NAME", requires = "input")]
    timestamp_element: Option<String>,

    /// Number of times that all documents are delivered [default: 1; with --input 10 for every writer]
    #[arg(long, value_name = "N")]
    repeat: Option<NonZeroUsize>,

    /// Use a plain transaction without the object lock, to see which errors the lock prevents
    #[arg(long)]
    pub(crate) unlocked: bool,

    /// What happens to the lock's row when the lock is released
    #[arg(long, value_enum, default_value = "transient")]
    pub(crate) retention: Retention,

    /// Empty the table first
    #[arg(long)]
    pub(crate) fresh: bool,

    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Retention {
    /// The row is deleted
    Transient,
    /// The row is kept, and locked the next time
    Kept,
}

/// The average number of documents per id, without `--ids`.
const DOCUMENTS_PER_ID: usize = 20;

impl Options {
    /// The documents that the options describe.
    pub(crate) fn source(&self) -> Result<Source> {
        let (Some(directory), Some(id), Some(timestamp)) =
            (&self.input, &self.id_element, &self.timestamp_element)
        else {
            let documents = self.documents.get();
            let ids = self
                .ids
                .map_or(documents / DOCUMENTS_PER_ID, NonZeroUsize::get);
            return Ok(Source::Generated(Generator::new(self.seed, documents, ids)));
        };
        let elements = Elements {
            id: id.clone(),
            timestamp: timestamp.clone(),
        };
        Ok(Source::Files(Files::of(directory, elements)?))
    }

    /// The number of times that all documents are delivered.
    pub(crate) fn repeat(&self) -> usize {
        let default = if self.input.is_some() { 10 } else { 1 };
        self.repeat.map_or(default, NonZeroUsize::get)
    }
}
