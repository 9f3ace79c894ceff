//! Issues numbered passes for meetings from many connections at once, and checks that no number is lost or repeated.

use std::num::{NonZeroU32, NonZeroUsize};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use diesel_locks::prelude::*;
use program_support::connection::AnyConnection;
use program_support::database::{Database, DatabaseArguments};
use program_support::outcome::{self as printing, OutputArguments};
use program_support::processes::{is_stop_requested, stop_on_interrupt};
use program_support::progress::Progress;
use serde::Serialize;

use issue::{Failure, run_transaction};
use outcome::{CheckResult, Counts, Outcome};
use worker::{Event, Workers};

mod issue;
mod outcome;
mod store;
mod worker;

/// Issues numbered passes for meetings from many connections at once, and checks that no number is lost or repeated.
///
/// The passes of each meeting are numbered 1, 2, 3 and so on. Many workers issue passes for many meetings at the
/// same time. Every meeting has a gap-free sequence: a worker draws a number and inserts the pass in one
/// transaction. Some transactions fail after that, and their numbers must be drawn again.
///
/// A database that --database-url names is kept. Missing tables are created in it, and each run adds its own meetings.
///
/// At the end the program reads the table: a meeting with n passes must have each of the numbers 1 to n once.
#[derive(Parser)]
#[command(name = "passes", version, args_override_self = true)]
struct Arguments {
    #[command(flatten)]
    database: DatabaseArguments,

    /// Number of meetings
    #[arg(long, value_name = "N", default_value = "20")]
    meetings: NonZeroU32,

    /// Number of passes of each meeting
    #[arg(long, value_name = "N", default_value = "500")]
    passes: NonZeroUsize,

    /// Number of worker threads, each with a connection
    #[arg(long, value_name = "N", default_value = "8")]
    workers: NonZeroUsize,

    /// Transactions that fail after the number is drawn, in percent
    ///
    /// They fail by an error, by a panic, or by a lost connection. The worker tries again.
    #[arg(long, value_name = "PERCENT", default_value = "20", value_parser = clap::value_parser!(u32).range(0..=90))]
    failures: u32,

    /// Transactions that issue passes for two meetings, in percent
    ///
    /// Such a transaction issues both passes or none. The order of the meetings is random, so two such transactions may
    /// deadlock: the database aborts one of them, which is retried. PostgreSQL takes a second (`deadlock_timeout`) to
    /// detect a deadlock.
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = clap::value_parser!(u32).range(0..=100))]
    pairs: u32,

    /// Number the passes without a gap-free sequence, to see which errors it prevents
    #[arg(long, value_enum, value_name = "HOW")]
    careless: Option<Careless>,

    /// Seed of the random numbers, for the order of the passes and for the failures
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    output: OutputArguments,
}

/// Wrong ways to number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Careless {
    /// One more than the largest number in the table: two workers may read the same number
    Max,
    /// A number drawn in a separate transaction: it is lost when the pass is not issued
    OwnTransaction,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let url = arguments.database.database_url.as_deref();
    program_support::program!().run(url, |location| run(&arguments, location.database()))
}

fn run(arguments: &Arguments, database: &Database) -> Result<ExitCode> {
    // Workers finish the item that they are at.
    stop_on_interrupt()?;
    let mut conn = AnyConnection::open(database)?;
    diesel_locks::migrate(&mut conn)?;
    conn.create_tables(store::TABLES)?;
    let meetings = make_meetings(&mut conn, arguments.meetings.get())?;

    let passes = arguments.passes.get();
    let progress = Progress::new(meetings.len() * passes, "passes", arguments.output.json);
    let items = worker::work_items(&meetings, passes, arguments.pairs, arguments.seed);
    let workers = Workers::new(database, items, arguments);
    let connections = (0..arguments.workers.get()).map(|_| AnyConnection::open(database));
    let connections = connections.collect::<Result<Vec<_>>>()?;
    let (sender, events) = mpsc::channel();
    let counts = thread::scope(|scope| {
        for (conn, number) in connections.into_iter().zip(1..) {
            let (workers, sender) = (&workers, sender.clone());
            scope.spawn(move || workers.work(number, conn, &sender));
        }
        drop(sender);
        gather(&events, progress)
    });

    let mut result = CheckResult::default();
    for &meeting in &meetings {
        result.add(CheckResult::of(&store::numbers_of(&mut conn, meeting)?));
    }
    let outcome = Outcome::new(database.engine, arguments, counts, result);
    printing::print(&outcome, outcome.verdict(), arguments.output.json)?;
    Ok(outcome.exit_code())
}

/// Creates meetings with new ids, also while another run uses the same database. The ids need no gap-free sequence, but
/// one is available.
fn make_meetings(conn: &mut AnyConnection, count: u32) -> Result<Vec<i64>> {
    let ids = Sequence::new("meeting");
    let meetings = run_transaction(conn, &mut 0, |conn| {
        let meetings: Vec<i64> = conn.next_numbers(&ids, count)?.collect();
        store::insert_meetings(conn, &meetings)?;
        Ok(meetings)
    });
    meetings.context("can't make the meetings")
}

/// Counts the reports until all workers have ended.
fn gather(events: &mpsc::Receiver<Event>, mut progress: Progress) -> Counts {
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
            Event::Failed(failure) => {
                counts.rollbacks += 1;
                match failure {
                    Failure::Error => counts.failed += 1,
                    Failure::Panic => counts.panicked += 1,
                    Failure::Disconnection => counts.disconnected += 1,
                }
            }
            Event::Error(error) => {
                counts.errors += 1;
                progress.print_error("pass", &error);
            }
        }
    }
    counts.took = began.elapsed();
    counts.interrupted = is_stop_requested();
    progress.end();
    counts
}
