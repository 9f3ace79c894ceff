//! Options that several programs have.

use clap::Args;

/// Which database a program uses.
#[derive(Args)]
pub struct DatabaseArguments {
    /// postgres://.., mysql://.. or the path of an SQLite file [default: a temporary SQLite file]
    ///
    /// A program that was built without PostgreSQL or MySQL is built again with it by `cargo run`. This
    /// needs the client library of the database (Debian, Ubuntu: libpq-dev, libmariadb-dev).
    #[arg(long, value_name = "URL")]
    pub database_url: Option<String>,
}

/// How a program prints its outcome.
#[derive(Args)]
pub struct OutputArguments {
    /// Print the outcome as one line of JSON, and no progress
    #[arg(long)]
    pub json: bool,
}
