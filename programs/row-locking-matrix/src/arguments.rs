//! The command line.

use clap::Parser;

/// Increments a number from several connections in six ways at three isolation levels, and shows which ways lose
/// updates.
///
/// Every increment is a transaction of its own, which takes the next number and inserts it into a table. At the end the
/// table must contain every number once. A transaction that the database refuses (deadlock, serialization failure,
/// busy) is retried: after 1 ms if SQLite is busy, otherwise at once.
///
/// In the two ways that read without a lock, all connections read once before the first of them writes, so that two
/// writers are certain to conflict.
///
/// The exit code is 1 if a way that must be right is not, or if a plain SELECT before an UPDATE is right, because then
/// the run proves nothing.
#[derive(Parser)]
#[command(name = "row-locking-matrix", version)]
pub(crate) struct Arguments {
    /// postgres://.., mysql://.. or the path of an SQLite file; may be given several times
    ///
    /// A temporary SQLite file is always used too. The tables `row_locking_*` are created again, and dropped at the
    /// end: start one run at a time. The tables of diesel-locks are kept. If the program was built without PostgreSQL
    /// or MySQL, `cargo run` builds it again with them, which needs their client library (Debian, Ubuntu: libpq-dev,
    /// libmariadb-dev).
    #[arg(long = "database-url", value_name = "URL")]
    pub(crate) database_urls: Vec<String>,

    /// Number of connections that increment at the same time
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u16).range(2..=200))]
    pub(crate) connections: u16,

    /// Number of increments of each connection in each way
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) numbers: u32,

    /// Print the outcome as one line of JSON instead of a table in Markdown
    #[arg(long)]
    pub(crate) json: bool,
}
