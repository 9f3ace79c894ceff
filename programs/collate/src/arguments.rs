//! The command line.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use program_support::arguments::{DatabaseArguments, OutputArguments};

use crate::duration::duration;
use crate::generator::Generator;

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
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) role: Option<Role>,
    #[command(flatten)]
    pub(crate) options: Options,
}

#[derive(Subcommand)]
pub(crate) enum Role {
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

    /// The time that reading the log files takes if all workers read all the time.
    fn shortest_time(&self) -> Duration {
        let workers = self.processes.get().saturating_mul(self.threads.get());
        let workers = workers.min(self.permits.get() as usize).max(1);
        let turns = self.files.get().div_ceil(workers);
        self.read_time
            .saturating_mul(u32::try_from(turns).unwrap_or(u32::MAX))
    }

    /// How long the run will take at least.
    pub(crate) fn expectation(&self) -> String {
        let mut text = format!(
            "{} log files, {:?} to read each, at most {} workers at a time: this takes at least {:.1} s",
            self.files,
            self.read_time,
            self.permits,
            self.shortest_time().as_secs_f64()
        );
        if self.kill_every.is_some() || self.pause_every.is_some() {
            text.push_str(", and longer with faults");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::Arguments;

    fn expectation(arguments: &[&str]) -> String {
        let arguments = [&["collate"], arguments].concat();
        Arguments::parse_from(arguments).options.expectation()
    }

    #[test]
    fn expected_time_follows_from_files_workers_and_permits() {
        assert_eq!(
            expectation(&[]),
            "4000 log files, 10ms to read each, at most 10 workers at a time: this takes at least 4.0 s"
        );
        let few_workers = ["--processes", "1", "--threads", "2", "--files", "5"];
        assert!(expectation(&few_workers).contains("at least 0.0 s"));
        let slow = ["--permits", "1", "--files", "5", "--read-time", "1s"];
        assert!(expectation(&slow).contains("at least 5.0 s"));
        let faults = [&slow[..], &["--kill-every", "1s"]].concat();
        assert!(expectation(&faults).ends_with("5.0 s, and longer with faults"));
    }
}
