//! A web service whose handlers use object locks, slots and sequences on a pool, with a page that shows them.

use anyhow::Result;
use diesel::SqliteConnection;
use program_support::database::{Engine, Program};
use program_support::terminal::{self, BAD, styled};

use args::Arguments;

mod app;
mod args;
mod jobs;
mod log;
mod metrics;
mod name;
mod problem;
mod routes;
mod server;
mod state;
mod store;
mod xml;

const PROGRAM: Program = program_support::program!();

fn main() {
    let code = run(&Arguments::of_process()).unwrap_or_else(|error| {
        terminal::print_to_stderr(format!("{}: {error:#}", styled(BAD, PROGRAM.name)));
        1
    });
    // A thread that opens a connection can crash while exit handlers run.
    signal_hook::low_level::exit(code);
}

fn run(arguments: &Arguments) -> Result<i32> {
    let location = PROGRAM.locate(arguments.database.database_url.as_deref())?;
    let database = location.database();
    match database.engine {
        Engine::Sqlite => server::serve::<SqliteConnection>(database, arguments),
        #[cfg(feature = "postgres")]
        Engine::Postgres => server::serve::<diesel::PgConnection>(database, arguments),
        #[cfg(feature = "mysql")]
        Engine::Mysql => server::serve::<diesel::MysqlConnection>(database, arguments),
        #[cfg(not(all(feature = "postgres", feature = "mysql")))]
        _ => anyhow::bail!("this program was built without support for that database"),
    }
}
