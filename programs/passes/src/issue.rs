//! One transaction that issues passes, and how it ends.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use anyhow::Result;
use diesel::connection::TransactionManager;
use diesel_locks::{Error, Sequence};

use crate::arguments::Careless;
use crate::injected_failure::InjectedFailure;
use crate::retry::run_transaction;
use crate::store::Store;

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Issued,
    RolledBack,
    /// The database rolls it back when the connection is dropped.
    Abandoned,
}

/// The panic of [`InjectedFailure::Panic`].
struct Planned;

/// The sequence of a meeting's passes.
fn passes_of(meeting: i64) -> Sequence {
    Sequence::new("pass").for_key(meeting)
}

/// Issues a pass for each of the meetings in one transaction, which fails if a failure is given.
pub(crate) fn issue<C: Store>(
    conn: &mut C,
    meetings: &[i64],
    failure: Option<InjectedFailure>,
    careless: Option<Careless>,
    retries: &mut u32,
) -> Result<End, Error> {
    let mut numbers = Vec::new();
    if let Some(careless) = careless {
        for &meeting in meetings {
            numbers.push(number_before(conn, meeting, careless, retries)?);
        }
    }
    let passes = |conn: &mut C| {
        for (place, &meeting) in meetings.iter().enumerate() {
            let number = match numbers.get(place) {
                Some(number) => *number,
                None => conn.next_number(&passes_of(meeting))?,
            };
            conn.insert_pass(meeting, number)?;
        }
        Ok::<_, Error>(())
    };
    match failure {
        None => {
            run_transaction(conn, retries, passes)?;
            Ok(End::Issued)
        }
        Some(InjectedFailure::Error) => {
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
        Some(InjectedFailure::Panic) => {
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
        Some(InjectedFailure::Disconnection) => {
            C::TransactionManager::begin_transaction(conn)?;
            match passes(conn) {
                Err(error) if !(error.is_retryable() || error.is_timeout()) => Err(error),
                _ => Ok(End::Abandoned),
            }
        }
    }
}

/// Returns a number that does not belong to the transaction that inserts the pass.
fn number_before<C: Store>(
    conn: &mut C,
    meeting: i64,
    careless: Careless,
    retries: &mut u32,
) -> Result<i64, Error> {
    match careless {
        Careless::Max => Ok(conn.largest_number(meeting)?.unwrap_or(0) + 1),
        Careless::OwnTransaction => {
            run_transaction(conn, retries, |conn| conn.next_number(&passes_of(meeting)))
        }
    }
}
