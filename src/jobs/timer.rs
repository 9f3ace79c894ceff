//! A job on a timer, its ticks, and a node that waits for them.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::acts::cancel_guard::{counted, unless_dropped};
use crate::acts::slot;
use crate::acts::slot::try_acquire;
use crate::engine::Engine;
use crate::error::limits::{LONGEST_LEASE, SHORTEST_PERIOD};
use crate::jobs::Participant;
use crate::jobs::guard::{Held, ReleaseKind};
use crate::jobs::renewer::Renewer;
use crate::pools::lender::Lender;
use crate::pools::{Borrowed, discard_if_unusable};
use crate::rt::activity::Active;
use crate::rt::stop_token::StopToken;
use crate::rt::{self, backoff};
use crate::values::slot::{FirstSlot, SlotTimes};
use crate::{Error, LeaseOptions, Semaphore, Slot};

/// A job that is due once per period, on one of all nodes: see [`SlotRenewer::run_on_timer`](crate::SlotRenewer::run_on_timer).
///
/// Its ticks are at `offset + n * period` since 1970-01-01 00:00 UTC, by the database's clock: a period of an hour is due at
/// each full hour.
///
/// ```
/// use diesel_locks::TimerJob;
/// use std::time::Duration;
///
/// const HOUR: Duration = Duration::from_secs(3600);
///
/// // At 02:00 UTC.
/// let report = TimerJob::new("nightly-report", 24 * HOUR).offset(2 * HOUR);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a job does nothing until it is passed to a renewer"]
#[doc(alias("cron", "schedule", "scheduled job", "ScheduledTask"))]
pub struct TimerJob {
    pub(crate) semaphore: Semaphore,
    period: Duration,
    offset: Duration,
}

impl TimerJob {
    /// Creates a job that is due every `period`, from [`SHORTEST_PERIOD`](crate::limits::SHORTEST_PERIOD) to
    /// [`LONGEST_LEASE`](crate::limits::LONGEST_LEASE); fractions of a microsecond are cut off.
    ///
    /// `name` is that of a semaphore with one permit, whose slot the running node holds. Use it for nothing else, and not for a
    /// job with another period, unless that is to take the place of this one.
    pub fn new(name: impl AsRef<str>, period: Duration) -> Self {
        Self {
            semaphore: Semaphore::new(name, 1),
            period,
            offset: Duration::ZERO,
        }
    }

    /// Sets how much later than at the multiples of its period the job is due.
    pub fn offset(mut self, offset: Duration) -> Self {
        self.offset = offset;
        self
    }

    /// Returns the semaphore whose slot the running node holds: for [`held_slots`](crate::InspectExt::held_slots).
    pub fn semaphore(&self) -> &Semaphore {
        &self.semaphore
    }

    pub(crate) fn ticks(&self) -> Result<Ticks, Error> {
        if !(SHORTEST_PERIOD..=LONGEST_LEASE).contains(&self.period) {
            return Err(Error::InvalidInterval {
                subject: "period",
                requested: self.period,
                shortest: SHORTEST_PERIOD,
                longest: LONGEST_LEASE,
            });
        }
        let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        let period = micros(self.period);
        let offset = i64::try_from(self.offset.as_micros() % self.period.as_micros());
        Ok(Ticks {
            period,
            offset: offset.unwrap_or(0) % period,
        })
    }
}

/// The ticks of a job, in microseconds since 1970 UTC.
#[derive(Clone, Copy)]
pub(crate) struct Ticks {
    period: i64,
    offset: i64,
}

impl Ticks {
    /// The number of the tick to which a time belongs: the last one that is not later.
    pub(crate) fn number(self, micros: i64) -> i64 {
        micros.saturating_sub(self.offset).div_euclid(self.period)
    }

    pub(crate) fn start(self, number: i64) -> i64 {
        number
            .saturating_mul(self.period)
            .saturating_add(self.offset)
    }

    pub(crate) fn end(self, number: i64) -> i64 {
        self.start(number.saturating_add(1))
    }
}

/// How often a node reads the database's clock while it waits for a tick: clocks drift and are set, and the node that was
/// granted the tick may give it up.
const CLOCK_CHECK: Duration = Duration::from_secs(60);

/// The pause after a slot was granted to another node at the same moment.
const CONTENTION_PAUSE: Duration = Duration::from_millis(50);

enum Step {
    Wait(Duration),
    Run(Held, i64),
}

/// A node that waits for ticks: what `run_on_timer` does around its closure.
pub(crate) struct TimerNode<'a, L: Lender> {
    node: Participant<'a, L>,
    ticks: Ticks,
    /// The last tick that this node need not run: it has run it, or it was due before this node began.
    last: Option<i64>,
    /// A slot that was granted for a tick, or may have been, and was not used. It is to be released before anything else.
    unused: Option<(Slot, Active)>,
}

impl<'a, L: Lender> TimerNode<'a, L> {
    pub(crate) fn new(
        renewer: &Renewer<L>,
        job: &'a TimerJob,
        lease: &'a LeaseOptions,
    ) -> Result<Self, Error> {
        Ok(Self {
            node: Participant::new(renewer, &job.semaphore, lease)?,
            ticks: job.ticks()?,
            last: None,
            unused: None,
        })
    }

    pub(crate) fn stop(&self) -> &StopToken {
        &self.node.stop
    }

    /// Waits until this node is to run a tick. Returns the slot, and when the tick was due; `None` when the node is stopped.
    pub(crate) async fn next(&mut self) -> Result<Option<(Held, DateTime<Utc>)>, Error> {
        while !self.stop().is_stopped() {
            match self.step().await {
                Ok(Step::Wait(pause)) => {
                    self.node.succeeded();
                    self.stop().pause(pause).await;
                }
                Ok(Step::Run(held, number)) => {
                    self.node.succeeded();
                    let due_at = DateTime::from_timestamp_micros(self.ticks.start(number))
                        .unwrap_or(DateTime::<Utc>::MAX_UTC);
                    if !self.stop().is_stopped() && held.begin_use() {
                        self.last = Some(number);
                        tracing::info!(semaphore = self.name(), %due_at, "tick begins");
                        return Ok(Some((held, due_at)));
                    }
                    self.give_up(held);
                    if !self.stop().is_stopped() {
                        tracing::warn!(semaphore = self.name(), %due_at, "tick not begun: its lease has ended");
                        self.node.pause_after_loss().await;
                    }
                }
                Err(Error::Stopped { .. }) => break,
                Err(error) => self.node.survive(error).await?,
            }
        }
        Ok(None)
    }

    async fn step(&mut self) -> Result<Step, Error> {
        // Before the look at the stop: a shutdown that has missed this call has stopped it.
        let active = self.node.renewer.activity().begin();
        let mut conn = self.node.renewer.borrow(self.node.semaphore).await?;
        let mut engine = conn.engine()?;
        self.release_unused(&mut *engine).await?;
        let now = unless_dropped!(&mut *engine, |engine| engine.now_us());
        let now = discard_if_unusable(&mut *engine, now)?;
        let number = self.ticks.number(now);
        let last = *self.last.get_or_insert(number);
        if number <= last {
            return Ok(until(self.ticks.end(last), now));
        }
        let first = self.first_slot(&mut *engine).await?;
        drop(engine);
        if first == FirstSlot::TableLocked {
            return Ok(Step::Wait(backoff::jittered(CONTENTION_PAUSE)));
        }
        if let FirstSlot::Found(times) = first {
            let end = self.ticks.end(self.ticks.number(times.acquired_us));
            if was_run(&times, self.ticks.start(number), end) {
                return Ok(until(end, now));
            }
            // An earlier tick is still run, or its node has died, or it has another period.
            if times.remaining_us > 0 {
                let poll = backoff::jittered(self.node.renewer.interval());
                return Ok(Step::Wait(poll.min(micros(times.remaining_us + 1000))));
            }
        }
        let rest = micros(self.ticks.end(number) - now);
        self.acquire(conn, active, rest, last).await
    }

    async fn first_slot(&self, engine: &mut dyn Engine) -> Result<FirstSlot, Error> {
        let first = unless_dropped!(&mut *engine, |engine| engine.first_slot_nowait(self.name()));
        discard_if_unusable(engine, first)
    }

    async fn acquire(
        &mut self,
        mut conn: Borrowed<L>,
        active: Active,
        rest: Duration,
        last: i64,
    ) -> Result<Step, Error> {
        let lease = self.node.lease.at_least(rest);
        let again = Ok(Step::Wait(backoff::jittered(CONTENTION_PAUSE)));
        let token = Uuid::new_v4();
        conn.begin_to_lease();
        let mut engine = conn.engine()?;
        let attempt = try_acquire(&mut *engine, self.node.semaphore, &lease, token);
        let granted = counted(self.node.renewer.activity(), attempt).await;
        let slot = match discard_if_unusable(&mut *engine, granted) {
            Ok(Some(slot)) => slot,
            Ok(None) => return again,
            Err(error) => {
                // It may have been granted.
                let slot = Slot::from_parts(self.name(), 1, token, 0);
                self.unused = Some((slot, active));
                return Err(error);
            }
        };
        let slot = self.shortened(slot, &lease);
        let held = self.node.renewer.hold(slot, self.node.lease, active)?;
        held.release_as(ReleaseKind::Unused);
        match self.granted_tick(&mut *engine, &held, last).await {
            Ok(Some(number)) => Ok(Step::Run(held, number)),
            Ok(None) => {
                // The tick ended before the grant, and the rest of the next one is not covered. Or the clock was set.
                self.give_up(held);
                self.release_unused(&mut *engine).await?;
                again
            }
            Err(error) => {
                self.give_up(held);
                Err(error)
            }
        }
    }

    /// Returns the tick for which the slot was granted, if the slot is unavailable until the end of that tick.
    async fn granted_tick(
        &self,
        engine: &mut dyn Engine,
        held: &Held,
        last: i64,
    ) -> Result<Option<i64>, Error> {
        loop {
            match self.first_slot(engine).await? {
                FirstSlot::Found(times) if times.fence == held.slot().fence => {
                    let number = self.ticks.number(times.acquired_us);
                    let covered = times.hold_until_us >= self.ticks.end(number);
                    return Ok((number > last && covered).then_some(number));
                }
                // Another session has the table locked.
                FirstSlot::TableLocked => {}
                // An operator has released the slot, or deleted it.
                FirstSlot::Found(_) | FirstSlot::Missing => return Ok(None),
            }
            self.node.renewer.check_stop(self.node.semaphore)?;
            if !held.is_held() {
                return Ok(None);
            }
            rt::pause(backoff::jittered(CONTENTION_PAUSE)).await;
        }
    }

    /// Has the slot released, although its minimum hold time has not passed: the tick was not started.
    fn give_up(&mut self, held: Held) {
        let active = self.node.renewer.activity().begin();
        self.unused = held.into_slot().map(|slot| (slot, active));
    }

    async fn release_unused(&mut self, engine: &mut dyn Engine) -> Result<(), Error> {
        if let Some((slot, _)) = &self.unused {
            let released =
                unless_dropped!(&mut *engine, |engine| slot::release_unused(engine, slot));
            discard_if_unusable(engine, released)?;
            self.unused = None;
        }
        Ok(())
    }

    /// The slot with the end of the lease that its renewals confirm. The first lease is longer if the tick is.
    fn shortened(&self, mut slot: Slot, first: &LeaseOptions) -> Slot {
        let longer = first.duration().saturating_sub(self.node.lease.duration());
        slot.deadline = slot
            .deadline
            .checked_sub(longer)
            .unwrap_or_else(Instant::now);
        slot
    }

    fn name(&self) -> &'a str {
        self.node.semaphore.name()
    }
}

/// The node ends: it was stopped or dropped, or its closure or the database failed.
impl<L: Lender> Drop for TimerNode<'_, L> {
    fn drop(&mut self) {
        if let Some((slot, _)) = &self.unused {
            let lease = self.node.lease.duration();
            self.node.renewer.release_unused(slot, lease);
        }
    }
}

/// Whether a tick that was due at `start` was run. A slot that was granted for a tick has a minimum hold time, and keeps it
/// when it is released: a grant for a tick, with whichever period, runs all ticks that were due before it. One race is left: a
/// node that stalls between its look and its grant for longer than another's whole tick may run a tick with the same time.
fn was_run(times: &SlotTimes, start: i64, end: i64) -> bool {
    let for_a_tick = times.hold_until_us > times.acquired_us;
    let ends_with_tick = times.hold_until_us >= end;
    for_a_tick && times.acquired_us >= start && (ends_with_tick || times.remaining_us <= 0)
}

fn until(time: i64, now: i64) -> Step {
    Step::Wait(micros(time.saturating_sub(now)).min(CLOCK_CHECK))
}

fn micros(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_multiples_of_the_period_after_the_offset() {
        let hour = Duration::from_secs(3600);
        let ticks = TimerJob::new("job", 24 * hour).offset(50 * hour).ticks();
        let ticks = ticks.expect("valid");
        let hours = |hours: i64| hours * 3_600_000_000;
        assert_eq!(ticks.offset, hours(2));
        for (time, number) in [(0, -1), (hours(2) - 1, -1), (hours(2), 0), (hours(26), 1)] {
            assert_eq!(ticks.number(time), number, "{time}");
        }
        assert_eq!(ticks.start(1), hours(26));
        assert_eq!(ticks.end(1), hours(50));
    }

    #[test]
    fn unusable_periods_name_the_limits() {
        for period in [Duration::ZERO, Duration::from_millis(99), Duration::MAX] {
            let error = TimerJob::new("job", period)
                .ticks()
                .err()
                .expect("unusable");
            assert!(error.to_string().contains("100 ms to 100 years"), "{error}");
        }
    }

    #[test]
    fn longest_period_and_offset_do_not_overflow() {
        let ticks = TimerJob::new("job", LONGEST_LEASE)
            .offset(Duration::MAX)
            .ticks();
        let ticks = ticks.expect("valid");
        assert!(ticks.end(ticks.number(i64::MAX / 2)) > i64::MAX / 2);
        assert!(ticks.number(i64::MIN) < 0);
    }
}
