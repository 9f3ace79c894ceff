//! The arguments.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use diesel_locks::limits::{MAX_LISTED, MAX_PERMITS};
use humantime::parse_duration;

use crate::database::Engine;
use crate::failure::EXIT_CODES;

/// Lists and releases what diesel-locks holds in a database, and runs commands that hold a slot
#[derive(Parser)]
#[command(name = "diesel-locks", version, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// postgres://.., mysql://.., mariadb://.., or the path of an SQLite file
    ///
    /// Other users of the machine see arguments: put a URL with a password into the variable.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "DATABASE_URL",
        hide_env_values = true
    )]
    pub(crate) database_url: Option<String>,
    /// Prints JSON, also what a command fails with
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) task: Task,
}

#[derive(Subcommand)]
pub(crate) enum Task {
    /// Lists semaphores, held slots, held object locks and sequences
    List(List),
    /// Shows in a terminal what `list` shows, and reads it again and again
    ///
    /// q, or Ctrl-C, ends it.
    Watch(Watch),
    /// Serves a page that shows what `list` shows, until it is ended by Ctrl-C
    ///
    /// It creates nothing in the database. A user who may only read is enough, except to release slots.
    Serve(Serve),
    /// Releases one slot of a holder that is known to have stopped
    ///
    /// A holder that still runs notices it at its next renewal.
    Release(Grant),
    /// Releases all leased slots of a semaphore, whose holders are known to have stopped
    ReleaseAll {
        /// The name of the semaphore
        semaphore: String,
    },
    /// Asks the holder of a slot to release it
    ///
    /// Leaders, jobs on a timer and `diesel-locks run` do so after their next renewal; other programs if they look for it.
    RequestRelease(Grant),
    /// Sets the number of permits of a semaphore in the database
    ///
    /// Programs obey it that use `Semaphore::registered`, and `diesel-locks run` without --permits. 0 pauses the semaphore.
    SetPermits {
        /// The name of the semaphore, which is created if there is none
        semaphore: String,
        /// 0 to 100000
        #[arg(value_parser = clap::value_parser!(u32).range(..=i64::from(MAX_PERMITS)))]
        permits: u32,
    },
    /// Removes free slots that were not leased for a time, above the registered number of permits
    Purge {
        /// How long they were not leased: 7d, 12h
        #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "7d")]
        older_than: Duration,
        /// Also removes the kept rows of objects that no transaction has locked
        #[arg(long)]
        objects: bool,
    },
    /// Raises the fences of all future grants, after a fail-over that may have lost grants
    RaiseFences {
        /// Longer than the clocks of the two servers may differ
        #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "1h")]
        by: Duration,
    },
    /// Creates or updates the tables of diesel-locks
    Migrate,
    /// Writes the migrations as files
    #[command(subcommand)]
    Migrations(Migrations),
    /// Checks the database, its settings, and what this user may do
    Doctor,
    /// Runs a command that holds a slot, whose lease is renewed meanwhile
    Run(Run),
    /// Prints a script for the completion of arguments
    Completions {
        /// The shell
        shell: Shell,
    },
    /// What `run` starts: becomes the command, after asking for a signal when its parent dies
    #[command(hide = true)]
    Exec {
        parent: i32,
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

#[derive(Args)]
pub(crate) struct List {
    /// Only these
    pub(crate) kind: Option<Kind>,
    /// Only semaphores, sequences and objects whose names begin with this
    #[arg(
        long,
        visible_alias = "semaphore",
        value_name = "PREFIX",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) prefix: String,
    /// Only sequences whose keys begin with this
    #[arg(
        long,
        value_name = "PREFIX",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) key_prefix: String,
    /// The rows of each list, 1 to 10000
    #[arg(long, value_name = "ROWS", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_LISTED)))]
    pub(crate) limit: u32,
}

#[derive(Args)]
pub(crate) struct Watch {
    #[command(flatten)]
    pub(crate) list: List,
    /// The time between two readings, at least 100ms
    #[arg(long, value_name = "TIME", value_parser = parse_interval, default_value = "1s")]
    pub(crate) interval: Duration,
}

#[derive(Args)]
pub(crate) struct Serve {
    /// The IP address and port, such as 0.0.0.0:8080; with port 0 the system chooses one
    ///
    /// Every client that can connect to it can read the names of locks and holders.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// Those who know it may release slots, and request their release [default: nobody may]
    ///
    /// Other users of the machine see arguments: put it into the variable.
    #[arg(
        long,
        value_name = "TOKEN",
        env = "DIESEL_LOCKS_TOKEN",
        hide_env_values = true,
        value_parser = parse_token
    )]
    pub(crate) token: Option<String>,
}

/// What a browser can send.
fn parse_token(text: &str) -> Result<String, &'static str> {
    if text.is_empty() {
        return Err("the token is empty: unset DIESEL_LOCKS_TOKEN");
    }
    if !text.chars().all(|c| c.is_ascii_graphic()) {
        return Err("a token is visible characters of ASCII");
    }
    Ok(text.to_owned())
}

/// Each reading costs the server some queries.
fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text).map_err(|error| error.to_string())?;
    if interval < Duration::from_millis(100) {
        return Err("the shortest interval is 100ms".to_owned());
    }
    Ok(interval)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Semaphores,
    Slots,
    Objects,
    Sequences,
}

/// A slot, as it was listed.
#[derive(Args)]
pub(crate) struct Grant {
    /// The name of the semaphore
    pub(crate) semaphore: String,
    /// The number of the slot
    pub(crate) slot: u32,
    /// The fence that `list` has shown: another holder that was granted the slot since keeps it
    #[arg(long)]
    pub(crate) fence: i64,
}

#[derive(Subcommand)]
pub(crate) enum Migrations {
    /// Writes the migrations of an engine into a folder of the Diesel CLI
    ///
    /// Leaves files alone that are there already, and fails if one of them has another text.
    Write {
        /// The folder, which is created if there is none
        directory: PathBuf,
        /// The engine, in place of that of --database-url
        #[arg(long)]
        engine: Option<Engine>,
    },
}

#[derive(Args)]
#[command(after_help = "\
The command gets DIESEL_LOCKS_SEMAPHORE, DIESEL_LOCKS_SLOT and DIESEL_LOCKS_FENCE in its environment, and \
SIGTERM, SIGINT and SIGHUP that this process gets (on Linux not one that was ignored at the start). When the lease is lost it gets SIGTERM, and SIGKILL after \
--kill-after; so do its own processes, unless it was started in a terminal. A command that gets a signal has ended when \
all of these have; one that ends by itself, with its first process.")]
pub(crate) struct Run {
    /// The name of the semaphore
    #[arg(long, value_name = "NAME")]
    pub(crate) semaphore: String,
    /// How many may run at a time [default: the number that `set-permits` has set, or 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_PERMITS)))]
    pub(crate) permits: Option<u32>,
    /// How long the slot stays held after this process has died
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "60s")]
    pub(crate) lease: Duration,
    /// How long to wait for a slot [default: without limit]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) wait: Option<Duration>,
    /// Fails at once if all slots are held
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Keeps the slot unavailable for this time after the grant, at most the lease, also when the command ends before
    ///
    /// So, with --no-wait, of all servers whose cron starts the command within this time, one runs it.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "0s", hide_default_value = true)]
    pub(crate) hold_at_least: Duration,
    /// The text that names the holder [default: host/process]
    #[arg(long, value_name = "TEXT")]
    pub(crate) holder: Option<String>,
    /// After a lost lease, the time between SIGTERM and SIGKILL
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "10s")]
    pub(crate) kill_after: Duration,
    /// The command with its arguments
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}
