//! Shows step by step how two sessions conflict: first the wrong way, then the remedy.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use program_support::connection::AnyConnection;
use program_support::database::{Database, DatabaseArguments, Engine};
use program_support::terminal::{self, BAD, GOOD, HEADING, styled};

use scenario::Scenario;

mod scenario;
mod servers;
mod session;
mod sqlite;

/// Two sessions, A and B, block each other or lose updates, step by step. Prints each statement and the
/// answer of the database.
///
/// Lock upgrades, locks in different orders, lost updates, failures at COMMIT: first the mistake, then
/// the remedies. PostgreSQL, MySQL and MariaDB have more lessons than SQLite.
///
/// A database that --database-url names gets a table `lessons`, which stays. Use it for one run at a time.
///
/// The exit code is 1 if the database answered otherwise than the lesson expects.
#[derive(Parser)]
#[command(name = "lessons", version)]
struct Arguments {
    #[command(flatten)]
    database: DatabaseArguments,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let url = arguments.database.database_url.as_deref();
    program_support::program!().run(url, run)
}

fn run(database: &Database) -> Result<ExitCode> {
    diesel_locks::migrate(&mut AnyConnection::open(database)?)?;
    println!(
        "{}, with two sessions, A and B.\nAt the start of each part, table lessons has rows 1 and 2 with n = 0.",
        database.engine
    );
    let mut runner = LessonRunner {
        database,
        lessons: 0,
        failed: 0,
    };
    if database.engine == Engine::Sqlite {
        sqlite::run(&mut runner);
    } else {
        servers::run(&mut runner);
    }
    if runner.failed > 0 {
        let text = format!("Parts with unexpected results: {}.", runner.failed);
        terminal::print(format!("\n{}", styled(BAD, text)));
        return Ok(ExitCode::FAILURE);
    }
    let text = styled(GOOD, "All results are as expected.");
    terminal::print(format!("\n{text}"));
    Ok(ExitCode::SUCCESS)
}

/// Runs the lessons in turn and counts the unexpected results.
pub(crate) struct LessonRunner<'a> {
    pub(crate) database: &'a Database,
    lessons: u32,
    failed: u32,
}

impl LessonRunner<'_> {
    pub(crate) fn lesson(&mut self, title: &str) {
        self.lessons += 1;
        let heading = format!("Lesson {}: {title}", self.lessons);
        terminal::print(format!("\n{}", styled(HEADING, heading)));
    }

    /// Runs a part of the lesson, in sessions of its own. `run` returns what the part shows.
    pub(crate) fn part(
        &mut self,
        title: &str,
        run: impl FnOnce(&mut Scenario<'_>) -> Result<String>,
    ) {
        terminal::print(format!("\n  {}", styled(HEADING, title)));
        match Scenario::new(self.database).and_then(|mut scenario| run(&mut scenario)) {
            Ok(shown) => Self::note(&shown),
            Err(error) => {
                self.failed += 1;
                let text = styled(BAD, format!("UNEXPECTED: {error:#}"));
                terminal::print(format!("  =>  {text}"));
            }
        }
    }

    /// Prints what a part shows.
    pub(crate) fn note(text: &str) {
        terminal::print(format!("  =>  {}", styled(GOOD, text)));
    }
}
