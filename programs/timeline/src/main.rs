//! Three threads and one object lock: which thread waits, which is inside, which is done.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use diesel_locks::prelude::*;
use program_support::arguments::DatabaseArguments;
use program_support::database::{Database, DatabaseLocation, Program};
use program_support::{program, terminal, with_connection};

use log::{Event, Log};

mod lanes;
mod log;

const THREADS: usize = 3;
const HELD: Duration = Duration::from_millis(250);
const OBJECT: (&str, &str) = ("BondBO", "DK0015966592");

const PROGRAM: Program = program!();

/// Three threads, each with its own connection, request one object lock at the same moment. Each holds
/// it for 250 ms.
///
/// On a terminal, prints a lane for each thread, from left to right: waiting, inside, gone. Elsewhere, or
/// with --events, prints one event a line: milliseconds, thread, event, separated by tabs.
#[derive(Parser)]
#[command(name = "timeline", version)]
struct Arguments {
    #[command(flatten)]
    database: DatabaseArguments,

    /// Print the events instead of lanes
    #[arg(long)]
    events: bool,
}

fn main() -> ExitCode {
    let ended = run(&Arguments::parse());
    terminal::exit_code(PROGRAM.name, ended.map(|()| ExitCode::SUCCESS))
}

fn run(arguments: &Arguments) -> Result<()> {
    let location = DatabaseLocation::new(&PROGRAM, arguments.database.database_url.as_deref())?;
    let database = location.database();
    database.require_support(&PROGRAM)?;
    let log = with_connection!(database.engine, C => take_turns::<C>(database)?);
    // Printed when all threads are done, so that printing delays none of them.
    if arguments.events || !io::stdout().is_terminal() {
        print!("{}", log.events());
    } else {
        let (entity, key) = OBJECT;
        let width = terminal::width();
        let heading = format!(
            "{THREADS} threads request the object lock {entity}:{key} at the same moment. Each holds it for {} ms.",
            HELD.as_millis()
        );
        println!("{}\n", terminal::paragraph(&heading, "", width));
        let columns = width.map_or(80, usize::from);
        terminal::print(lanes::draw(&log.lanes(THREADS)?, columns));
    }
    Ok(())
}

/// Runs the threads to their end.
fn take_turns<C: ObjectLockExt>(database: &Database) -> Result<Log> {
    let connect = || C::establish(&database.url).context("can't connect to the database");
    diesel_locks::migrate(&mut connect()?)?;
    let connections = (0..THREADS)
        .map(|_| connect())
        .collect::<Result<Vec<_>>>()?;
    let object = ObjectId::new(OBJECT.0, OBJECT.1);
    let barrier = Barrier::new(THREADS);
    let log = Log::start();
    thread::scope(|scope| {
        let threads: Vec<_> = (1..)
            .zip(connections)
            .map(|(thread, mut conn)| {
                let (object, barrier, log) = (&object, &barrier, &log);
                scope.spawn(move || {
                    barrier.wait();
                    hold(thread, &mut conn, object, log)
                })
            })
            .collect();
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().expect("no thread panics"));
        ended.collect::<Result<(), diesel_locks::Error>>()
    })?;
    Ok(log)
}

fn hold<C: ObjectLockExt>(
    thread: usize,
    conn: &mut C,
    object: &ObjectId,
    log: &Log,
) -> Result<(), diesel_locks::Error> {
    log.add(thread, Event::Requests);
    conn.with_object_lock(object, |_| {
        log.add(thread, Event::Acquired);
        thread::sleep(HELD);
        log.add(thread, Event::Commits);
        Ok::<_, diesel_locks::Error>(())
    })?;
    log.add(thread, Event::Done);
    Ok(())
}
