//! Collates log files by the hour from several processes, at most ten workers at a time, and checks the result.

use std::num::{NonZeroU32, NonZeroUsize};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use diesel_locks::prelude::*;
use program_support::database::{DatabaseArguments, Program};
use program_support::outcome::OutputArguments;
use program_support::processes::ChildArguments;
use program_support::terminal;

use job::COLLATE;

mod check;
mod coordinator;
mod files;
mod hold_log;
mod job;
mod leased_slot;
mod node;
mod store;

const PROGRAM: Program = program_support::program!();

/// Collates log files by the hour from several processes, at most ten workers at a time, and checks the result.
///
/// Many small log files contain lines of several hours. On a timer, every process requests the only slot of the
/// semaphore `queue-logs`; the one that acquires it inserts lists of new files into the database. The threads of all
/// processes request the ten slots of `collate-logs`. A thread that acquires one takes a list, and sorts the lines of
/// its log files into parts by hour. Slots are leased, and renewed as the work makes progress.
///
/// The slots of a killed process become free when their leases expire, and its lists are queued again. A process that
/// was paused for longer than its lease does not know that it has lost its slot: the database refuses its result.
///
/// A database that --database-url names is kept. Missing tables are created in it, and the tables of this program are
/// emptied: start one run at a time.
///
/// At the end the program merges the parts of each hour into one file, and reads these files: every line must be there
/// once, in the order of time.
#[derive(Parser)]
#[command(name = "collate", version, args_override_self = true)]
pub(crate) struct Options {
    #[command(flatten)]
    database: DatabaseArguments,

    #[command(flatten)]
    child: ChildArguments,

    /// Number of processes that queue and collate
    #[arg(long, value_name = "N", default_value = "3")]
    pub(crate) processes: NonZeroUsize,

    /// Number of threads of each process that collate
    #[arg(long, value_name = "N", default_value = "5")]
    pub(crate) threads: NonZeroUsize,

    /// Number of threads of all processes that may collate at the same time
    #[arg(long, value_name = "N", default_value = "10")]
    pub(crate) permits: NonZeroU32,

    /// Number of log files, which are generated when they are read
    #[arg(long, value_name = "N", default_value = "4000")]
    pub(crate) files: NonZeroUsize,

    /// Minimum time to read a log file, as if it came over a network
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = duration)]
    pub(crate) read_time: Duration,

    /// Duration of a lease
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    pub(crate) lease: Duration,

    /// Kill a process (SIGKILL) at this interval, and start another in its place
    ///
    /// Waits until a list was done since the last kill, so that the run ends however short the interval is.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) kill_every: Option<Duration>,

    /// Stop a process (SIGSTOP) at this interval, and continue it (SIGCONT) after its leases have expired
    ///
    /// Never stops the last running process.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) pause_every: Option<Duration>,

    /// Let workers that have lost their slots continue to the end, where the fence stops them
    ///
    /// Without this option most of them notice the loss earlier, when they renew.
    #[arg(long, conflicts_with = "unfenced")]
    pub(crate) careless: bool,

    /// Let workers that have lost their slots commit their results, to see which errors fences prevent
    #[arg(long)]
    pub(crate) unfenced: bool,

    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

impl Options {
    /// The semaphore of the workers.
    pub(crate) fn collate(&self) -> Semaphore {
        Semaphore::new(COLLATE, self.permits.get())
    }
}

/// A duration on the command line: a whole number and its unit, as in `1s` and `500ms`.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let of = match unit {
        "ms" => Duration::from_millis,
        "s" => Duration::from_secs,
        _ => return Err("a time is a whole number and ms or s: 500ms".to_owned()),
    };
    number.parse().map(of).map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.child.is_child {
        return terminal::exit_code(PROGRAM.name, node::run(&options));
    }
    PROGRAM.run(options.database.database_url.as_deref(), |database| {
        coordinator::collate(&options, database)
    })
}
