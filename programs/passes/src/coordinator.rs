//! A run: creates the meetings, starts the workers, and checks the result.

use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use diesel_locks::Sequence;
use program_support::database::Database;
use program_support::progress::Progress;
use program_support::{stop, with_connection};

use crate::arguments::Arguments;
use crate::check::CheckResult;
use crate::injected_failure::InjectedFailure;
use crate::outcome::Outcome;
use crate::retry::run_transaction;
use crate::store::Store;
use crate::work_items::work_items;
use crate::worker::{Event, Shared, connect};

/// The totals of the workers' reports.
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
pub(crate) fn issue_all(arguments: &Arguments, database: &Database) -> Result<Outcome> {
    // Workers finish the item that they are at.
    stop::on_interrupt()?;
    with_connection!(database.engine, C => run::<C>(arguments, database))
}

fn run<C: Store>(arguments: &Arguments, database: &Database) -> Result<Outcome> {
    let mut conn: C = connect(&database.url)?;
    diesel_locks::migrate(&mut conn)?;
    conn.create_tables().context("can't create the tables")?;
    let meetings = make_meetings(&mut conn, arguments.meetings.get())?;

    let passes = arguments.passes.get();
    let progress = Progress::new(meetings.len() * passes, "passes", arguments.output.json);
    let shared = Shared {
        arguments,
        url: &database.url,
        work_items: work_items(&meetings, passes, arguments.pairs, arguments.seed),
        next: AtomicUsize::new(0),
    };
    let counts = with_workers::<C>(&shared, progress)?;

    let mut result = CheckResult::default();
    for &meeting in &meetings {
        result.add(CheckResult::of(&conn.numbers_of(meeting)?));
    }
    Ok(Outcome::new(C::NAME, arguments, &counts, result))
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

fn with_workers<C: Store>(shared: &Shared, progress: Progress) -> Result<Counts> {
    let connections: Vec<C> = (0..shared.arguments.workers.get())
        .map(|_| connect(shared.url))
        .collect::<Result<_>>()?;
    let (sender, events) = mpsc::channel();
    Ok(thread::scope(|scope| {
        for (conn, number) in connections.into_iter().zip(1..) {
            let sender = sender.clone();
            scope.spawn(move || shared.work(number, conn, &sender));
        }
        drop(sender);
        gather(&events, progress)
    }))
}

/// Counts the reports until all workers have ended.
fn gather(events: &Receiver<Event>, mut progress: Progress) -> Counts {
    let began = Instant::now();
    progress.begin();
    let mut counts = Counts::default();
    for event in events {
        match event {
            Event::Issued { passes, retries } => {
                counts.issued += passes;
                counts.retries += retries;
                progress.set(counts.issued);
            }
            Event::Failed(InjectedFailure::Error) => counts.failed += 1,
            Event::Failed(InjectedFailure::Panic) => counts.panicked += 1,
            Event::Failed(InjectedFailure::Disconnection) => counts.disconnected += 1,
            Event::Error(error) => {
                counts.errors += 1;
                progress.print_error("pass", &error);
            }
        }
    }
    counts.took = began.elapsed();
    counts.interrupted = stop::is_requested();
    progress.end();
    counts
}
