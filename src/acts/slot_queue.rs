//! Waits for a turn to query, in the queue of this process, and repeats the query until a time limit.
//!
//! For a second a waiter attempts to acquire every 10 to 100 ms. Then it reads who holds the slots, and attempts to acquire only
//! when a slot may be free. The pause between two reads is a tenth of the time since the holders last changed, up to the poll
//! interval. So a wait is prolonged by at most a tenth, and a standby that waits for hours reads once per interval.

use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use crate::acts::cancel_guard::unless_dropped;
use crate::acts::events::{Period, record_slot_released};
use crate::acts::slot::Acquire;
use crate::acts::slot_attempts::{MAX_RESIZE_WAIT, MIN_RESIZE_WAIT, NO_WAIT, RetryBudget};
use crate::acts::waiting::{Answer, Attempt, Attempts, Waiting};
use crate::engine::Engine;
use crate::error::limits::FEW_SLOTS;
use crate::link::depth;
use crate::queue::{MAX_POLL_INTERVAL, Options, Place, Queues, Released};
use crate::rt::backoff;
use crate::{Error, Semaphore, Slot, Wait};

/// How long an acquisition that does not wait for a slot waits for its turn to query: a few queries of others.
const MAX_TURN_WAIT: Duration = Duration::from_millis(10);

/// The waiters of this process by the semaphore's name.
static QUEUES: LazyLock<Arc<Queues>> = LazyLock::new(|| Queues::new(false));

pub(crate) fn place(semaphore: &Semaphore) -> Place {
    QUEUES.place(semaphore.name())
}

/// Joins the queue of those who wait for a slot in this database. Without an identity of the database no other waiter waits for
/// the same slots. The interval of the timing is the longest pause of the queue, if it is longer than usual.
pub(crate) fn join(
    place: &mut Place,
    semaphore: &Semaphore,
    database: Option<String>,
    max_concurrent: usize,
    timing: Option<Pace>,
    (connected, acquire): (bool, &Acquire<'_>),
) {
    let Some(database) = database else {
        place.stay_alone();
        return;
    };
    // A waiter with another number of permits waits for other slots.
    let permits = semaphore.permits();
    let permits = permits.map_or_else(|| "registered".to_owned(), |permits| permits.to_string());
    let at_once = if acquire.is_several() {
        "several"
    } else {
        "one"
    };
    let target = format!("{at_once} of {permits} permits in {database}");
    let options = Options {
        connected,
        longest_pause: timing.map_or(MAX_POLL_INTERVAL, |timing| timing.interval),
    };
    place.join(target, max_concurrent, options);
}

/// Attempts to acquire a slot until it is granted or the time limit has passed, in turn with other waiters of this
/// process. Returns the slot of a lease.
pub(crate) async fn poll_until(
    engine: &mut dyn Engine,
    semaphore: &Semaphore,
    wait: Wait,
    acquire: &mut Acquire<'_>,
) -> Result<Option<Slot>, Error> {
    let waiting = &begin_wait(semaphore, wait)?;
    let polled = poll(&mut *engine, semaphore, waiting, acquire).await;
    if polled.is_err()
        && let Some(several) = acquire.several()
    {
        let in_process = engine.is_in_process();
        let given_up = pin!(async {
            several.give_up(engine).await;
            Ok(())
        });
        if let Err(error) = waiting.answer_or_time_out(in_process, given_up).await {
            tracing::debug!(%semaphore, %error, "permits not released: their leases end");
        }
    }
    polled
}

async fn poll(
    engine: &mut dyn Engine,
    semaphore: &Semaphore,
    waiting: &Waiting,
    acquire: &mut Acquire<'_>,
) -> Result<Option<Slot>, Error> {
    let (wait, timing) = (waiting.wait, acquire.timing(Pace::default()));
    let in_transaction = depth::depth(engine.status())? > 0;
    let looks = !in_transaction && !acquire.is_several();
    let mut holders = Holders::new(timing.filter(|_| looks));
    let mut attempts = Attempts::connected(waiting, place(semaphore), Some(semaphore.name()));
    let in_process = engine.is_in_process();
    let max_concurrent = acquire.max_concurrent(semaphore);
    // It finds its target out, and joins: after a refusal if nobody waits, and otherwise at first.
    let mut joins = wait != Wait::No && !in_transaction;
    let mut joins_now = joins && !attempts.place.query_first(max_concurrent, None).await;
    loop {
        if joins_now {
            let id = pin!(async { unless_dropped!(&mut *engine, |engine| engine.database_id()) });
            let database = waiting.answer_or_time_out(in_process, id).await?;
            let place = &mut attempts.place;
            let kind = (true, &*acquire);
            join(place, semaphore, database, max_concurrent, timing, kind);
            joins = false;
        }
        let attempt = attempts.next().await?;
        let answer = {
            let answer = pin!(async {
                let pause = holders.look(engine, semaphore, waiting, attempt).await?;
                if pause.is_some() {
                    return Ok(Answer::Continue(pause));
                }
                let budget = RetryBudget::of(waiting, attempt);
                acquire.attempt(engine, semaphore, waiting, budget).await
            });
            waiting.answer_or_time_out(in_process, answer).await
        };
        if acquire.keeps_any() {
            attempts.place.stay_alone();
            joins = false;
        }
        if let Some(granted) = attempts.after(answer)? {
            return Ok(granted);
        }
        joins_now = joins;
    }
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
        let resize_timeout = match waiting.wait {
            Wait::No => return NO_WAIT,
            Wait::Forever => MAX_RESIZE_WAIT,
            Wait::AtMost(limit) => limit
                .saturating_sub(waiting.elapsed())
                .clamp(MIN_RESIZE_WAIT, MAX_RESIZE_WAIT),
        };
        Self {
            max_attempts: if is_first || released.is_some() { 3 } else { 1 },
            resize_timeout,
            preferred: released.and_then(|Released(number)| number),
        }
    }
}

/// [`max_concurrent`] of a semaphore whose number of permits is in the database.
const MAX_CONCURRENT: usize = 8;

/// The number of waiters that may query at once for the first time: more would contend for the same slots.
pub(crate) fn max_concurrent(semaphore: &Semaphore) -> usize {
    let permits = semaphore.permits().map(usize::try_from);
    permits.map_or(MAX_CONCURRENT, |permits| permits.unwrap_or(usize::MAX))
}

pub(crate) fn notify_released(semaphore: &str, count: usize, number: Option<u32>) {
    QUEUES.notify_released(semaphore, count, number);
}

/// Notifies waiters when it is dropped, after the end of the transaction that holds a slot, whatever its outcome.
pub(crate) struct NotifyOnDrop<'a> {
    pub(crate) semaphore: &'a Semaphore,
    /// `None`: the transaction was not used.
    pub(crate) inside: Option<Period>,
}

impl<'a> NotifyOnDrop<'a> {
    pub(crate) fn new(semaphore: &'a Semaphore) -> Self {
        Self {
            semaphore,
            inside: Some(Period::hold_slot(semaphore.name())),
        }
    }
}

impl Drop for NotifyOnDrop<'_> {
    fn drop(&mut self) {
        let semaphore = self.semaphore.name();
        if let Some(inside) = self.inside.take() {
            record_slot_released(semaphore, None, inside.elapsed());
        }
        notify_released(semaphore, 1, None);
    }
}

/// Waits for the turn of an acquisition that queries once, outside a transaction.
pub(crate) async fn turn(semaphore: &Semaphore, max_concurrent: usize) -> Place {
    let mut place = place(semaphore);
    let deadline = Instant::now() + MAX_TURN_WAIT;
    place.query_first(max_concurrent, Some(deadline)).await;
    place
}

/// The longest pause unless a renewer sets another one.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How long a waiter attempts to acquire without looking at the holders.
const EAGER: Duration = Duration::from_secs(1);

/// The shortest pause after a look at the holders.
const MIN_PAUSE: Duration = Duration::from_millis(100);

/// How many attempts follow a look that has shown a slot without a lease, if they are refused: a transaction holds it.
const ATTEMPTS_PER_LOOK: u32 = 10;

/// The part of the time without a change that a pause takes.
const PAUSE_DIVISOR: u32 = 10;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) interval: Duration,
    /// Whether all pauses after the first attempts are that long.
    pub(crate) patient: bool,
}

impl Pace {
    fn longest_pause(self, unchanged: Duration) -> Duration {
        if self.patient {
            self.interval
        } else {
            let pause = (unchanged / PAUSE_DIVISOR).max(MIN_PAUSE);
            pause.min(self.interval)
        }
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            interval: POLL_INTERVAL,
            patient: false,
        }
    }
}

pub(crate) struct Holders {
    /// `None`: makes attempts only. For slots of transactions, whose holders can't be read.
    pace: Option<Pace>,
    attempts: u32,
    /// Number and fence of each.
    seen: Vec<(i32, i64)>,
    unchanged_since: Instant,
}

impl Holders {
    pub(crate) fn new(pace: Option<Pace>) -> Self {
        Self {
            pace,
            attempts: 0,
            seen: Vec::new(),
            unchanged_since: Instant::now(),
        }
    }

    /// Returns the pause before the next look if all slots are leased, so that an attempt would be refused. Returns `None`
    /// without a query when an attempt is due.
    pub(crate) async fn look(
        &mut self,
        engine: &mut dyn Engine,
        semaphore: &Semaphore,
        waiting: &Waiting,
        turn: Attempt,
    ) -> Result<Option<Duration>, Error> {
        let Some(pace) = self.pace else {
            return Ok(None);
        };
        let eager = !pace.patient && waiting.elapsed() < EAGER;
        // Of many slots, all rows would be read.
        let permits = semaphore.permits();
        let permits = permits.map(|permits| usize::try_from(permits).unwrap_or(usize::MAX));
        let many = permits.unwrap_or(self.seen.len()) > FEW_SLOTS.unsigned_abs() as usize;
        if eager || many || turn.is_first || turn.released.is_some() || waiting.is_over() {
            return Ok(None);
        }
        if self.attempts > 0 {
            self.attempts -= 1;
            return Ok(None);
        }
        let held = unless_dropped!(engine, |engine| engine.list_held_nowait(semaphore.name()))?;
        // Otherwise another session has the table locked.
        let Some(held) = held else {
            return Ok(None);
        };
        match permits {
            Some(permits) if held.len() < permits => {
                self.attempts = ATTEMPTS_PER_LOOK;
                return Ok(None);
            }
            Some(_) => {}
            // Whether an attempt would be refused is not known: one follows each pause.
            None => self.attempts = 1,
        }
        let seen = held
            .iter()
            .map(|(number, fence, _)| (*number, *fence))
            .collect();
        if seen != self.seen {
            self.seen = seen;
            self.unchanged_since = Instant::now();
        }
        let ends = held.iter().map(|(_, _, remaining_us)| *remaining_us);
        let pause = backoff::jittered(pace.longest_pause(self.unchanged_since.elapsed()));
        Ok(Some(ends.min().map_or(pause, |first_us| {
            let first_end = Duration::from_micros(u64::try_from(first_us).unwrap_or(0));
            pause.min(first_end + Duration::from_millis(1))
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_a_tenth_of_the_time_without_a_change() {
        let pause = |pace: Pace, seconds| pace.longest_pause(Duration::from_secs(seconds));
        let pauses = [0, 1, 5, 10, 1000].map(|seconds| pause(Pace::default(), seconds).as_millis());
        assert_eq!(pauses, [100, 100, 500, 1000, 1000]);
        let interval = Duration::from_secs(20);
        let patient = Pace {
            interval,
            patient: true,
        };
        assert_eq!(pause(patient, 0), interval);
        let interval = Duration::from_millis(10);
        let short = Pace {
            interval,
            patient: false,
        };
        assert_eq!(pause(short, 1000), interval);
    }
}
