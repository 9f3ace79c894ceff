//! The command line.

use clap::Parser;
use program_support::arguments::OutputArguments;

/// Increments a number from several connections, with six strategies at three isolation levels, and shows
/// which of them lose updates.
///
/// Every increment is a transaction: it draws the next number from a row, and inserts it into a table. At
/// the end the table must have every number once. A transaction that the database refuses (deadlock,
/// serialization failure, busy) is retried: at once, or after 1 ms if SQLite is busy.
///
/// With the two strategies that read without a lock, all connections read before the first of them writes,
/// once each: so two writers always conflict.
///
/// The tables `row_locking_*` are created, and dropped at the end. Use a database for one run at a time.
/// The tables of diesel-locks stay.
///
/// The exit code is 1 if a strategy that must be right loses updates, and if a plain SELECT before an
/// UPDATE loses none: then the run proves nothing.
#[derive(Parser)]
#[command(name = "row-locking-matrix", version)]
pub(crate) struct Arguments {
    /// postgres://.., mysql://.. or the path of an SQLite file; may be given several times
    ///
    /// A temporary SQLite file is always added. A program that was built without PostgreSQL or MySQL is
    /// built again with it by `cargo run`. This needs the client library of the database (Debian, Ubuntu:
    /// libpq-dev, libmariadb-dev).
    #[arg(long = "database-url", value_name = "URL")]
    pub(crate) database_urls: Vec<String>,

    /// Connections that increment at the same time
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u16).range(2..=200))]
    pub(crate) connections: u16,

    /// Numbers that each connection draws with each strategy
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) numbers: u32,

    /// Print one table in Markdown, as without a terminal
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,

    #[command(flatten)]
    pub(crate) output: OutputArguments,
}
