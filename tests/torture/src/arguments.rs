//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use torture_history::FaultKind;

use crate::cluster::Cluster;
use crate::sabotage::Sabotage;

/// Workers that use diesel-locks while processes, connections, servers and clocks fail, and a check of what they did.
#[derive(Parser)]
#[command(name = "torture")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// A run. Exit code: 0 when nothing was violated, 1 when something was, 2 when the run itself failed.
    Run(Box<Run>),
    /// A worker process, which reads what to do from its standard input.
    #[command(hide = true)]
    Worker,
}

#[derive(Args)]
pub(crate) struct Run {
    /// `postgres://..` or `mysql://..`: a server on which a database is made and dropped again; with `--cluster`, once for
    /// each node. Without it, SQLite.
    #[arg(long)]
    pub(crate) url: Vec<String>,
    /// What the servers of several `--url` are together.
    #[arg(long, requires = "url")]
    pub(crate) cluster: Option<Cluster>,
    /// For how long faults happen.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) seconds: u64,
    /// What decides about faults and tasks; drawn and printed when it is not given.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Worker processes.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) workers: u32,
    /// Threads of each.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) threads: u32,
    /// Threads of each that use asynchronous connections.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) async_threads: u32,
    /// Only these kinds of faults; `none` for none. Without it, all that the engine and the server allow.
    #[arg(long, value_delimiter = ',')]
    pub(crate) faults: Vec<Fault>,
    /// All kinds of faults but these.
    #[arg(long, value_delimiter = ',', conflicts_with = "faults")]
    pub(crate) without: Vec<Fault>,
    /// Breaks one thing in the workers: the check has to find it.
    #[arg(long)]
    pub(crate) sabotage: Option<Sabotage>,
    /// A program that sends a signal to the server: `kill`, `stop` or `continue` is its argument. A killed server is started
    /// again by the caller of this program. One for each node, in the order of their URLs.
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) kill_server: Vec<PathBuf>,
    /// A program that cuts a node off from the other nodes, with the argument `stop`, and connects it again, with `continue`. One
    /// for each node, in the order of their URLs. Galera needs none.
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) kill_network: Vec<PathBuf>,
    /// A program that makes another node the primary. Group Replication needs none.
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) switch_over: Option<PathBuf>,
    /// The file from which libfaketime reads the offset of the server's clock. Give one file for each node, in the order of the
    /// URLs. Not for PostgreSQL.
    #[arg(long, value_name = "FILE")]
    pub(crate) clock: Vec<PathBuf>,
    /// libfaketime, for SQLite: there the workers have the database's clock.
    #[arg(long, value_name = "LIBRARY", requires = "clock")]
    pub(crate) faketime: Option<PathBuf>,
    /// Ends with one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Keeps the histories in this directory, which must not exist.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) keep: Option<PathBuf>,
}

/// A kind of fault, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    Of(FaultKind),
}

impl ValueEnum for Fault {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [Fault; FaultKind::ALL.len() + 1] = {
            let mut all = [Fault::None; FaultKind::ALL.len() + 1];
            let mut index = 0;
            while index < FaultKind::ALL.len() {
                all[index + 1] = Fault::Of(FaultKind::ALL[index]);
                index += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(match self {
            Self::None => "none",
            Self::Of(kind) => kind.name(),
        }))
    }
}
