//! A worker: a thread with a connection that issues passes until all are issued.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::Result;
use diesel::result::Error::RollbackTransaction;
use diesel_locks::prelude::*;
use diesel_locks::{Error, RetryPolicy};
use program_support::connection::AnyConnection;
use program_support::database::Database;
use program_support::processes::is_stop_requested;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::{Arguments, Careless, store};

/// A report of a worker.
pub(crate) enum Event {
    /// A pass is issued, after this number of retries.
    Issued { retries: u32 },
    /// A transaction failed as planned.
    Failed(Failure),
    /// The worker has given up a pass, or has ended.
    Error(String),
}

/// How a transaction fails after it has drawn its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The closure returns an error.
    Error,
    /// The closure panics.
    Panic,
    /// The connection is lost.
    Disconnection,
}

impl Failure {
    /// One of the failures with this probability, otherwise `None`.
    fn by_chance(percent: u32, chance: &mut StdRng) -> Option<Self> {
        let all = [Self::Error, Self::Panic, Self::Disconnection];
        (chance.random_range(0..100) < percent).then(|| all[chance.random_range(0..all.len())])
    }
}

/// The panic of [`Failure::Panic`].
struct Planned;

/// What all workers share.
pub(crate) struct Workers<'a> {
    pub(crate) database: &'a Database,
    pub(crate) arguments: &'a Arguments,
    /// The meeting of each pass.
    pub(crate) wanted: Vec<i64>,
    pub(crate) next: AtomicUsize,
}

impl Workers<'_> {
    /// Runs a worker until no pass is left.
    pub(crate) fn work(&self, number: u64, mut conn: AnyConnection, events: &Sender<Event>) {
        let mut chance = StdRng::seed_from_u64(number);
        while !is_stop_requested()
            && let Some(&meeting) = self.wanted.get(self.next.fetch_add(1, Ordering::Relaxed))
        {
            conn = match self.until_issued(meeting, conn, &mut chance, events) {
                Ok(conn) => conn,
                Err(error) => return send(events, Event::Error(format!("{error:#}"))),
            };
        }
    }

    /// Tries until the pass is issued. Returns the connection, or a new one in its place.
    fn until_issued(
        &self,
        meeting: i64,
        mut conn: AnyConnection,
        chance: &mut StdRng,
        events: &Sender<Event>,
    ) -> Result<AnyConnection> {
        let mut retries = 0;
        loop {
            let failure = Failure::by_chance(self.arguments.failures, chance);
            let careless = self.arguments.careless;
            let ended = issue(&mut conn, meeting, failure, careless, &mut retries);
            if let Err(error) = ended {
                let text = format!("{:#}", anyhow::Error::from(error));
                send(events, Event::Error(text));
                // In place of one that may be lost, as a pool does.
                return AnyConnection::open(self.database);
            }
            let Some(failure) = failure else {
                send(events, Event::Issued { retries });
                return Ok(conn);
            };
            send(events, Event::Failed(failure));
            if failure == Failure::Disconnection {
                // The database rolls back when the connection is dropped.
                drop(conn);
                conn = AnyConnection::open(self.database)?;
            }
        }
    }
}

/// Sends a report. The receiver exists until all workers have ended.
fn send(events: &Sender<Event>, event: Event) {
    let _ = events.send(event);
}

/// Issues a pass in a transaction, which fails if a failure is given.
fn issue(
    conn: &mut AnyConnection,
    meeting: i64,
    failure: Option<Failure>,
    careless: Option<Careless>,
    retries: &mut u32,
) -> Result<(), Error> {
    let passes = Sequence::new("pass").for_key(meeting);
    // A number that does not belong to the transaction that inserts the pass.
    let number_before = match careless {
        None => None,
        Some(Careless::Max) => Some(store::largest_number(conn, meeting)?.unwrap_or(0) + 1),
        Some(Careless::OwnTransaction) => Some(run_transaction(conn, retries, |conn| {
            conn.next_number(&passes)
        })?),
    };
    let pass = |conn: &mut AnyConnection| -> Result<(), Error> {
        let number = match number_before {
            Some(number) => number,
            None => conn.next_number(&passes)?,
        };
        Ok(store::insert_pass(conn, meeting, number)?)
    };
    if failure == Some(Failure::Disconnection) {
        conn.begin("BEGIN")?;
        return match pass(conn) {
            Err(error) if !(error.is_retryable() || error.is_timeout()) => Err(error),
            _ => Ok(()),
        };
    }
    let ended = catch_unwind(AssertUnwindSafe(|| {
        run_transaction(conn, retries, |conn| {
            pass(conn)?;
            match failure {
                Some(Failure::Error) => Err(RollbackTransaction.into()),
                // A panic that prints nothing.
                Some(Failure::Panic) => resume_unwind(Box::new(Planned)),
                _ => Ok(()),
            }
        })
    }));
    match ended {
        Ok(Err(Error::Database(RollbackTransaction))) => Ok(()),
        Ok(ended) => ended,
        Err(panic) if panic.is::<Planned>() => Ok(()),
        Err(panic) => resume_unwind(panic),
    }
}

/// Many attempts, because 8 workers at one meeting conflict often.
const PATIENT: TransactionOptions = TransactionOptions::new().retry(
    RetryPolicy::max_attempts(21)
        .backoff(Duration::from_millis(10), Duration::from_millis(100))
        .retry_lock_timeouts(),
);

/// Runs the closure in a transaction, and retries it if necessary. Adds the number of retries to `retries`.
pub(crate) fn run_transaction<T>(
    conn: &mut AnyConnection,
    retries: &mut u32,
    mut work: impl FnMut(&mut AnyConnection) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut attempts = 0_u32;
    let result = conn.run_transaction(PATIENT, |conn| {
        attempts += 1;
        work(conn)
    });
    *retries += attempts.saturating_sub(1);
    result
}
