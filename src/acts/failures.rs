//! Failures that a test has chosen for the next attempts of this process.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use diesel::result::DatabaseErrorKind;

use crate::engine::Engine;
use crate::link::depth::mark_broken;
use crate::rt::{self, lock};
use crate::values::lock_request::{LockOutcome, Request};
use crate::{Error, Semaphore, Wait};

/// How the next attempts fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Failure {
    /// As if others held the lock or all slots. A wait continues.
    Refused,
    /// [`Error::LockTimeout`], whatever the [`Wait`].
    TimedOut,
    /// [`Error::Deadlock`].
    Deadlock,
    /// [`Error::is_connection_lost`]. The connection is unusable then, and its pool discards it.
    ConnectionLost,
    /// [`Error::SlotLost`], of renewals only.
    SlotLost,
}

/// What fails: an object, or slots of a semaphore.
#[derive(PartialEq, Eq)]
pub(crate) enum Of {
    Object,
    Semaphore,
}

struct Chosen {
    number: u64,
    of: Of,
    name: String,
    failure: Failure,
    left: u32,
}

/// In the order in which they were chosen.
static CHOSEN: Mutex<Vec<Chosen>> = Mutex::new(Vec::new());

/// Failures of the next attempts. Dropping it takes back those that are left.
#[derive(Debug)]
#[must_use = "dropping it takes the failures back"]
pub struct Failures {
    number: u64,
}

impl Failures {
    pub(crate) fn choose(of: Of, name: &str, failure: Failure, attempts: u32) -> Self {
        let mut chosen = lock(&CHOSEN);
        let number = chosen.last().map_or(0, |last| last.number + 1);
        chosen.push(Chosen {
            number,
            of,
            name: name.to_owned(),
            failure,
            left: attempts,
        });
        Self { number }
    }

    /// Returns how many attempts are still to fail.
    pub fn left(&self) -> u32 {
        let chosen = lock(&CHOSEN);
        let own = chosen.iter().find(|it| it.number == self.number);
        own.map_or(0, |it| it.left)
    }
}

impl Drop for Failures {
    fn drop(&mut self) {
        lock(&CHOSEN).retain(|it| it.number != self.number);
    }
}

/// The failure of the attempt, or of the renewal, that is made now.
fn next(of: &Of, name: &str, is_renewal: bool) -> Option<Failure> {
    let mut chosen = lock(&CHOSEN);
    let next = chosen.iter_mut().find(|it| {
        let fits = (it.failure == Failure::SlotLost) == is_renewal;
        fits && it.left > 0 && it.of == *of && it.name == name
    })?;
    next.left -= 1;
    Some(next.failure)
}

/// What names the errors that no database has returned.
const CHOSEN_BY_TEST: &str = "chosen by diesel_locks::testing";

fn error_of(
    failure: Failure,
    engine: &mut dyn Engine,
    timed_out: impl FnOnce(diesel::result::Error) -> Error,
) -> Error {
    let source = |kind| {
        let information = Box::new(CHOSEN_BY_TEST.to_owned());
        diesel::result::Error::DatabaseError(kind, information)
    };
    match failure {
        Failure::Deadlock => Error::Deadlock {
            source: source(DatabaseErrorKind::SerializationFailure),
        },
        Failure::ConnectionLost => {
            mark_broken(engine.status());
            Error::Database(source(DatabaseErrorKind::ClosedConnection))
        }
        _ => timed_out(source(DatabaseErrorKind::Unknown)),
    }
}

/// Whether a test has chosen this time-out, which no wait outlasts.
pub(crate) fn is_chosen_timeout(error: &Error) -> bool {
    matches!(
        error,
        Error::LockTimeout {
            source: Some(diesel::result::Error::DatabaseError(_, information)),
            ..
        } if information.message() == CHOSEN_BY_TEST
    )
}

/// The pause of a request that waits on a connection, after it was refused.
const PAUSE: Duration = Duration::from_millis(10);

/// The outcome of an attempt to acquire object locks, if it is to fail.
pub(crate) async fn of_locks(
    engine: &mut dyn Engine,
    request: &Request,
) -> Option<Result<LockOutcome, Error>> {
    loop {
        let mut ids = request.ids.iter();
        let failure = ids.find_map(|id| next(&Of::Object, id.as_str(), false))?;
        let outcome = match failure {
            Failure::Refused if request.wait == Wait::No => Ok(LockOutcome::Unavailable),
            Failure::Refused if request.remaining() != Some(Duration::ZERO) => {
                rt::pause(PAUSE).await;
                continue;
            }
            failure => Err(error_of(failure, engine, |it| request.timed_out(Some(it)))),
        };
        return Some(outcome);
    }
}

/// Whether an attempt to acquire a slot is to be refused. Fails if it is to fail.
pub(crate) fn of_slot(engine: &mut dyn Engine, semaphore: &Semaphore) -> Result<bool, Error> {
    match next(&Of::Semaphore, semaphore.name(), false) {
        None => Ok(false),
        Some(Failure::Refused) => Ok(true),
        Some(failure) => Err(error_of(failure, engine, |it| {
            Wait::No.timed_out(Instant::now(), semaphore.slot_resource(), Some(it))
        })),
    }
}

/// Whether the slot is to be lost at its renewal.
pub(crate) fn loses_slot(semaphore: &str) -> bool {
    next(&Of::Semaphore, semaphore, true).is_some()
}
