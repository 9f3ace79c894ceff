//! Stores XML documents from several processes, each id under its object lock, and checks the result.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand, ValueEnum};
use program_support::database::{DatabaseArguments, DatabaseLocation, Program};
use program_support::outcome::{self as printing, OutputArguments};
use program_support::terminal;

use source::{Elements, Files, Generator, Source};

mod check;
mod coordinator;
mod document;
mod job;
mod outcome;
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
struct Arguments {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    options: Options,
}

#[derive(Subcommand)]
enum Role {
    /// A writer, started by this program.
    #[command(hide = true)]
    Writer,
}

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    database: DatabaseArguments,

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
    fn source(&self) -> Result<Source> {
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

fn main() -> ExitCode {
    let Arguments { role, options } = Arguments::parse();
    match role {
        Some(Role::Writer) => terminal::exit_code(PROGRAM.name, writer::run()),
        None => PROGRAM.run(options.database.database_url.as_deref(), |location| {
            run(&options, location)
        }),
    }
}

fn run(options: &Options, location: &DatabaseLocation) -> Result<ExitCode> {
    let outcome = coordinator::ingest(options, location.database(), options.source()?)?;
    printing::print(&outcome, outcome.verdict(), options.output.json)?;
    if outcome.is_unfinished() {
        eprintln!(
            "{}",
            match location {
                DatabaseLocation::Given(_) => "Not finished: the same command continues from here.",
                DatabaseLocation::Temporary(..) =>
                    "Not finished, and the temporary database is deleted: --database-url names one that stays.",
            }
        );
    }
    Ok(outcome.exit_code())
}
