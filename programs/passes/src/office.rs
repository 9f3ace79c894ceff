//! A run: creates the meetings, starts the organisers, and checks the result.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use diesel_locks::Sequence;

use crate::arguments::Arguments;
use crate::check::Verdict;
use crate::database::{Database, Place, with_connection};
use crate::failure::Failure;
use crate::orders::orders;
use crate::organiser::{Desk, Event, connect};
use crate::outcome::Outcome;
use crate::retry::run_transaction;
use crate::screen::Screen;
use crate::store::Store;

/// Set by Ctrl-C: organisers end after their current order.
static STOP: AtomicBool = AtomicBool::new(false);

/// The totals of the organisers' reports.
#[derive(Default)]
pub(crate) struct Counts {
    /// Passes whose transactions were committed.
    pub(crate) issued: usize,
    pub(crate) failed: usize,
    pub(crate) panicked: usize,
    pub(crate) disconnected: usize,
    pub(crate) retries: u32,
    pub(crate) errors: usize,
    pub(crate) took: Duration,
    pub(crate) interrupted: bool,
}

/// Runs the program with these arguments.
pub(crate) fn issue_all(arguments: &Arguments, place: &Place) -> Result<Outcome> {
    ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed))?;
    let database = place.database();
    with_connection!(database.engine, C => run::<C>(arguments, database))
}

fn run<C: Store>(arguments: &Arguments, database: &Database) -> Result<Outcome> {
    let mut conn: C = connect(&database.url)?;
    diesel_locks::migrate(&mut conn)?;
    conn.create_tables().context("can't create the tables")?;
    let meetings = make_meetings(&mut conn, arguments.meetings.get())?;

    let passes = arguments.passes.get();
    let screen = Screen::new(meetings.len() * passes, "passes", arguments.json);
    let desk = Desk {
        arguments,
        url: &database.url,
        orders: orders(&meetings, passes, arguments.pairs, arguments.seed),
        next: AtomicUsize::new(0),
        stop: &STOP,
    };
    let counts = with_organisers::<C>(&desk, screen)?;

    let mut verdict = Verdict::default();
    for &meeting in &meetings {
        verdict.add(Verdict::of(&conn.numbers_of(meeting)?));
    }
    Ok(Outcome::new(C::NAME, arguments, &counts, verdict))
}

/// Creates meetings with new ids, also while another run uses the same database. The ids need no gap-free sequence, but
/// one is available.
fn make_meetings<C: Store>(conn: &mut C, count: u32) -> Result<Vec<i64>> {
    let ids = Sequence::new("meeting");
    let meetings = run_transaction(conn, &mut 0, |conn| {
        let meetings: Vec<i64> = conn.next_numbers(&ids, count)?.collect();
        conn.insert_meetings(&meetings)?;
        Ok(meetings)
    });
    meetings.context("can't make the meetings")
}

fn with_organisers<C: Store>(desk: &Desk, screen: Screen) -> Result<Counts> {
    let connections: Vec<C> = (0..desk.arguments.organisers.get())
        .map(|_| connect(desk.url))
        .collect::<Result<_>>()?;
    let (sender, events) = mpsc::channel();
    Ok(thread::scope(|scope| {
        for (conn, number) in connections.into_iter().zip(1..) {
            let sender = sender.clone();
            scope.spawn(move || desk.work(number, conn, &sender));
        }
        drop(sender);
        gather(&events, screen)
    }))
}

/// Counts the reports until all organisers have ended.
fn gather(events: &Receiver<Event>, mut screen: Screen) -> Counts {
    let began = Instant::now();
    screen.begin();
    let mut counts = Counts::default();
    for event in events {
        match event {
            Event::Issued { passes, retries } => {
                counts.issued += passes;
                counts.retries += retries;
                screen.progress(counts.issued);
            }
            Event::Failed(Failure::Error) => counts.failed += 1,
            Event::Failed(Failure::Panic) => counts.panicked += 1,
            Event::Failed(Failure::Disconnection) => counts.disconnected += 1,
            Event::Error(error) => {
                counts.errors += 1;
                screen.error(&error);
            }
        }
    }
    counts.took = began.elapsed();
    counts.interrupted = STOP.load(Ordering::Relaxed);
    screen.end();
    counts
}
