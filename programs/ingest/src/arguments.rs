//! The command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::files::Files;
use crate::generator::Generator;
use crate::source::{Elements, Source};

/// Stores XML documents from several processes, each id under its object lock, and checks the result.
///
/// Each document carries an id and a timestamp. Ids repeat; their versions arrive at several servers at
/// once, in any order and more than once. A document whose id is not registered is inserted, a newer one
/// updates the registered one, any other is dropped. Writers are processes of the operating system with
/// several threads each; at the end the table is compared with what an independent computation expects.
///
/// NEWEST is the one with the latest timestamp; of several with the same, the one whose SHA-256 is
/// greatest. That choice is arbitrary, but the same in every order of arrival.
///
/// RUNNING AGAIN on the same database: documents of --input are added to what is stored. Generated ones
/// start from nothing, unless an earlier run of the same documents was stopped half-way: then they
/// finish it. Generated and real documents leave each other alone.
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
    /// One of the writers that this program starts.
    #[command(hide = true)]
    Writer,
}

#[derive(Args)]
pub(crate) struct Options {
    /// postgres://.., mysql://.. or the path of an SQLite file [default: a temporary SQLite file]
    ///
    /// A given database stays; the tables are created when they are missing. When the program was built
    /// without PostgreSQL or MySQL, `cargo run` builds it again with them, which needs their client
    /// library (Debian, Ubuntu: libpq-dev, libmariadb-dev).
    #[arg(long, value_name = "URL")]
    pub(crate) database_url: Option<String>,

    /// Processes that write
    #[arg(long, value_name = "N", default_value = "3")]
    pub(crate) processes: NonZeroUsize,

    /// Threads, and connections, of each process
    #[arg(long, value_name = "N", default_value = "4")]
    pub(crate) threads: NonZeroUsize,

    /// Generate so many documents
    #[arg(long, value_name = "N", default_value = "20000")]
    documents: NonZeroUsize,

    /// Generate them with so many different ids [default: a twentieth of the documents]
    #[arg(long, value_name = "N")]
    ids: Option<NonZeroUsize>,

    /// Where chance begins: the same seed gives the same documents in the same order
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Read the *.xml files of this directory instead; every writer gets all of them
    #[arg(long, value_name = "DIR", conflicts_with_all = ["documents", "ids"], requires_all = ["id_element", "timestamp_element"])]
    input: Option<PathBuf>,

    /// The element with the id, as written in the files (cbc:ID): the first such child of the root
    ///
    /// Its text is the id as it stands, spaces included.
    #[arg(long, value_name = "NAME", requires = "input")]
    id_element: Option<String>,

    /// The element with the timestamp (cbc:IssueDate), likewise: xs:date or xs:dateTime
    ///
    /// Without a time zone it counts as UTC; what is finer than a microsecond is cut off.
    #[arg(long, value_name = "NAME", requires = "input")]
    timestamp_element: Option<String>,

    /// Deliver all documents so many times [default: 1; with --input 10 for every writer]
    #[arg(long, value_name = "N")]
    repeat: Option<NonZeroUsize>,

    /// Without the object lock, in a plain transaction, to see what it is for
    #[arg(long)]
    pub(crate) unlocked: bool,

    /// What becomes of the lock's row when the lock is released
    #[arg(long, value_enum, default_value = "transient")]
    pub(crate) retention: Retention,

    /// Empty the table first
    #[arg(long)]
    pub(crate) fresh: bool,

    /// Print the outcome as one line of JSON, and no progress
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Retention {
    /// It is deleted
    Transient,
    /// It stays, for the next one to lock
    Kept,
}

/// Documents with one id, on average, unless `--ids` says otherwise.
const DOCUMENTS_PER_ID: usize = 20;

impl Options {
    /// The documents that the options ask for.
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

    /// How often all documents are delivered.
    pub(crate) fn repeat(&self) -> usize {
        let default = if self.input.is_some() { 10 } else { 1 };
        self.repeat.map_or(default, NonZeroUsize::get)
    }
}
