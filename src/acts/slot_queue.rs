//! Waits for a turn to query, in the queue of this process, and repeats the query until a time limit.

use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use crate::acts::acquisition::Acquire;
use crate::acts::cancel_guard::unless_dropped;
use crate::acts::events::record_slot_released;
use crate::acts::pace::{Holders, Pace};
use crate::acts::slot_attempts::{MAX_ATTEMPTS, MAX_RESIZE_WAIT, MIN_RESIZE_WAIT, RetryBudget};
use crate::acts::waiting::{Attempt, Attempts, Waiting};
use crate::engine::Engine;
use crate::link::depth;
use crate::queue::{MAX_POLL_INTERVAL, Options, Place, Queues, Released};
use crate::{Error, Semaphore, Wait};

/// How long an acquisition that does not wait for a slot waits for its turn to query: a few queries of others.
const MAX_TURN_WAIT: Duration = Duration::from_millis(10);

/// The waiters of this process by the semaphore's name.
static QUEUES: LazyLock<Arc<Queues<String, Target>>> = LazyLock::new(|| Queues::new(false));

pub(crate) type SlotPlace = Place<String, Target>;

#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    database: String,
    permits: u32,
}

pub(crate) fn place(semaphore: &Semaphore) -> SlotPlace {
    QUEUES.place(semaphore.name().to_owned())
}

/// Joins the queue of those who wait for a slot in this database. Without an identity of the database no other waiter waits for
/// the same slots. `interval`: the longest pause of the queue, if it is longer than usual.
pub(crate) fn join(
    place: &mut SlotPlace,
    semaphore: &Semaphore,
    database: Option<String>,
    max_concurrent: usize,
    interval: Option<Duration>,
    connected: bool,
) {
    let Some(database) = database else {
        place.stay_alone();
        return;
    };
    let target = Target {
        database,
        permits: semaphore.permits(),
    };
    let options = Options {
        connected,
        longest_pause: interval.unwrap_or(MAX_POLL_INTERVAL),
    };
    place.join(target, max_concurrent, options);
}

/// Attempts to acquire a slot until it is granted or the time limit has passed, in turn with other waiters of this
/// process.
pub(crate) async fn poll_until<A: Acquire>(
    engine: &mut dyn Engine,
    semaphore: &Semaphore,
    wait: Wait,
    pace: Option<Pace>,
    mut acquire: A,
) -> Result<A::Granted, Error> {
    let waiting = &begin_wait(semaphore, wait)?;
    let in_transaction = depth::depth(engine.status())? > 0;
    let mut holders = Holders::new(pace.filter(|_| !in_transaction));
    let mut attempts = Attempts::connected(waiting, place(semaphore));
    let interval = pace.map(|pace| pace.interval);
    let max_concurrent = max_concurrent(semaphore);
    // It finds its target out, and joins: after a refusal if nobody waits, and otherwise at first.
    let mut joins = wait != Wait::No && !in_transaction;
    let mut joins_now = joins && !attempts.place.query_first(max_concurrent).await;
    loop {
        if joins_now {
            let database = database_id(engine, waiting).await?;
            join(
                &mut attempts.place,
                semaphore,
                database,
                max_concurrent,
                interval,
                true,
            );
            joins = false;
        }
        let attempt = attempts.next().await?;
        let in_process = engine.is_in_process();
        let answer = {
            let answer = pin!(attempt_once(
                engine,
                semaphore,
                waiting,
                &mut holders,
                &mut acquire,
                attempt,
            ));
            waiting.answer_or_time_out(in_process, answer).await
        };
        match answer {
            Ok(Answer::Granted(granted)) => {
                attempts.granted();
                return Ok(granted);
            }
            Ok(Answer::Refused { pause }) => attempts.refused(pause)?,
            Err(error) => attempts.failed(error)?,
        }
        joins_now = joins;
    }
}

async fn database_id(engine: &mut dyn Engine, waiting: &Waiting) -> Result<Option<String>, Error> {
    let in_process = engine.is_in_process();
    let database = async { unless_dropped!(engine, |engine| engine.database_id()) };
    waiting.answer_or_time_out(in_process, pin!(database)).await
}

pub(crate) enum Answer<T> {
    Granted(T),
    Refused {
        /// `None`: the pause follows from the number of refusals.
        pause: Option<Duration>,
    },
}

async fn attempt_once<A: Acquire>(
    engine: &mut dyn Engine,
    semaphore: &Semaphore,
    waiting: &Waiting,
    holders: &mut Holders,
    acquire: &mut A,
    attempt: Attempt,
) -> Result<Answer<A::Granted>, Error> {
    let pause = holders.look(engine, semaphore, waiting, attempt).await?;
    if pause.is_some() {
        return Ok(Answer::Refused { pause });
    }
    let budget = RetryBudget::of(waiting, attempt);
    let granted = acquire.attempt(engine, semaphore, waiting, budget).await?;
    Ok(granted.map_or(Answer::Refused { pause: None }, Answer::Granted))
}

pub(crate) fn begin_wait(semaphore: &Semaphore, wait: Wait) -> Result<Waiting, Error> {
    let waiting = Waiting::new(wait, semaphore.slot_resource())?;
    semaphore.validate()?;
    Ok(waiting)
}

impl RetryBudget {
    /// A waiter that polls soon again needs few attempts: a locked slot is mostly being granted to another.
    pub(crate) fn of(waiting: &Waiting, turn: Attempt) -> Self {
        let Attempt { is_first, released } = turn;
        Self {
            max_attempts: match waiting.wait {
                Wait::No => MAX_ATTEMPTS,
                Wait::AtMost(_) | Wait::Forever if is_first || released.is_some() => 3,
                Wait::AtMost(_) | Wait::Forever => 1,
            },
            resize_timeout: match waiting.wait {
                Wait::AtMost(limit) => limit
                    .saturating_sub(waiting.elapsed())
                    .clamp(MIN_RESIZE_WAIT, MAX_RESIZE_WAIT),
                Wait::No | Wait::Forever => MAX_RESIZE_WAIT,
            },
            preferred: released.and_then(|Released(number)| number),
        }
    }
}

/// The number of waiters that may query at once for the first time: more would contend for the same slots.
pub(crate) fn max_concurrent(semaphore: &Semaphore) -> usize {
    usize::try_from(semaphore.permits()).unwrap_or(usize::MAX)
}

pub(crate) fn notify_released(semaphore: &str, count: usize, number: Option<u32>) {
    QUEUES.notify_released(semaphore, count, number);
}

/// Notifies waiters when it is dropped, after the end of the transaction that holds a slot, whatever its outcome.
pub(crate) struct NotifyOnDrop<'a> {
    semaphore: &'a Semaphore,
    acquired: Instant,
}

impl<'a> NotifyOnDrop<'a> {
    pub(crate) fn new(semaphore: &'a Semaphore) -> Self {
        let acquired = Instant::now();
        Self {
            semaphore,
            acquired,
        }
    }
}

/// As [`NotifyOnDrop`], for a transaction that was not used.
pub(crate) struct Unused<'a>(pub(crate) &'a Semaphore);

impl Drop for Unused<'_> {
    fn drop(&mut self) {
        notify_released(self.0.name(), 1, None);
    }
}

impl Drop for NotifyOnDrop<'_> {
    fn drop(&mut self) {
        let semaphore = self.semaphore.name();
        record_slot_released(semaphore, None, self.acquired.elapsed());
        notify_released(semaphore, 1, None);
    }
}

pub(crate) async fn wait_for_turn(
    engine: &mut dyn Engine,
    semaphore: &Semaphore,
) -> Result<SlotPlace, Error> {
    semaphore.validate()?;
    Ok(if depth::depth(engine.status())? > 0 {
        place(semaphore)
    } else {
        turn(semaphore, max_concurrent(semaphore)).await
    })
}

/// Waits for the turn of an acquisition that queries once, outside a transaction.
pub(crate) async fn turn(semaphore: &Semaphore, max_concurrent: usize) -> SlotPlace {
    let mut place = place(semaphore);
    let deadline = Instant::now() + MAX_TURN_WAIT;
    place.query_once(max_concurrent, deadline).await;
    place
}
