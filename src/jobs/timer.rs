//! A job on a timer, its ticks, and a node that waits for them. The slot alone records a tick: `acquire` leases it with a minimum
//! hold time up to the end of the tick, which `was_run` reads.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::acts::cancel_guard::{counted, discard_if_unusable, unless_dropped};
use crate::acts::slot;
use crate::acts::slot::try_acquire;
use crate::engine::Engine;
use crate::jobs::Participant;
use crate::jobs::guard::Held;
use crate::jobs::schedule::{Schedule, Ticks};
use crate::link::activity::Active;
use crate::pools::connections::Borrowed;
use crate::rt::stop_token::StopToken;
use crate::rt::{self, backoff};
use crate::values::slot::{FirstSlot, SlotTimes};
use crate::{Error, LeaseOptions, Pool, RequestSubject, Semaphore, Slot, SlotRenewer};

/// A job that is due at set times, on one of all nodes: see [`SlotRenewer::run_on_timer`](crate::SlotRenewer::run_on_timer).
///
/// The ticks of [`new`](Self::new) are at `offset + n * period` since 1970-01-01 00:00 UTC, by the database's clock: a period of an hour is due at
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
    schedule: Schedule,
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
            schedule: Schedule::Period(period),
            offset: Duration::ZERO,
        }
    }

    /// Creates a job that is due by a cron expression in a time zone of the IANA database, such as `Europe/Berlin`.
    ///
    /// ```
    /// use diesel_locks::TimerJob;
    ///
    /// // At 02:00 on working days.
    /// let report = TimerJob::cron("nightly-report", "0 2 * * Mon-Fri", "Europe/Berlin");
    /// ```
    ///
    /// The expression has five fields: minute, hour, day of the month, month, weekday (0 and 7 are Sunday); or it is `@hourly`,
    /// `@daily`, `@weekly`, `@monthly` or `@yearly`. With a day of the month and a weekday the job is due on
    /// each day that matches one of them, with `+` before the weekday on those that match both. `L` is the last day of
    /// the month, `5#2` the second Friday, `5L` the last one, `15W` the weekday nearest to the 15th.
    ///
    /// When clocks are changed, a job that names its hours is due once at each of its times: in the hour that comes twice the first
    /// time, and at the end of the hour that is skipped, unless that is on a day that the expression excludes. A job with `*` in the hours is due whenever the clocks show such a time. All
    /// nodes need the same rules for the zone: the same version of `chrono-tz`.
    ///
    /// [`Error::InvalidSchedule`] when the job is started, if expression or zone is unusable, and at a change of the zone by more than
    /// two hours.
    #[cfg(feature = "cron")]
    #[doc(alias("crontab", "quartz", "timezone", "CronJob"))]
    pub fn cron(
        name: impl AsRef<str>,
        expression: impl Into<String>,
        zone: impl Into<String>,
    ) -> Self {
        let (expression, zone) = (expression.into(), zone.into());
        Self {
            semaphore: Semaphore::new(name, 1),
            schedule: Schedule::Cron { expression, zone },
            offset: Duration::ZERO,
        }
    }

    /// Sets how much later than at the multiples of its period, or at the times of its expression, the job is due. Whole periods
    /// have no effect; with an expression at most [`LONGEST_LEASE`](crate::limits::LONGEST_LEASE).
    pub fn offset(mut self, offset: Duration) -> Self {
        self.offset = offset;
        self
    }

    /// Returns the semaphore whose slot the running node holds: for [`held_slots`](crate::InspectExt::held_slots).
    pub fn semaphore(&self) -> &Semaphore {
        &self.semaphore
    }

    pub(crate) fn ticks(&self) -> Result<Ticks, Error> {
        self.schedule.ticks(self.offset)
    }
}

/// How often a node reads the database's clock while it waits for a tick: clocks drift and are set, and the node that was
/// granted the tick may give it up.
const CLOCK_CHECK: Duration = Duration::from_secs(60);

/// The pause after a slot was granted to another node at the same moment.
const CONTENTION_PAUSE: Duration = Duration::from_millis(50);

enum Step {
    Wait(Duration),
    /// The slot is granted for this tick.
    Run(i64),
}

/// A node that waits for ticks: what `run_on_timer` does around its closure.
pub(crate) struct TimerNode<'a, P: Pool> {
    node: Participant<'a, P>,
    ticks: Ticks,
    began: Instant,
    /// The last tick that this node need not run: it has run it, or it was due before this node began.
    last: Option<i64>,
    /// A slot that was granted for a tick, or may have been, and is not used. It is not renewed: if the database does not answer
    /// before the job is called, other nodes take over when the lease ends. It is to be released before anything else.
    unused: Option<(Slot, Active)>,
}

impl<'a, P: Pool> TimerNode<'a, P> {
    pub(crate) fn new(
        renewer: &SlotRenewer<P>,
        job: &'a TimerJob,
        lease: &'a LeaseOptions,
    ) -> Result<Self, Error> {
        Ok(Self {
            node: Participant::new(renewer, &job.semaphore, lease)?,
            ticks: job.ticks()?,
            began: Instant::now(),
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
                    self.node.failures = 0;
                    self.stop().pause(pause).await;
                }
                Ok(Step::Run(tick)) => {
                    self.node.failures = 0;
                    if self.stop().is_stopped() {
                        break;
                    }
                    let due_at =
                        DateTime::from_timestamp_micros(tick).unwrap_or(DateTime::<Utc>::MAX_UTC);
                    let is_held = |(slot, _): &mut (Slot, _)| !slot.remaining().is_zero();
                    if let Some((slot, active)) = self.unused.take_if(is_held) {
                        self.last = Some(tick);
                        tracing::info!(semaphore = self.name(), %due_at, "tick begins");
                        let held = self.node.renewer.hold(slot, self.node.lease, active);
                        return Ok(Some((held, due_at)));
                    }
                    tracing::warn!(semaphore = self.name(), %due_at, "tick not begun: its lease has ended");
                    self.node.pause_after_loss().await;
                }
                Err(Error::Stopped { .. }) => break,
                Err(error) => self.node.survive(error).await?,
            }
        }
        Ok(None)
    }

    async fn step(&mut self) -> Result<Step, Error> {
        // Before the look at the stop: a shutdown that has missed this call has stopped it.
        let subject = RequestSubject::slots(self.node.semaphore, 1);
        let active = self.node.renewer.activity().begin(Some(subject));
        let mut conn = self.node.renewer.borrow(self.node.semaphore).await?;
        let mut engine = conn.engine()?;
        self.release_unused(&mut *engine).await?;
        let age = i64::try_from(self.began.elapsed().as_micros()).unwrap_or(i64::MAX);
        let now = unless_dropped!(borrowed &mut *engine, |engine| engine.now_us())?;
        let tick = self.ticks.last(now)?;
        // The first answer of the database may come late.
        let before = self.ticks.last(now.saturating_sub(age))?;
        let last = *self.last.get_or_insert(before);
        if tick <= last {
            return Ok(until(self.ticks.next(last)?, now));
        }
        let first = self.first_slot(&mut *engine).await?;
        drop(engine);
        if first == FirstSlot::TableLocked {
            return Ok(Step::Wait(backoff::jittered(CONTENTION_PAUSE)));
        }
        if let FirstSlot::Found(times) = first {
            let end = self.ticks.next(self.ticks.last(times.acquired_us)?)?;
            if was_run(&times, tick, end) {
                return Ok(until(end, now));
            }
            // An earlier tick is still run, or its node has died, or it has another period, or the clock has jumped back.
            if times.remaining_us > 0 {
                let poll = backoff::jittered(self.node.renewer.pace.interval);
                return Ok(Step::Wait(poll.min(micros(times.remaining_us + 1000))));
            }
        }
        let rest = micros(self.ticks.next(tick)? - now);
        self.acquire(conn, active, rest, last).await
    }

    async fn first_slot(&self, engine: &mut dyn Engine) -> Result<FirstSlot, Error> {
        unless_dropped!(borrowed engine, |engine| engine.first_slot_nowait(self.name()))
    }

    async fn acquire(
        &mut self,
        mut conn: Borrowed<P>,
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
        self.unused = Some((slot.clone(), active));
        if let Some(tick) = self.granted_tick(&mut *engine, &slot, last).await? {
            return Ok(Step::Run(tick));
        }
        // The tick ended before the grant, and the rest of the next one is not covered. Or the clock was set.
        self.release_unused(&mut *engine).await?;
        again
    }

    /// Returns the tick for which the slot was granted, if the slot is unavailable until the end of that tick.
    async fn granted_tick(
        &self,
        engine: &mut dyn Engine,
        slot: &Slot,
        last: i64,
    ) -> Result<Option<i64>, Error> {
        loop {
            match self.first_slot(engine).await? {
                FirstSlot::Found(times) if times.fence == slot.fence => {
                    let tick = self.ticks.last(times.acquired_us)?;
                    let covered = times.hold_until_us >= self.ticks.next(tick)?;
                    return Ok((tick > last && covered).then_some(tick));
                }
                // Another session has the table locked.
                FirstSlot::TableLocked => {}
                // An operator has released the slot, or deleted it.
                FirstSlot::Found(_) | FirstSlot::Missing => return Ok(None),
            }
            let waiting = self.node.renewer.without_wait(self.node.semaphore)?;
            waiting.check_stop()?;
            if slot.remaining().is_zero() {
                return Ok(None);
            }
            rt::pause(backoff::jittered(CONTENTION_PAUSE)).await;
        }
    }

    /// Releases the slot before the end of its minimum hold time: the tick was not started.
    async fn release_unused(&mut self, engine: &mut dyn Engine) -> Result<(), Error> {
        if let Some((slot, _)) = &self.unused {
            unless_dropped!(borrowed engine, |engine| slot::release_unused(engine, slot))?;
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
impl<P: Pool> Drop for TimerNode<'_, P> {
    fn drop(&mut self) {
        if let Some((slot, _)) = &self.unused {
            self.node.renewer.release_unused(slot);
        }
    }
}

/// Whether a tick that was due at `start` was run. A slot that was granted for a tick has a minimum hold time, and keeps it
/// when it is released: a grant for a tick, with whichever period, runs all ticks that were due before it. Nodes with different
/// periods may run ticks with the same time: one that stalls between its look and its grant for longer than another's whole tick.
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
