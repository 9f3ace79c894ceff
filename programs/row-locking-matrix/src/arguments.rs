//! The command line.

use clap::Parser;

/// Counts up one number from several connections in six ways at three isolation levels, and tells which
/// lose numbers.
///
/// Every increment is a transaction of its own: it draws the number, and inserts it into a table. Then
/// the table must have every number once. A transaction that the database refuses (deadlock,
/// serialization failure, busy) is tried again: at once, but for SQLite's busy, after 1 ms.
///
/// In the two ways that read without a lock, all connections read before the first of them writes, once
/// each: so that two writers meet for certain.
///
/// The exit code is 1 when a way that must be right is not, and when a plain SELECT before an UPDATE is
/// right: then the run proves nothing.
#[derive(Parser)]
#[command(name = "row-locking-matrix", version)]
pub(crate) struct Arguments {
    /// postgres://.., mysql://.. or the path of an SQLite file; may be given several times
    ///
    /// Besides, there is always a temporary SQLite file. The tables `row_locking_*` are made anew, and
    /// dropped in the end: one run at a time. The tables of diesel-locks stay. When the program was built
    /// without PostgreSQL or MySQL, `cargo run` builds it again with them, which needs their client
    /// library (Debian, Ubuntu: libpq-dev, libmariadb-dev).
    #[arg(long = "database-url", value_name = "URL")]
    pub(crate) database_urls: Vec<String>,

    /// Connections that count at the same time
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u16).range(2..=200))]
    pub(crate) connections: u16,

    /// Numbers that each connection draws in each way
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) numbers: u32,

    /// Print the outcome as one line of JSON instead of a table in Markdown
    #[arg(long)]
    pub(crate) json: bool,
}
