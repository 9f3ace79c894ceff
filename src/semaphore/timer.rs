//! A job that a timer starts on every node, and that one node runs per tick.

use std::ops::Deref;
use std::thread::sleep;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use diesel::r2d2::R2D2Connection;

use crate::activity::Active;
use crate::limits::{LONGEST_LEASE, SHORTEST_PERIOD};
use crate::pooled::Borrowed;
use crate::semaphore::acquire::try_acquire;
use crate::semaphore::active_slot::ActiveSlot;
use crate::semaphore::backend::HeldRow;
use crate::semaphore::failures::Failures;
use crate::semaphore::lease::up_to_micros;
use crate::{
    Error, LeaseOptions, Semaphore, SemaphoreExt, Slot, SlotGuard, SlotRenewer, StopToken, backoff,
};

/// How often a node reads the database's clock while it waits for a tick: clocks drift and are set.
const CLOCK_CHECK: Duration = Duration::from_secs(60);

/// The pause after a slot was granted to another node at the same moment.
const CONTENTION_PAUSE: Duration = Duration::from_millis(50);

/// A job that is due once per period, on one of all nodes: see [`SlotRenewer::run_on_timer`].
///
/// Its ticks are at `offset`, `offset + period`, `offset + 2 * period` and so on since 1970-01-01 00:00 UTC, by the
/// database's clock: a period of an hour is due at each full hour.
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
    semaphore: Semaphore,
    period: Duration,
    offset: Duration,
}

impl TimerJob {
    /// The shortest period: 100 ms.
    pub const SHORTEST_PERIOD: Duration = SHORTEST_PERIOD;

    /// Creates a job that is due every `period`, from 100 ms to 36,525 days; fractions of a microsecond are cut off.
    ///
    /// `name` is the name of a semaphore with one permit, whose slot the running node holds. Use it for nothing else.
    pub fn new(name: impl AsRef<str>, period: Duration) -> Self {
        Self {
            semaphore: Semaphore::new(name, 1),
            period,
            offset: Duration::ZERO,
        }
    }

    /// Sets how much later than at the multiples of its period the job is due. The default is zero.
    pub fn offset(mut self, offset: Duration) -> Self {
        self.offset = offset;
        self
    }

    /// Returns the semaphore whose slot the running node holds: for [`held_slots`](SemaphoreExt::held_slots).
    pub fn semaphore(&self) -> &Semaphore {
        &self.semaphore
    }

    fn ticks(&self) -> Result<Ticks, Error> {
        if !(SHORTEST_PERIOD..=LONGEST_LEASE).contains(&self.period) {
            return Err(Error::InvalidInterval {
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
struct Ticks {
    period: i64,
    offset: i64,
}

impl Ticks {
    /// The number of the tick to which a time belongs: the last one that is not later.
    fn number(self, micros: i64) -> i64 {
        micros.saturating_sub(self.offset).div_euclid(self.period)
    }

    fn start(self, number: i64) -> i64 {
        number
            .saturating_mul(self.period)
            .saturating_add(self.offset)
    }

    fn end(self, number: i64) -> i64 {
        self.start(number.saturating_add(1))
    }
}

/// A tick of a [`TimerJob`], and the slot that is held while it is run. Dereferences to its [`ActiveSlot`].
#[derive(Debug)]
pub struct Tick {
    slot: ActiveSlot,
    due_at: DateTime<Utc>,
}

impl Tick {
    /// Returns the time at which the tick was due, by the database's clock, on whichever node it runs. No two calls of the
    /// closures of one job get the same time, unless an operator releases the slot by force or deletes its row, or the clock jumps back. Use it
    /// as a unique key of what the job makes, so that a second run fails.
    pub fn due_at(&self) -> DateTime<Utc> {
        self.due_at
    }
}

impl Deref for Tick {
    type Target = ActiveSlot;

    fn deref(&self) -> &ActiveSlot {
        &self.slot
    }
}

/// What a node does next.
enum Step {
    Wait(Duration),
    /// The tick with this number.
    Run(SlotGuard, i64),
}

impl<C: SemaphoreExt + R2D2Connection + Send + 'static> SlotRenewer<C> {
    /// Runs a job on a timer until `stop` is stopped: at each tick of the job, one of all nodes calls `f`.
    ///
    /// Call it on every node, on a thread of its own. The clocks of the nodes do not matter: the database's clock says
    /// when a tick is due. The node that is granted the job's slot runs the tick, and the slot stays unavailable until the
    /// next tick is due, however early `f` returns. So no tick is started twice.
    ///
    /// A node that dies in a tick loses that tick: no other node repeats it. Its lease (`lockAtMostFor` in ShedLock) delays
    /// the next tick only, if it ends later. The lease is renewed while `f` runs, so a job may take longer than the lease,
    /// or than the period. `f` has to return when [`is_active`](ActiveSlot::is_active) returns false. The slot's time until the next tick needs
    /// no setting (`lockAtLeastFor`).
    ///
    /// | event | what follows |
    /// |---|---|
    /// | a tick is due | the first node that asks runs it, a few milliseconds later |
    /// | a node dies, or loses the slot, while it runs a tick | that tick is not repeated; the next tick is run by another node, once the lease has ended |
    /// | the job takes longer than its period | when it has ended, the newest tick that is due is run; older ones are skipped |
    /// | the database was out of reach when a tick was due | the tick is run when it is back, if no later tick is due by then |
    /// | the method is called in the middle of a period | this node begins with the next tick |
    /// | no node calls the method when a tick is due, or the node that was granted it is stopped in the same moment | the tick is skipped |
    /// | the database's clock jumps back | nodes that have run or seen the last tick wait until the clock has passed it; a node that starts meanwhile may repeat ticks, if the last job ended after its tick and the jump is longer than that delay |
    /// | an error of the database between the grant of a tick and the call of `f` | the tick is skipped |
    /// | an operator calls [`force_release_all`](SemaphoreExt::force_release_all), or deletes the row of the slot | the current tick may be run again |
    /// | `f` returns an error, or panics | the slot is released, and the caller gets the error or panic: this node runs no further tick. The tick is not repeated |
    /// | an error of the database while it waits | as in [`run_as_leader`](Self::run_as_leader) |
    ///
    /// Between two ticks a node sends one query a minute. While another node runs a tick for longer than a period, it asks
    /// once per poll interval ([`poll_interval`](Self::poll_interval)).
    ///
    /// # Errors
    ///
    /// Those of `f`. [`Error::InvalidName`], [`Error::InvalidLease`], and [`Error::InvalidInterval`] for the period or
    /// the poll interval, before anything is sent to the database. [`Error::BrokenClientLibrary`]. The others as in
    /// [`run_as_leader`](Self::run_as_leader).
    ///
    /// ```
    /// use diesel_locks::prelude::*;
    /// use diesel_locks::{Error, SlotRenewer, StopToken, TimerJob};
    /// use std::time::Duration;
    ///
    /// # mod sqlite { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sqlite/mod.rs")); }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let pool = sqlite::pool(&directory.path().join("app.db").display().to_string())?;
    /// # diesel_locks::migrate(&mut pool.get()?)?;
    /// let renewer = SlotRenewer::new(pool); // once, when the application starts
    /// let stop = StopToken::new(); // stopped on SIGTERM
    /// let lease = LeaseOptions::new(Duration::from_secs(30)).holder("node-2");
    /// let job = TimerJob::new("queue-logs", Duration::from_millis(200));
    /// # let signal = stop.clone();
    /// renewer.run_on_timer(&job, &lease, &stop, |tick| {
    ///     println!("due at {}", tick.due_at());
    ///     # signal.stop();
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias(
        "cron",
        "schedule",
        "scheduler",
        "ShedLock",
        "SchedulerLock",
        "periodic"
    ))]
    pub fn run_on_timer<E, F>(
        &self,
        job: &TimerJob,
        lease: &LeaseOptions,
        stop: &StopToken,
        mut f: F,
    ) -> Result<(), E>
    where
        F: FnMut(&Tick) -> Result<(), E>,
        E: From<Error>,
    {
        job.semaphore.validate()?;
        lease.check()?;
        self.check_interval()?;
        let ticks = job.ticks()?;
        let (stop, _registration) = self.child_of_both(stop);
        let mut node = Node {
            renewer: &self.stopped_by(&stop),
            job,
            ticks,
            lease,
            last: None,
        };
        let mut failures = Failures::default();
        while !stop.is_stopped() {
            match node.step() {
                Ok(Step::Wait(pause)) => {
                    failures.reset();
                    stop.sleep(pause);
                }
                Ok(Step::Run(guard, number)) => {
                    failures.reset();
                    node.last = Some(number);
                    let tick = Tick {
                        slot: ActiveSlot::new(guard, &stop),
                        due_at: DateTime::from_timestamp_micros(ticks.start(number))
                            .unwrap_or(DateTime::<Utc>::MAX_UTC),
                    };
                    let (name, due_at) = (job.semaphore.name(), tick.due_at);
                    if tick.is_active() {
                        tracing::info!(semaphore = name, %due_at, "tick begins");
                        let result = f(&tick);
                        tick.slot.release();
                        result?;
                    } else if !stop.is_stopped() {
                        tracing::warn!(semaphore = name, %due_at, "tick skipped: its lease ended before it began");
                    }
                }
                Err(Error::Stopped { .. }) => break,
                Err(error) => failures.back_off(error, job.semaphore.name(), &stop)?,
            }
        }
        Ok(())
    }
}

/// A node that waits for ticks.
struct Node<'a, C: SemaphoreExt + R2D2Connection + Send + 'static> {
    /// Its waits end when the job is stopped.
    renewer: &'a SlotRenewer<C>,
    job: &'a TimerJob,
    ticks: Ticks,
    lease: &'a LeaseOptions,
    /// The last tick that this node need not run: it has been run, or was due before this node began.
    last: Option<i64>,
}

impl<C: SemaphoreExt + R2D2Connection + Send + 'static> Node<'_, C> {
    fn step(&mut self) -> Result<Step, Error> {
        // Before the look at the stop: a shutdown that has missed this call has stopped it.
        let active = self.renewer.begin_activity();
        let mut conn = self.renewer.borrow(&self.job.semaphore)?;
        let now = C::now_us(&mut conn)?;
        let number = self.ticks.number(now);
        let last = *self.last.get_or_insert(number);
        if number <= last {
            return Ok(until(self.ticks.end(last), now));
        }
        let end = self.ticks.end(number);
        // Not known while another session has the table locked: an attempt finds out.
        let held = C::list_held_nowait(&mut conn, self.job.semaphore.name())?.unwrap_or_default();
        // A slot that was granted for a tick is unavailable until the end of that tick.
        let was_run =
            |row: &HeldRow| self.ticks.number(row.acquired_us) >= number && row.expires_us >= end;
        if held.iter().any(was_run) {
            self.last = Some(number);
            return Ok(until(end, now));
        }
        // An earlier tick is still run, or its node has died.
        if let Some(row) = held.first() {
            let poll = backoff::jittered(self.renewer.interval());
            return Ok(Step::Wait(poll.min(micros(row.remaining_us + 1000))));
        }
        self.acquire(conn, active, micros(end - now), last)
    }

    /// Acquires the slot for the tick that ends after `rest`.
    fn acquire(
        &self,
        mut conn: Borrowed<C>,
        active: Active,
        rest: Duration,
        last: i64,
    ) -> Result<Step, Error> {
        let lease = self.lease.at_least(rest);
        let again = Ok(Step::Wait(backoff::jittered(CONTENTION_PAUSE)));
        let Some(slot) = try_acquire(&mut *conn, &self.job.semaphore, &lease)? else {
            return again;
        };
        let token = slot.token.into_bytes();
        let guard = self
            .renewer
            .guard(self.shortened(slot, &lease), self.lease, active)?;
        // The time of the grant decides which tick it is: the statement may have waited.
        let held = loop {
            if let Some(held) = C::list_held_nowait(&mut conn, self.job.semaphore.name())? {
                break held;
            }
            // Another session has the table locked.
            self.renewer.check_stop(&self.job.semaphore)?;
            if !guard.is_held() {
                return again;
            }
            sleep(backoff::jittered(CONTENTION_PAUSE));
        };
        drop(conn);
        let is_ours = |row: &&HeldRow| row.token.as_deref() == Some(token.as_slice());
        let granted = held.iter().find(is_ours).map(|row| row.acquired_us);
        let covered = granted.and_then(|granted| {
            let number = self.ticks.number(granted);
            let unavailable_until = granted.saturating_add(up_to_micros(lease.min_hold()));
            (number > last && unavailable_until >= self.ticks.end(number)).then_some(number)
        });
        let Some(number) = covered else {
            // The tick ended before the grant, and the rest of the next one is not covered. Or the clock was set.
            drop(guard);
            return again;
        };
        Ok(Step::Run(guard, number))
    }

    /// The slot with the end of the lease that its renewals confirm. The first lease is longer if the tick is.
    fn shortened(&self, mut slot: Slot, first: &LeaseOptions) -> Slot {
        let longer = first.duration().saturating_sub(self.lease.duration());
        slot.deadline = slot
            .deadline
            .checked_sub(longer)
            .unwrap_or_else(Instant::now);
        slot
    }
}

/// Waits until a time, both by the database's clock.
fn until(time: i64, now: i64) -> Step {
    Step::Wait(micros(time - now).min(CLOCK_CHECK))
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
