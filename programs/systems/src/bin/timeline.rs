//! Three threads and one object lock: which thread waits, which is inside, which is done.

use std::fmt::{self, Write};
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use diesel_locks::Error;
use diesel_locks::prelude::*;
use program_support::connection::AnyConnection;
use program_support::database::{Database, DatabaseArguments};
use program_support::terminal::{self, FAINT, GOOD, HEADING, WARNING, styled};

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
    program_support::program!().run(url, |location| run(&arguments, location.database()))
}

fn run(arguments: &Arguments, database: &Database) -> Result<ExitCode> {
    let log = take_turns(database)?;
    // Printed when all threads are done, so that printing delays none of them.
    if arguments.events || !io::stdout().is_terminal() {
        print!("{}", log.events());
    } else {
        let (entity, key) = OBJECT;
        println!(
            "{THREADS} threads request the object lock {entity}:{key} at the same moment.\nEach holds it for {} ms.\n",
            HELD.as_millis()
        );
        let columns = terminal::width().map_or(80, usize::from);
        terminal::print(draw(&log.lanes(THREADS)?, columns));
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the threads to their end.
fn take_turns(database: &Database) -> Result<Log> {
    diesel_locks::migrate(&mut AnyConnection::open(database)?)?;
    let connections = (0..THREADS).map(|_| AnyConnection::open(database));
    let connections = connections.collect::<Result<Vec<_>>>()?;
    let barrier = Barrier::new(THREADS);
    let log = Log::start();
    thread::scope(|scope| {
        let threads: Vec<_> = (1..)
            .zip(connections)
            .map(|(thread, mut conn)| {
                let (barrier, log) = (&barrier, &log);
                scope.spawn(move || {
                    barrier.wait();
                    hold(thread, &mut conn, log)
                })
            })
            .collect();
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().expect("no thread panics"));
        ended.collect::<Result<(), Error>>()
    })?;
    Ok(log)
}

fn hold(thread: usize, conn: &mut AnyConnection, log: &Log) -> Result<(), Error> {
    log.add(thread, Event::Requests);
    conn.with_object_lock(ObjectId::new(OBJECT.0, OBJECT.1), |_| {
        log.add(thread, Event::Acquired);
        thread::sleep(HELD);
        log.add(thread, Event::Commits);
        Ok::<_, Error>(())
    })?;
    log.add(thread, Event::Done);
    Ok(())
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

/// Events with their thread, from 1, and the time since the start.
struct Log {
    start: Instant,
    events: Mutex<Vec<(Duration, usize, Event)>>,
}

impl Log {
    fn start() -> Self {
        Self {
            start: Instant::now(),
            events: Mutex::default(),
        }
    }

    fn add(&self, thread: usize, event: Event) {
        let at = self.start.elapsed();
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.push((at, thread, event));
    }

    fn sorted(&self) -> Vec<(Duration, usize, Event)> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let mut events = events.clone();
        events.sort_by_key(|(at, ..)| *at);
        events
    }

    /// A header, then one line for each event, in columns separated by tabs.
    fn events(&self) -> String {
        let mut text = "ms\tthread\tevent\n".to_owned();
        for (at, thread, event) in self.sorted() {
            // Writing to a string can't fail.
            let _ = writeln!(text, "{}\t{thread}\t{event}", at.as_millis());
        }
        text
    }

    /// The lanes of the threads 1 to `threads`. Their time begins with the first event.
    fn lanes(&self, threads: usize) -> Result<Vec<Lane>> {
        let events = self.sorted();
        let first = events.first().map_or(Duration::ZERO, |(at, ..)| *at);
        let find = |thread: usize, event: Event| {
            let mut events = events.iter();
            let found = events.find(|(_, other, what)| (*other, *what) == (thread, event));
            let (at, ..) = found.with_context(|| format!("thread {thread}: no event '{event}'"))?;
            anyhow::Ok(at.saturating_sub(first))
        };
        (1..=threads)
            .map(|thread| {
                Ok(Lane {
                    requested: find(thread, Event::Requests)?,
                    acquired: find(thread, Event::Acquired)?,
                    // The database releases the lock between `Commits` and `Done`.
                    released: find(thread, Event::Commits)?,
                })
            })
            .collect()
    }
}

const WAITING: &str = "░";
const INSIDE: &str = "█";
const GONE: &str = " ";

/// The times of a thread.
#[derive(Clone, Copy, Debug)]
struct Lane {
    requested: Duration,
    acquired: Duration,
    released: Duration,
}

impl Lane {
    fn state_at(&self, time: Duration) -> &'static str {
        if (self.requested..self.acquired).contains(&time) {
            WAITING
        } else if (self.acquired..self.released).contains(&time) {
            INSIDE
        } else {
            GONE
        }
    }
}

/// The distances between two marks of the axis, in milliseconds.
const MARKS_MS: [u32; 10] = [1, 5, 10, 50, 100, 250, 500, 1000, 5000, 10_000];

/// How many marks the axis has at most, besides that of zero.
const MOST_MARKS: u32 = 5;

/// The lanes with a time axis above and a legend below, with styles, in lines of at most `width` columns.
fn draw(lanes: &[Lane], width: usize) -> String {
    let label = |thread: usize| format!("thread {thread}  ");
    let indent = label(lanes.len()).len();
    let columns = u32::try_from(width.clamp(indent + 20, 120) - indent).unwrap_or(20);
    let end = lanes.iter().map(|lane| lane.released).max();
    let end = end.unwrap_or_default().max(Duration::from_millis(1));

    let mut text = vec![format!(
        "{}{}",
        " ".repeat(indent),
        styled(FAINT, axis(end, columns))
    )];
    for (thread, lane) in (1..).zip(lanes) {
        let mut line = styled(HEADING, label(thread));
        let mut drawn = GONE;
        let mut run = String::new();
        for column in 0..columns {
            // The middle of the column's time.
            let state = lane.state_at(end * (2 * column + 1) / (2 * columns));
            if state != drawn {
                line.push_str(&in_colour(drawn, &run));
                run.clear();
                drawn = state;
            }
            run.push_str(state);
        }
        line.push_str(&in_colour(drawn, &run));
        text.push(line.trim_end().to_owned());
    }
    text.push(String::new());
    text.push(format!(
        "{}{} waiting   {} inside   (blank) gone",
        " ".repeat(indent),
        in_colour(WAITING, WAITING),
        in_colour(INSIDE, INSIDE)
    ));
    text.join("\n")
}

fn in_colour(state: &str, text: &str) -> String {
    match state {
        WAITING => styled(WARNING, text),
        INSIDE => styled(GOOD, text),
        _ => text.to_owned(),
    }
}

/// Times in milliseconds above the columns where they are.
fn axis(end: Duration, columns: u32) -> String {
    let end_ms = u32::try_from(end.as_millis()).unwrap_or(u32::MAX).max(1);
    let mark = MARKS_MS.iter().find(|mark| end_ms / **mark <= MOST_MARKS);
    let mark = *mark.unwrap_or(&end_ms);
    let mut axis = String::new();
    for time in (0..=end_ms).step_by(mark as usize) {
        let column = u64::from(time) * u64::from(columns) / u64::from(end_ms);
        let column = usize::try_from(column).unwrap_or(0);
        let text = if time == 0 {
            "0 ms".to_owned()
        } else {
            time.to_string()
        };
        if axis.len() <= column && column + text.len() <= columns as usize {
            axis.push_str(&" ".repeat(column - axis.len()));
            axis.push_str(&text);
        }
    }
    axis
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anstream::adapter::strip_str;

    use super::{Lane, draw};

    fn lane(requested: u64, acquired: u64, released: u64) -> Lane {
        let [requested, acquired, released] =
            [requested, acquired, released].map(Duration::from_millis);
        Lane {
            requested,
            acquired,
            released,
        }
    }

    fn drawn(lanes: &[Lane], width: usize) -> String {
        strip_str(&draw(lanes, width)).to_string()
    }

    #[test]
    fn threads_wait_are_inside_and_are_gone() {
        let lanes = [lane(0, 0, 250), lane(0, 500, 750), lane(0, 250, 500)];
        let expected = "          \
0 ms      250       500
thread 1  ██████████
thread 2  ░░░░░░░░░░░░░░░░░░░░██████████
thread 3  ░░░░░░░░░░██████████

          ░ waiting   █ inside   (blank) gone";
        assert_eq!(drawn(&lanes, 40), expected);
    }

    #[test]
    fn lines_are_no_wider_than_the_terminal() {
        let lanes = [lane(0, 3, 251), lane(1, 254, 503), lane(2, 505, 1_004)];
        for width in [50, 80, 200] {
            for line in drawn(&lanes, width).lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }

    #[test]
    fn an_overlap_of_two_threads_would_be_seen() {
        let text = drawn(&[lane(0, 0, 300), lane(0, 100, 300)], 40);
        let inside = |line: usize| text.lines().nth(line).map(|line| line.matches('█').count());
        assert_eq!((inside(1), inside(2)), (Some(30), Some(20)), "{text}");
    }
}
