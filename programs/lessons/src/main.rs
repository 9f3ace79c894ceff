//! Shows step by step how two sessions conflict: first the wrong way, then the remedy.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use database::{Place, with_connection};
use play::Play;

// Shared by the programs: database URLs, and building the program with support for a database.
#[path = "../../ingest/src/database.rs"]
mod database;
mod lessons;
mod meeting;
mod play;
mod session;
mod stage;
mod store;

/// Shows how two sessions, A and B, conflict: prints each statement and the database's answer.
///
/// The lessons are upgrades of locks, locks in different orders, lost updates, and failures at COMMIT: first the wrong
/// way, then the remedy. The exit code is 1 if the database did something else than the lesson says.
#[derive(Parser)]
#[command(name = "lessons", version)]
struct Arguments {
    /// postgres://.., mysql://.. or the path of an SQLite file [default: a temporary SQLite file]
    ///
    /// A given database is kept, with a table `lessons`: start one run at a time. If the program was built without
    /// PostgreSQL or MySQL, `cargo run` builds it again with them, which needs their client library (Debian, Ubuntu:
    /// libpq-dev, libmariadb-dev).
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    run(&arguments).unwrap_or_else(|error| {
        eprintln!("lessons: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let place = Place::of(arguments.database_url.as_deref())?;
    let database = place.database();
    database.require_support()?;
    let mut play = Play::new(&database.url);
    with_connection!(database.engine, C => lessons::play::<C>(&mut play)?);
    Ok(play.end())
}
