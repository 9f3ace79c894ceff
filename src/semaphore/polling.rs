//! Waits for a turn to query, in the queue of this process, and repeats the query until a time limit.

use std::pin::pin;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::cancel::unless_dropped;
use crate::engine::HasEngine;
use crate::queue::{Queues, Released, Ticket};
use crate::semaphore::acquisition::Acquire;
use crate::semaphore::attempts::{MAX_ATTEMPTS, MAX_RESIZE_WAIT, MIN_RESIZE_WAIT, RetryBudget};
use crate::semaphore::backend::SemaphoreBackend;
use crate::semaphore::events::record_released;
use crate::semaphore::pace::{Holders, Pace};
use crate::waiting::{Answer, AtTheEnd, Attempt, RepeatedAttempt, Waiting, repeat};
use crate::{Error, Semaphore, Wait, transaction::depth};

/// How long an acquisition that does not wait for a slot waits for its turn to query: a few queries of others.
const MAX_TURN_WAIT: Duration = Duration::from_millis(10);

/// The waiters of this process by the semaphore's name.
static QUEUES: LazyLock<Queues<String, Target>> = LazyLock::new(Queues::new);

pub(super) type SlotTicket = Ticket<'static, String, Target>;

/// Waiters with the same name and the same target wait for the same slots.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Target {
    database: String,
    permits: u32,
}

impl Target {
    /// `None` without an identity of the database: no other waiter waits for the same slots.
    pub(super) fn of(database: Option<String>, semaphore: &Semaphore) -> Option<Self> {
        database.map(|database| Self {
            database,
            permits: semaphore.permits(),
        })
    }
}

/// Attempts to acquire a slot until it is granted or the time limit has passed, in turn with other waiters of this
/// process.
pub(super) async fn poll_until<C: HasEngine, A: Acquire<C>>(
    conn: &mut C,
    semaphore: &Semaphore,
    wait: Wait,
    pace: Option<Pace>,
    acquire: A,
) -> Result<A::Granted, Error> {
    let waiting = &begin_wait(semaphore, wait)?;
    // Acquisition is re-entrant in a transaction; in the queue the transaction could wait for waiters that wait for it.
    let in_transaction = depth::depth(conn)? > 0;
    let ticket = if wait == Wait::No || in_transaction {
        leave_out(semaphore)
    } else {
        join(semaphore, max_concurrent(semaphore), pace).keeping_connection()
    };
    let attempt = ConnectedAttempt {
        conn,
        semaphore,
        waiting,
        holders: Holders::new(pace.filter(|_| !in_transaction)),
        acquire,
    };
    repeat(waiting, ticket, AtTheEnd::Attempt, attempt).await
}

/// An attempt of a waiter that has a connection.
struct ConnectedAttempt<'a, C, A> {
    conn: &'a mut C,
    semaphore: &'a Semaphore,
    waiting: &'a Waiting,
    holders: Holders,
    acquire: A,
}

impl<C: HasEngine, A: Acquire<C>> RepeatedAttempt for ConnectedAttempt<'_, C, A> {
    type Timer = C::LockTimer;
    type Target = Target;
    type Value = A::Granted;

    async fn target(&mut self) -> Result<Option<Target>, Error> {
        let (waiting, semaphore) = (self.waiting, self.semaphore);
        let database = pin!(self.database_id());
        let database = waiting.answer_or_time_out::<C, _>(database).await?;
        Ok(Target::of(database, semaphore))
    }

    async fn run(&mut self, attempt: Attempt) -> Result<Answer<A::Granted>, Error> {
        let waiting = self.waiting;
        let attempt = pin!(self.attempt(attempt));
        waiting.answer_or_time_out::<C, _>(attempt).await
    }
}

impl<C: HasEngine, A: Acquire<C>> ConnectedAttempt<'_, C, A> {
    async fn database_id(&mut self) -> Result<Option<String>, Error> {
        unless_dropped!(&mut *self.conn, |conn| C::LockEngine::database_id(conn))
    }

    async fn attempt(&mut self, attempt: Attempt) -> Result<Answer<A::Granted>, Error> {
        let Self {
            conn,
            semaphore,
            waiting,
            holders,
            acquire,
        } = self;
        let look = holders.look(&mut **conn, semaphore, waiting, attempt);
        let pause = look.await?;
        if pause.is_some() {
            return Ok(Answer::Refused { pause });
        }
        let budget = RetryBudget::of(waiting, attempt);
        let granted = acquire.attempt(conn, semaphore, waiting, budget).await?;
        Ok(granted.into())
    }
}

/// Begins a wait for a slot.
pub(super) fn begin_wait(semaphore: &Semaphore, wait: Wait) -> Result<Waiting, Error> {
    let waiting = Waiting::new(wait, semaphore.slot_resource())?;
    semaphore.validate()?;
    Ok(waiting)
}

/// The ticket of a waiter that does not wait for others of this process.
pub(super) fn leave_out(semaphore: &Semaphore) -> SlotTicket {
    QUEUES.independent(semaphore.name().to_owned())
}

/// Joins the queue of those who wait for a slot. Without a pace, attempts are made as often as refusals ask for.
pub(super) fn join(semaphore: &Semaphore, max_concurrent: usize, pace: Option<Pace>) -> SlotTicket {
    let permits = semaphore.permits();
    let name = semaphore.name().to_owned();
    let ticket = QUEUES.join(name, max_concurrent, |target| target.permits == permits);
    polling_within(ticket, pace)
}

/// [`join`] of a waiter that knows the database.
#[cfg(feature = "_pool")]
pub(super) fn join_target(
    semaphore: &Semaphore,
    target: Target,
    max_concurrent: usize,
    pace: Option<Pace>,
) -> SlotTicket {
    let name = semaphore.name().to_owned();
    polling_within(QUEUES.join_target(name, target, max_concurrent), pace)
}

fn polling_within(ticket: SlotTicket, pace: Option<Pace>) -> SlotTicket {
    match pace {
        Some(pace) => ticket.polling_within(pace.interval),
        None => ticket,
    }
}

impl RetryBudget {
    /// A waiter that polls soon again needs few attempts: a locked slot is mostly being granted to another.
    pub(super) fn of(waiting: &Waiting, turn: Attempt) -> Self {
        let Attempt { is_first, notified } = turn;
        Self {
            max_attempts: match waiting.wait {
                Wait::No => MAX_ATTEMPTS,
                Wait::AtMost(_) | Wait::Forever if is_first || notified.is_some() => 3,
                Wait::AtMost(_) | Wait::Forever => 1,
            },
            resize_timeout: match waiting.wait {
                Wait::AtMost(limit) => limit
                    .saturating_sub(waiting.elapsed())
                    .clamp(MIN_RESIZE_WAIT, MAX_RESIZE_WAIT),
                Wait::No | Wait::Forever => MAX_RESIZE_WAIT,
            },
            preferred: notified.and_then(|Released(number)| number),
        }
    }
}

/// The number of threads that may query at once for the first time: more would contend for the same slots.
pub(super) fn max_concurrent(semaphore: &Semaphore) -> usize {
    usize::try_from(semaphore.permits()).unwrap_or(usize::MAX)
}

/// Notifies waiters of this process that `count` slots of the semaphore were released, among them `number` if it is
/// known.
pub(super) fn notify_released(semaphore: &str, count: usize, number: Option<u32>) {
    QUEUES.notify_released(semaphore, count, number);
}

/// Notifies waiters when it is dropped, after the end of the transaction that holds a slot, whatever its outcome.
pub(crate) struct NotifyOnDrop<'a> {
    semaphore: &'a Semaphore,
    acquired: Instant,
}

impl<'a> NotifyOnDrop<'a> {
    /// The slot was acquired now.
    pub(crate) fn new(semaphore: &'a Semaphore) -> Self {
        let acquired = Instant::now();
        Self {
            semaphore,
            acquired,
        }
    }
}

/// Notifies waiters when it is dropped, after the end of a transaction that held a slot and was not used.
pub(super) struct Unused<'a>(pub(super) &'a Semaphore);

impl Drop for Unused<'_> {
    fn drop(&mut self) {
        notify_released(self.0.name(), 1, None);
    }
}

impl Drop for NotifyOnDrop<'_> {
    fn drop(&mut self) {
        let semaphore = self.semaphore.name();
        record_released(semaphore, None, self.acquired.elapsed());
        notify_released(semaphore, 1, None);
    }
}

/// Has the waiter `number` ask whether it is stopped.
#[cfg(feature = "_pool")]
pub(super) fn wake(semaphore: &str, number: u64) {
    QUEUES.wake(semaphore, number);
}

/// Waits for the turn of an acquisition that queries once.
pub(super) async fn wait_for_turn<C: HasEngine>(
    conn: &mut C,
    semaphore: &Semaphore,
) -> Result<SlotTicket, Error> {
    semaphore.validate()?;
    Ok(if depth::depth(conn)? > 0 {
        leave_out(semaphore)
    } else {
        turn::<C>(semaphore, max_concurrent(semaphore)).await
    })
}

/// Waits for the turn of an acquisition that queries once, outside a transaction.
pub(super) async fn turn<C: HasEngine>(semaphore: &Semaphore, max_concurrent: usize) -> SlotTicket {
    let mut ticket = QUEUES.join_once(semaphore.name().to_owned(), max_concurrent);
    let deadline = Instant::now() + MAX_TURN_WAIT;
    ticket.turn::<C::LockTimer>(Some(deadline)).await;
    ticket
}
