//! The command line.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::duration::duration;
use crate::generator::Generator;

/// Collates log files by the hour from several processes, at most ten workers at a time, and checks the
/// result.
///
/// Many small log files hold lines of several hours. On a timer, every process asks for the one slot of
/// the semaphore `queue-logs`; whoever gets it puts lists of new files into the database. The threads of
/// all processes ask for the ten slots of `collate-logs`; whoever gets one takes a list and works on it:
/// it sorts the lines of log files into parts by hour, or merges an hour's parts into the file of the
/// hour. Slots are leased, and refreshed as the work makes progress.
///
/// A process that is killed leaves its slots to others when their leases end, and its lists are queued
/// again. One that is paused past its lease does not know that it has lost its slot: what it made is
/// refused when it wants to put it into the database.
///
/// At the end the files of the hours are read: every line must be there once, in order of time.
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
    /// One of the processes that this program starts.
    #[command(hide = true)]
    Node,
}

#[derive(Args)]
pub(crate) struct Options {
    /// postgres://.., mysql://.. or the path of an SQLite file [default: a temporary SQLite file]
    ///
    /// A given database stays; the tables are created when they are missing, and emptied: one run at a
    /// time. When the program was built without PostgreSQL or MySQL, `cargo run` builds it again with
    /// them, which needs their client library (Debian, Ubuntu: libpq-dev, libmariadb-dev).
    #[arg(long, value_name = "URL")]
    pub(crate) database_url: Option<String>,

    /// An empty or new directory for the files, which stay there [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,

    /// Processes that queue and collate
    #[arg(long, value_name = "N", default_value = "3")]
    pub(crate) processes: NonZeroUsize,

    /// Threads of each process that collate
    #[arg(long, value_name = "N", default_value = "5")]
    pub(crate) threads: NonZeroUsize,

    /// Threads of all processes that may collate at the same time
    #[arg(long, value_name = "N", default_value = "10")]
    pub(crate) permits: NonZeroU32,

    /// Generate so many log files
    #[arg(long, value_name = "N", default_value = "4000")]
    files: NonZeroUsize,

    /// Lines of each log file
    #[arg(long, value_name = "N", default_value = "100")]
    lines: NonZeroUsize,

    /// Hours over which the lines are spread
    #[arg(long, value_name = "N", default_value = "6")]
    hours: NonZeroU32,

    /// Log files of a list
    #[arg(long, value_name = "N", default_value = "40")]
    pub(crate) list: NonZeroUsize,

    /// How long it takes at least to read a log file or a part, as if it came over a network
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = duration)]
    pub(crate) read_time: Duration,

    /// How long a slot is leased
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    pub(crate) lease: Duration,

    /// How often new files are queued
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = duration)]
    pub(crate) tick: Duration,

    /// Kill a process (SIGKILL) that often, and start another in its place
    ///
    /// Not before a list was done since the last time: so the run comes to its end however short the
    /// time is.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) kill_every: Option<Duration>,

    /// Stop a process (SIGSTOP) that often, and let it go on (SIGCONT) when its leases have ended
    ///
    /// Not the last one that is going.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) pause_every: Option<Duration>,

    /// Where chance begins, for the lines and for the processes that are killed or paused
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Let workers that have lost their slots work on to the end, where the fence stops them
    ///
    /// Otherwise most of them notice it before, when they want to refresh.
    #[arg(long, conflicts_with = "unfenced")]
    pub(crate) careless: bool,

    /// Let workers that have lost their slots put what they made into the database, to see what fences are
    /// for
    #[arg(long)]
    pub(crate) unfenced: bool,

    /// Print the outcome as one line of JSON, and no progress
    #[arg(long)]
    pub(crate) json: bool,
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
