//! Stores XML documents from several processes, each id under its object lock, and checks the result.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use program_support::database::{DatabaseArguments, Program};
use program_support::outcome::OutputArguments;
use program_support::processes::ChildArguments;
use program_support::terminal;

use source::{Elements, Files, Generator, Source};

mod check;
mod coordinator;
mod document;
mod source;
mod store;
mod writer;

const PROGRAM: Program = program_support::program!();

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
/// RUNNING AGAIN on the same database, which --database-url names: it is kept, missing tables are created in it, and
/// documents are added to those that are stored. So the same command completes a run that was stopped. Another --seed
/// generates documents with other ids.
///
/// EXIT CODES: 0, the table is right; 3, it is right, but documents were rejected; 1, it is wrong, or the run failed; 130,
/// the run was interrupted.
#[derive(Parser)]
#[command(name = "ingest", version)]
pub(crate) struct Options {
    #[command(flatten)]
    database: DatabaseArguments,

    #[command(flatten)]
    child: ChildArguments,

    /// Number of writer processes
    #[arg(long, value_name = "N", default_value = "3")]
    pub(crate) processes: NonZeroUsize,

    /// Number of threads, and connections, of each process
    #[arg(long, value_name = "N", default_value = "4")]
    pub(crate) threads: NonZeroUsize,

    /// Number of documents to generate, of which twenty have the same id on average
    #[arg(long, value_name = "N", default_value = "20000")]
    documents: NonZeroUsize,

    /// Seed of the random numbers: the same seed gives the same documents in the same order
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Read the *.xml files of this directory instead; every writer gets all of them ten times
    #[arg(long, value_name = "DIR", conflicts_with = "documents", requires_all = ["id_element", "timestamp_element"])]
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

    /// Use a plain transaction without the object lock, to see which errors the lock prevents
    #[arg(long)]
    pub(crate) unlocked: bool,

    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

impl Options {
    /// The documents that the options describe.
    pub(crate) fn source(&self) -> Result<Source> {
        let (Some(directory), Some(id), Some(timestamp)) =
            (&self.input, &self.id_element, &self.timestamp_element)
        else {
            let generator = Generator::new(self.seed, self.documents.get());
            return Ok(Source::Generated(generator));
        };
        let elements = Elements {
            id: id.clone(),
            timestamp: timestamp.clone(),
        };
        Ok(Source::Files(Files::of(directory, elements)?))
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.child.is_child {
        return terminal::exit_code(PROGRAM.name, writer::run(&options));
    }
    PROGRAM.run(options.database.database_url.as_deref(), |database| {
        coordinator::ingest(&options, database)
    })
}
