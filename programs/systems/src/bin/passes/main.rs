//! Issues numbered passes for meetings from many connections at once, and checks that no number is lost or repeated.

use std::collections::BTreeSet;
use std::iter::repeat_n;
use std::num::{NonZeroU32, NonZeroUsize};
use std::process::ExitCode;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Parser, ValueEnum};
use diesel_locks::prelude::*;
use program_support::connection::AnyConnection;
use program_support::database::{Database, DatabaseArguments};
use program_support::outcome::{
    Errors, INTERRUPTED, OutputArguments, Verdict, json, per_second, print, thousandths,
};
use program_support::processes::{is_stop_requested, stop_on_interrupt};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde::Serialize;

use worker::{Event, Failure, Workers, run_transaction};

mod store;
mod worker;

/// Issues numbered passes for meetings from many connections at once, and checks that no number is lost or repeated.
///
/// The passes of each meeting are numbered 1, 2, 3 and so on. Many workers issue passes for many meetings at the
/// same time. Every meeting has a gap-free sequence: a worker draws a number and inserts the pass in one
/// transaction. Some transactions fail after that, and their numbers must be drawn again.
///
/// A database that --database-url names is kept. A missing table is created in it, and each run adds its own meetings.
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

    /// Number the passes without a gap-free sequence, to see which errors it prevents
    #[arg(long, value_enum, value_name = "HOW")]
    careless: Option<Careless>,

    #[command(flatten)]
    output: OutputArguments,
}

/// Wrong ways to number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Careless {
    /// One more than the largest number in the table: two workers may read the same number
    Max,
    /// A number drawn in a separate transaction: it is lost when the pass is not issued
    OwnTransaction,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let url = arguments.database.database_url.as_deref();
    program_support::program!().run(url, |database| run(&arguments, database))
}

fn run(arguments: &Arguments, database: &Database) -> Result<ExitCode> {
    // Workers finish the pass that they are at.
    stop_on_interrupt()?;
    let mut conn = AnyConnection::open(database)?;
    diesel_locks::migrate(&mut conn)?;
    conn.create_tables(store::TABLE)?;
    // New ids, also while another run uses the same database. They need no gap-free sequence, but one is available.
    let ids = Sequence::new("meeting");
    let count = arguments.meetings.get();
    let meetings: Vec<i64> = run_transaction(&mut conn, &mut 0, |conn| {
        Ok(conn.next_numbers(&ids, count)?.collect())
    })?;

    let passes = arguments.passes.get();
    let each = meetings.iter().flat_map(|id| repeat_n(*id, passes));
    let mut wanted: Vec<i64> = each.collect();
    wanted.shuffle(&mut StdRng::seed_from_u64(0));
    let workers = Workers {
        database,
        arguments,
        wanted,
        next: AtomicUsize::new(0),
    };
    let connections = (0..arguments.workers.get()).map(|_| AnyConnection::open(database));
    let connections = connections.collect::<Result<Vec<_>>>()?;
    let (sender, events) = mpsc::channel();
    let counts = thread::scope(|scope| {
        for (conn, number) in connections.into_iter().zip(1..) {
            let (workers, sender) = (&workers, sender.clone());
            scope.spawn(move || workers.work(number, conn, &sender));
        }
        drop(sender);
        gather(&events)
    });

    let mut checked = CheckResult::default();
    for meeting in meetings {
        checked.add(&store::numbers_of(&mut conn, meeting)?);
    }
    let outcome = json!({
        "backend": database.engine,
        "meetings": count,
        "workers": arguments.workers,
        // Passes whose transactions were committed, and transactions that failed after drawing: all, and by kind.
        "issued": counts.issued,
        "rollbacks": counts.failed + counts.panicked + counts.disconnected,
        "failed": counts.failed,
        "panicked": counts.panicked,
        "disconnected": counts.disconnected,
        "retries": counts.retries,
        "errors": counts.errors.0,
        "interrupted": counts.interrupted,
        "passes": checked.passes,
        "gaps": checked.gaps,
        "repeats": checked.repeats,
        "seconds": thousandths(counts.took.as_secs_f64()),
        "per_second": per_second(counts.issued, counts.took),
        "careless": arguments.careless,
    });
    // The table must contain exactly the issued passes.
    let is_right = checked.gaps + checked.repeats == 0 && checked.passes == counts.issued;
    let verdict = match (is_right, arguments.careless) {
        (true, _) if counts.errors.0 > 0 => Verdict(1, "right, but with errors"),
        (true, _) if counts.interrupted => Verdict(INTERRUPTED, "interrupted; right so far"),
        (true, _) => Verdict(0, "right: the passes of every meeting are numbered 1 to n"),
        (false, None) => Verdict(1, "WRONG"),
        (false, Some(Careless::Max)) => {
            Verdict(1, "WRONG: several workers read the same largest number")
        }
        (false, Some(Careless::OwnTransaction)) => Verdict(
            1,
            "WRONG: the numbers of passes that were not issued are lost",
        ),
    };
    Ok(print(&outcome, verdict, arguments.output.json))
}

/// Counts the reports until all workers have ended.
fn gather(events: &mpsc::Receiver<Event>) -> Counts {
    let began = Instant::now();
    let mut counts = Counts::default();
    for event in events {
        match event {
            Event::Issued { retries } => {
                counts.issued += 1;
                counts.retries += retries;
            }
            Event::Failed(Failure::Error) => counts.failed += 1,
            Event::Failed(Failure::Panic) => counts.panicked += 1,
            Event::Failed(Failure::Disconnection) => counts.disconnected += 1,
            Event::Error(error) => counts.errors.add("pass", &error),
        }
    }
    counts.took = began.elapsed();
    counts.interrupted = is_stop_requested();
    counts
}

/// The totals of the workers' reports.
#[derive(Default)]
struct Counts {
    issued: usize,
    failed: usize,
    panicked: usize,
    disconnected: usize,
    /// The number of retries of transactions that the database aborted.
    retries: u32,
    errors: Errors,
    interrupted: bool,
    took: Duration,
}

/// The errors in the numbers of all meetings. The check knows nothing but the numbers in the table: no sequence, no lock,
/// and not what workers report.
#[derive(Default)]
struct CheckResult {
    /// Rows in the table.
    passes: usize,
    /// Missing numbers below the largest.
    gaps: usize,
    /// Passes with a number that another pass has too, without the first of each number.
    repeats: usize,
}

impl CheckResult {
    /// Checks the numbers of all passes of a meeting, in any order.
    fn add(&mut self, numbers: &[i64]) {
        let different: BTreeSet<i64> = numbers.iter().copied().collect();
        let mut expected = 1;
        for &number in &different {
            // A number below 1, which no pass may have, is also an error.
            self.gaps += usize::try_from(number.abs_diff(expected)).unwrap_or(usize::MAX);
            expected = number + 1;
        }
        self.passes += numbers.len();
        self.repeats += numbers.len() - different.len();
    }
}
