//! Waits for a turn to query, in the queue of this process, and repeats the query until a time limit.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::queue::{Queues, Released, Ticket, Turn};
use crate::semaphore::attempts::{MAX_ATTEMPTS, MAX_RESIZE_WAIT, MIN_RESIZE_WAIT, RetryBudget};
use crate::semaphore::backend::SemaphoreBackend;
use crate::{Error, Semaphore, Wait, transaction::depth};

/// How long an acquisition that does not wait for a slot waits for its turn to query: a few queries of others.
const MAX_TURN_WAIT: Duration = Duration::from_millis(10);

/// The waiters of this process by the semaphore's name.
static QUEUES: LazyLock<Queues<String, Target>> = LazyLock::new(Queues::new);

/// Waiters with the same name and the same target wait for the same slots.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Target {
    database: String,
    permits: u32,
}

/// How a waiter reaches the database.
pub(super) trait WaiterConnection {
    /// Whether a transaction is open on the connection.
    fn is_in_transaction(&mut self) -> Result<bool, Error>;

    /// See [`SemaphoreBackend::database_id`].
    fn database_id(&mut self) -> Result<Option<String>, Error>;
}

/// The connection on which the method was called.
pub(super) struct OwnConnection<'a, C>(pub(super) &'a mut C);

impl<C: SemaphoreBackend> WaiterConnection for OwnConnection<'_, C> {
    fn is_in_transaction(&mut self) -> Result<bool, Error> {
        Ok(depth::depth(self.0)? > 0)
    }

    fn database_id(&mut self) -> Result<Option<String>, Error> {
        C::database_id(self.0)
    }
}

/// Repeats `attempt` until it returns a value or the time limit has passed, in turn with other waiters of this
/// process.
pub(super) fn poll_until<W: WaiterConnection, T>(
    waiter: &mut W,
    semaphore: &Semaphore,
    wait: Wait,
    mut attempt: impl FnMut(&mut W, RetryBudget) -> Result<Option<T>, Error>,
) -> Result<T, Error> {
    if let Wait::AtMost(requested) = wait
        && requested > Wait::LONGEST
    {
        return Err(Error::InvalidWait { requested });
    }
    semaphore.validate()?;
    let started = Instant::now();
    let resource = || format!("a slot of {semaphore}");
    let deadline = match wait {
        Wait::AtMost(limit) => Some(started + limit),
        Wait::No | Wait::Forever => None,
    };
    let (name, permits) = (semaphore.name().to_owned(), semaphore.permits());
    // Acquisition is re-entrant in a transaction; in the queue the transaction could wait for waiters that wait for it.
    let mut ticket = if wait == Wait::No || waiter.is_in_transaction()? {
        QUEUES.independent(name)
    } else {
        QUEUES.join(name, max_concurrent(semaphore), |target| {
            target.permits == permits
        })
    };
    let mut first = true;
    loop {
        let notified = match ticket.wait(deadline) {
            Turn::Query { notified } => notified,
            Turn::Identify => {
                ticket.set_target(target(waiter, permits)?);
                continue;
            }
        };
        let budget = RetryBudget {
            // A waiter that polls soon again needs few attempts: a locked slot is mostly being granted to another.
            max_attempts: match wait {
                Wait::No => MAX_ATTEMPTS,
                Wait::AtMost(_) | Wait::Forever if first || notified.is_some() => 3,
                Wait::AtMost(_) | Wait::Forever => 1,
            },
            resize_timeout: match wait {
                Wait::AtMost(limit) => limit
                    .saturating_sub(started.elapsed())
                    .clamp(MIN_RESIZE_WAIT, MAX_RESIZE_WAIT),
                Wait::No | Wait::Forever => MAX_RESIZE_WAIT,
            },
            preferred: notified.and_then(|Released(number)| number),
        };
        first = false;
        if let Some(value) = attempt(waiter, budget)? {
            ticket.finish();
            return Ok(value);
        }
        if wait == Wait::No {
            return Err(Error::Unavailable {
                resource: resource(),
            });
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(Error::LockTimeout {
                resource: resource(),
                waited: started.elapsed(),
                limit: match wait {
                    Wait::AtMost(limit) => Some(limit),
                    Wait::No | Wait::Forever => None,
                },
                source: None,
            });
        }
        if ticket.needs_target() {
            ticket.set_target(target(waiter, permits)?);
        }
        ticket.record_refusal();
    }
}

/// The number of threads that may query at once for the first time: more would contend for the same slots.
fn max_concurrent(semaphore: &Semaphore) -> usize {
    usize::try_from(semaphore.permits()).unwrap_or(usize::MAX)
}

fn target(waiter: &mut impl WaiterConnection, permits: u32) -> Result<Option<Target>, Error> {
    let database = waiter.database_id()?;
    Ok(database.map(|database| Target { database, permits }))
}

/// Notifies waiters of this process that `count` slots of the semaphore were released, among them `number` if it is
/// known.
pub(super) fn notify_released(semaphore: &str, count: usize, number: Option<u32>) {
    QUEUES.notify_released(semaphore, count, number);
}

/// Waits for the turn of an acquisition that queries once.
pub(super) fn wait_for_turn<C: SemaphoreBackend>(
    conn: &mut C,
    semaphore: &Semaphore,
) -> Result<Ticket<'static, String, Target>, Error> {
    semaphore.validate()?;
    let name = semaphore.name().to_owned();
    if depth::depth(conn)? > 0 {
        return Ok(QUEUES.independent(name));
    }
    let mut ticket = QUEUES.join_once(name, max_concurrent(semaphore));
    ticket.wait(Some(Instant::now() + MAX_TURN_WAIT));
    Ok(ticket)
}
