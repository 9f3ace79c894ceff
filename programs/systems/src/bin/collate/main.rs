//! Collates log files by the hour from several processes, at most ten workers at a time, and checks the result.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use program_support::database::{Database, DatabaseArguments, Program};
use program_support::outcome::{self as printing, OutputArguments};
use program_support::terminal;

use files::Generator;

mod check;
mod coordinator;
mod faults;
mod files;
mod hold_log;
mod job;
mod leased_slot;
mod node;
mod outcome;
mod scheduler;
mod store;
mod worker;

const PROGRAM: Program = program_support::program!();

/// Collates log files by the hour from several processes, at most ten workers at a time, and checks the result.
///
/// Many small log files contain lines of several hours. On a timer, every process requests the only slot of the
/// semaphore `queue-logs`; the one that acquires it inserts lists of new files into the database. The threads of all
/// processes request the ten slots of `collate-logs`. A thread that acquires one takes a list: it sorts the lines of
/// log files into parts by hour, or merges an hour's parts into the file of the hour. Slots are leased, and renewed as
/// the work makes progress.
///
/// The slots of a killed process become free when their leases expire, and its lists are queued again. A process that
/// was paused for longer than its lease does not know that it has lost its slot: the database refuses its result.
///
/// A database that --database-url names is kept. Missing tables are created in it, and the tables of this program are
/// emptied: start one run at a time.
///
/// At the end the program reads the files of the hours: every line must be there once, in the order of time.
#[derive(Parser)]
#[command(
    name = "collate",
    version,
    args_conflicts_with_subcommands = true,
    args_override_self = true,
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
    /// A process started by this program.
    #[command(hide = true)]
    Node,
}

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) database: DatabaseArguments,

    /// An empty or new directory for the files, which are kept [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,

    /// Number of processes that queue and collate
    #[arg(long, value_name = "N", default_value = "3")]
    pub(crate) processes: NonZeroUsize,

    /// Number of threads of each process that collate
    #[arg(long, value_name = "N", default_value = "5")]
    pub(crate) threads: NonZeroUsize,

    /// Number of threads of all processes that may collate at the same time
    #[arg(long, value_name = "N", default_value = "10")]
    pub(crate) permits: NonZeroU32,

    /// Number of log files to generate
    #[arg(long, value_name = "N", default_value = "4000")]
    files: NonZeroUsize,

    /// Number of lines of each log file
    #[arg(long, value_name = "N", default_value = "100")]
    lines: NonZeroUsize,

    /// Number of hours of the lines
    #[arg(long, value_name = "N", default_value = "6")]
    hours: NonZeroU32,

    /// Number of log files of a list
    #[arg(long, value_name = "N", default_value = "40")]
    pub(crate) list: NonZeroUsize,

    /// Minimum time to read a log file or a part, as if it came over a network
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = duration)]
    pub(crate) read_time: Duration,

    /// Duration of a lease
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    pub(crate) lease: Duration,

    /// Interval at which new files are queued
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = duration)]
    pub(crate) tick: Duration,

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

    /// Seed of the random numbers, for the lines and for the processes to kill or pause
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

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
    pub(crate) fn generator(&self) -> Generator {
        Generator::new(
            self.seed,
            self.files.get(),
            self.lines.get(),
            self.hours.get(),
        )
    }
}

/// A duration on the command line: a whole number and its unit, as in `1s`, `500ms`, `2m`.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let of = match unit {
        "ms" => Duration::from_millis,
        "s" => Duration::from_secs,
        "m" => |minutes: u64| Duration::from_secs(minutes.saturating_mul(60)),
        _ => return Err("a time is a whole number and ms, s or m: 500ms".to_owned()),
    };
    number.parse().map(of).map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let options = &arguments.options;
    match arguments.role {
        Some(Role::Node) => terminal::exit_code(PROGRAM.name, node::run()),
        None => PROGRAM.run(options.database.database_url.as_deref(), |location| {
            run(options, location.database())
        }),
    }
}

fn run(options: &Options, database: &Database) -> Result<ExitCode> {
    let outcome = coordinator::collate(options, database)?;
    printing::print(&outcome, outcome.verdict(), options.output.json)?;
    Ok(outcome.exit_code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_numbers_with_units() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for text in ["", "1", "s", "1.5s", "-1s", "1 s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
