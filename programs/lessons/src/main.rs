//! Two sessions get in each other's way, step by step: the wrong way first, then what helps.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use database::{Place, with_connection};
use play::Play;

// All programs read database URLs alike, and build themselves again alike.
#[path = "../../ingest/src/database.rs"]
mod database;
mod lessons;
mod meeting;
mod play;
mod session;
mod stage;
mod store;

/// Two sessions, A and B, get in each other's way: printed is who does what and what the database says.
///
/// Upgrades of locks, locks in different orders, lost updates, failures at COMMIT: the wrong way first,
/// then what helps. Ends with 1 when the database did something else than the lesson tells.
#[derive(Parser)]
#[command(name = "lessons", version)]
struct Arguments {
    /// postgres://.., mysql://.. or the path of an SQLite file [default: a temporary SQLite file]
    ///
    /// A given database stays, with a table `lessons`: one run at a time. When the program was built
    /// without PostgreSQL or MySQL, `cargo run` builds it again with them, which needs their client
    /// library (Debian, Ubuntu: libpq-dev, libmariadb-dev).
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
