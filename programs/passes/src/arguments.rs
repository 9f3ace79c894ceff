//! The command line.

use std::num::{NonZeroU32, NonZeroUsize};

use clap::{Parser, ValueEnum};
use program_support::arguments::{DatabaseArguments, OutputArguments};
use serde::Serialize;

/// Issues numbered passes for meetings from many connections at once, and checks that no number is lost or repeated.
///
/// The passes of each meeting are numbered 1, 2, 3 and so on. Many workers issue passes for many meetings at the
/// same time. Every meeting has a gap-free sequence: a worker draws a number and inserts the pass in one
/// transaction. Some transactions fail after that, and their numbers must be drawn again.
///
/// A database that --database-url names is kept. Missing tables are created in it, and each run adds its own meetings.
///
/// At the end the program reads the table: a meeting with n passes must have each of the numbers 1 to n once.
#[derive(Parser)]
#[command(name = "passes", version, args_override_self = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) database: DatabaseArguments,

    /// Number of meetings
    #[arg(long, value_name = "N", default_value = "20")]
    pub(crate) meetings: NonZeroU32,

    /// Number of passes of each meeting
    #[arg(long, value_name = "N", default_value = "500")]
    pub(crate) passes: NonZeroUsize,

    /// Number of worker threads, each with a connection
    #[arg(long, value_name = "N", default_value = "8")]
    pub(crate) workers: NonZeroUsize,

    /// Transactions that fail after the number is drawn, in percent
    ///
    /// They fail by an error, by a panic, or by a lost connection. The worker tries again.
    #[arg(long, value_name = "PERCENT", default_value = "20", value_parser = clap::value_parser!(u32).range(0..=90))]
    pub(crate) failures: u32,

    /// Transactions that issue passes for two meetings, in percent
    ///
    /// Such a transaction issues both passes or none. The order of the meetings is random, so two such transactions may
    /// deadlock: the database aborts one of them, which is retried. PostgreSQL takes a second (`deadlock_timeout`) to
    /// detect a deadlock.
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) pairs: u32,

    /// Number the passes without a gap-free sequence, to see which errors it prevents
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) careless: Option<Careless>,

    /// Seed of the random numbers, for the order of the passes and for the failures
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

/// Wrong ways to number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Careless {
    /// One more than the largest number in the table: two workers may read the same number
    Max,
    /// A number drawn in a separate transaction: it is lost when the pass is not issued
    OwnTransaction,
}
