//! Three threads and one object lock: which thread waits, which is inside, which is done.

use std::fmt;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use diesel_locks::Error;
use diesel_locks::prelude::*;
use program_support::connection::AnyConnection;
use program_support::database::{Database, DatabaseArguments};
use program_support::terminal::{self, GOOD, HEADING, WARNING, styled};

const THREADS: usize = 3;
const HELD: Duration = Duration::from_millis(250);
const OBJECT: (&str, &str) = ("BondBO", "DK0015966592");

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
    let arguments = Arguments::parse();
    let url = arguments.database.database_url.as_deref();
    program_support::program!().run(url, |database| run(&arguments, database))
}

fn run(arguments: &Arguments, database: &Database) -> Result<ExitCode> {
    let events = take_turns(database)?;
    // Printed when all threads are done, so that printing delays none of them.
    if arguments.events || !io::stdout().is_terminal() {
        println!("ms\tthread\tevent");
        for (at, thread, event) in events {
            println!("{}\t{thread}\t{event}", at.as_millis());
        }
    } else {
        let (entity, key) = OBJECT;
        println!(
            "{THREADS} threads request the object lock {entity}:{key} at the same moment.\nEach holds it for {} ms.\n",
            HELD.as_millis()
        );
        terminal::print(draw(&events));
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Requests,
    Acquired,
    Commits,
    /// The commit has returned.
    Done,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requests => "requests the lock",
            Self::Acquired => "acquired",
            Self::Commits => "commits",
            Self::Done => "done",
        })
    }
}

/// An event with its thread, from 1, and the time since the start.
type Logged = (Duration, usize, Event);

/// Runs the threads to their end. Returns the events in the order of time.
fn take_turns(database: &Database) -> Result<Vec<Logged>> {
    diesel_locks::migrate(&mut AnyConnection::open(database)?)?;
    let connections = (0..THREADS).map(|_| AnyConnection::open(database));
    let connections = connections.collect::<Result<Vec<_>>>()?;
    let barrier = Barrier::new(THREADS);
    let log = Mutex::new(Vec::new());
    let start = Instant::now();
    let add = |thread: usize, event: Event| {
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.push((start.elapsed(), thread, event));
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (1..)
            .zip(connections)
            .map(|(thread, mut conn)| {
                let (barrier, add) = (&barrier, &add);
                scope.spawn(move || {
                    barrier.wait();
                    hold(&mut conn, |event| add(thread, event))
                })
            })
            .collect();
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().expect("no thread panics"));
        ended.collect::<Result<(), Error>>()
    })?;
    Ok(log.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn hold(conn: &mut AnyConnection, add: impl Fn(Event)) -> Result<(), Error> {
    add(Event::Requests);
    conn.with_object_lock(ObjectId::new(OBJECT.0, OBJECT.1), |_| {
        add(Event::Acquired);
        thread::sleep(HELD);
        add(Event::Commits);
        Ok::<_, Error>(())
    })?;
    add(Event::Done);
    Ok(())
}

/// The time of a column.
const COLUMN: Duration = Duration::from_millis(25);

/// The lanes of all threads, and a legend.
fn draw(events: &[Logged]) -> String {
    let waiting = styled(WARNING, "░");
    let inside = styled(GOOD, "█");
    let mut text = String::new();
    for thread in 1..=THREADS {
        text += &styled(HEADING, format!("thread {thread}  "));
        let mut state = "";
        let mut time = Duration::ZERO;
        // The database releases the lock between `Commits` and `Done`.
        for (at, _, event) in events.iter().filter(|(_, other, _)| *other == thread) {
            while time < *at {
                text += state;
                time += COLUMN;
            }
            state = match event {
                Event::Requests => &waiting,
                Event::Acquired => &inside,
                Event::Commits | Event::Done => " ",
            };
        }
        text.push('\n');
    }
    format!(
        "{text}\n{waiting} waiting   {inside} inside   (blank) gone   one column: {} ms",
        COLUMN.as_millis()
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anstream::adapter::strip_str;

    use super::Event::{self, Acquired, Commits, Requests};
    use super::draw;

    #[test]
    fn threads_wait_are_inside_and_are_gone() {
        let events = |thread, times: [u64; 3]| {
            let times = times.map(Duration::from_millis).into_iter();
            let events: [Event; 3] = [Requests, Acquired, Commits];
            times
                .zip(events)
                .map(move |(at, event)| (at, thread, event))
        };
        let events: Vec<_> = events(1, [0, 0, 250])
            .chain(events(2, [0, 500, 750]))
            .chain(events(3, [0, 250, 500]))
            .collect();
        let expected = "
thread 1  ██████████
thread 2  ░░░░░░░░░░░░░░░░░░░░██████████
thread 3  ░░░░░░░░░░██████████

░ waiting   █ inside   (blank) gone   one column: 25 ms";
        assert_eq!(strip_str(&draw(&events)).to_string(), expected[1..]);
    }
}
