//! One transaction that issues passes, and how it ends.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use diesel_locks::prelude::*;
use diesel_locks::{Error, RetryPolicy};
use program_support::connection::AnyConnection;
use rand::RngExt;
use rand::rngs::StdRng;

use crate::{Careless, store};

/// How a transaction fails after it has drawn its number.
#[derive(Clone, Copy, Debug)]
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
    pub(crate) fn by_chance(percent: u32, chance: &mut StdRng) -> Option<Self> {
        let all = [Self::Error, Self::Panic, Self::Disconnection];
        (chance.random_range(0..100) < percent).then(|| all[chance.random_range(0..all.len())])
    }
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Issued,
    RolledBack,
    /// The database rolls it back when the connection is dropped.
    Abandoned,
}

/// The panic of [`Failure::Panic`].
struct Planned;

/// The sequence of a meeting's passes.
fn passes_of(meeting: i64) -> Sequence {
    Sequence::new("pass").for_key(meeting)
}

/// Issues a pass for each of the meetings in one transaction, which fails if a failure is given.
pub(crate) fn issue(
    conn: &mut AnyConnection,
    meetings: &[i64],
    failure: Option<Failure>,
    careless: Option<Careless>,
    retries: &mut u32,
) -> Result<End, Error> {
    let mut numbers = Vec::new();
    if let Some(careless) = careless {
        for &meeting in meetings {
            numbers.push(number_before(conn, meeting, careless, retries)?);
        }
    }
    let passes = |conn: &mut AnyConnection| {
        for (place, &meeting) in meetings.iter().enumerate() {
            let number = match numbers.get(place) {
                Some(number) => *number,
                None => conn.next_number(&passes_of(meeting))?,
            };
            store::insert_pass(conn, meeting, number)?;
        }
        Ok::<_, Error>(())
    };
    match failure {
        None => {
            run_transaction(conn, retries, passes)?;
            Ok(End::Issued)
        }
        Some(Failure::Error) => {
            let ended = run_transaction(conn, retries, |conn| {
                passes(conn)?;
                Err::<(), _>(diesel::result::Error::RollbackTransaction.into())
            });
            match ended {
                Err(Error::Database(diesel::result::Error::RollbackTransaction)) => {
                    Ok(End::RolledBack)
                }
                ended => ended.map(|()| End::Issued),
            }
        }
        Some(Failure::Panic) => {
            let ended = catch_unwind(AssertUnwindSafe(|| {
                run_transaction(conn, retries, |conn| {
                    passes(conn)?;
                    // A panic that prints nothing.
                    resume_unwind(Box::new(Planned))
                })
            }));
            match ended {
                Err(panic) if panic.is::<Planned>() => Ok(End::RolledBack),
                Err(panic) => resume_unwind(panic),
                Ok(ended) => ended,
            }
        }
        Some(Failure::Disconnection) => {
            conn.begin("BEGIN")?;
            match passes(conn) {
                Err(error) if !(error.is_retryable() || error.is_timeout()) => Err(error),
                _ => Ok(End::Abandoned),
            }
        }
    }
}

/// Returns a number that does not belong to the transaction that inserts the pass.
fn number_before(
    conn: &mut AnyConnection,
    meeting: i64,
    careless: Careless,
    retries: &mut u32,
) -> Result<i64, Error> {
    match careless {
        Careless::Max => Ok(store::largest_number(conn, meeting)?.unwrap_or(0) + 1),
        Careless::OwnTransaction => {
            run_transaction(conn, retries, |conn| conn.next_number(&passes_of(meeting)))
        }
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
