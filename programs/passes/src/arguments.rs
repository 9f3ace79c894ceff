//! The command line.

use std::num::{NonZeroU32, NonZeroUsize};

use clap::{Parser, ValueEnum};
use serde::Serialize;

/// Issues numbered passes for meetings from many connections at once, and checks that no number is lost
/// or repeated.
///
/// Who comes to a meeting has a pass, and the passes of each meeting are numbered 1, 2, 3 and so on. Many
/// organisers issue passes for many meetings at the same time. Every meeting has a gap-free sequence: an
/// organiser draws a number and inserts the pass in one transaction. Some transactions fail after that,
/// and their numbers must come back.
///
/// At the end the table is read: of every meeting with n passes, the numbers 1 to n must be there, each
/// once.
#[derive(Parser)]
#[command(name = "passes", version, args_override_self = true)]
pub(crate) struct Arguments {
    /// postgres://.., mysql://.. or the path of an SQLite file [default: a temporary SQLite file]
    ///
    /// A given database stays; the tables are created when they are missing, and each run adds meetings of
    /// its own. When the program was built without PostgreSQL or MySQL, `cargo run` builds it again with
    /// them, which needs their client library (Debian, Ubuntu: libpq-dev, libmariadb-dev).
    #[arg(long, value_name = "URL")]
    pub(crate) database_url: Option<String>,

    /// Meetings
    #[arg(long, value_name = "N", default_value = "20")]
    pub(crate) meetings: NonZeroU32,

    /// Passes of each meeting
    #[arg(long, value_name = "N", default_value = "500")]
    pub(crate) passes: NonZeroUsize,

    /// Organisers, each with a connection
    #[arg(long, value_name = "N", default_value = "8")]
    pub(crate) organisers: NonZeroUsize,

    /// Transactions that fail after the number is drawn, in percent
    ///
    /// By an error, by a panic, or because the connection is lost. The organiser tries again.
    #[arg(long, value_name = "PERCENT", default_value = "20", value_parser = clap::value_parser!(u32).range(0..=90))]
    pub(crate) failures: u32,

    /// Transactions that issue passes for two meetings, in percent
    ///
    /// Both or none. The meetings are in no order, so that two such transactions may wait for each other:
    /// the database breaks the deadlock, and the transaction that it chose is tried again. PostgreSQL takes
    /// a second (`deadlock_timeout`) to notice.
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) pairs: u32,

    /// Number the passes without the gap-free sequence, to see what it is for
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) careless: Option<Careless>,

    /// Where chance begins, for the order of the passes and for what fails
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Print the outcome as one line of JSON, and no progress
    #[arg(long)]
    pub(crate) json: bool,
}

/// Wrong ways to number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Careless {
    /// One more than the largest number in the table: two organisers read the same
    Max,
    /// A number drawn in a transaction of its own: lost when the pass is not issued
    OwnTransaction,
}
