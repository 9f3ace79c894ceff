//! A node that waits for the ticks of a job.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::job::{Ticks, TimerJob};
use crate::activity::Active;
use crate::cancel::{counted, unless_dropped};
use crate::engine::HasEngine;
use crate::lender::Lender;
use crate::pooled::{Borrowed, discard_if_unusable};
use crate::semaphore::acquire::try_acquire_as;
use crate::semaphore::backend::SemaphoreBackend;
use crate::semaphore::failures::Failures;
use crate::semaphore::guard::ReleaseKind;
use crate::semaphore::guard::held::Held;
use crate::semaphore::holding;
use crate::semaphore::pace::POLL_INTERVAL;
use crate::semaphore::renewer::generic::Renewer;
use crate::semaphore::slot_times::{FirstSlot, SlotTimes};
use crate::stop::{Registration, StopToken};
use crate::timer::Timer;
use crate::{Error, LeaseOptions, Slot, backoff};

/// How often a node reads the database's clock while it waits for a tick: clocks drift and are set, and a node that was
/// granted the tick may give it up.
const CLOCK_CHECK: Duration = Duration::from_secs(60);

/// The pause after a slot was granted to another node at the same moment.
const CONTENTION_PAUSE: Duration = Duration::from_millis(50);

/// What a node does next.
enum Step {
    Wait(Duration),
    /// The tick with this number.
    Run(Held, i64),
}

type Engine<L> = <<L as Lender>::Connection as HasEngine>::LockEngine;
type LockTimer<L> = <<L as Lender>::Connection as HasEngine>::LockTimer;

/// A node that waits for ticks: what `run_on_timer` does around its closure.
pub(super) struct Node<'a, L: Lender> {
    /// Its waits end when the job is stopped.
    renewer: Renewer<L>,
    job: &'a TimerJob,
    ticks: Ticks,
    lease: &'a LeaseOptions,
    stop: StopToken,
    _registration: Option<Registration>,
    failures: Failures,
    /// The last tick that this node need not run: it has run it, or it was due before this node began.
    last: Option<i64>,
    /// A slot that was granted for a tick, or may have been, and was not used. It is to be released before anything else.
    unused: Option<(Slot, Active)>,
}

impl<'a, L: Lender> Node<'a, L> {
    /// Checks the arguments. Sends nothing.
    pub(super) fn new(
        renewer: &Renewer<L>,
        job: &'a TimerJob,
        lease: &'a LeaseOptions,
        stop: &StopToken,
    ) -> Result<Self, Error> {
        job.semaphore.validate()?;
        lease.check()?;
        renewer.check_interval()?;
        let ticks = job.ticks()?;
        let (stop, registration) = renewer.child_of_both(stop);
        Ok(Self {
            renewer: renewer.stopped_by(&stop),
            job,
            ticks,
            lease,
            stop,
            _registration: registration,
            failures: Failures::default(),
            last: None,
            unused: None,
        })
    }

    /// Stopped when the loop is to end.
    pub(super) fn stop(&self) -> &StopToken {
        &self.stop
    }

    /// Waits until this node is to run a tick. Returns the slot, and when the tick was due; `None` when the node is stopped.
    pub(super) async fn next(&mut self) -> Result<Option<(Held, DateTime<Utc>)>, Error> {
        while !self.stop.is_stopped() {
            match self.step().await {
                Ok(Step::Wait(pause)) => {
                    self.failures.reset();
                    self.pause(pause).await;
                }
                Ok(Step::Run(held, number)) => {
                    self.failures.reset();
                    let due_at = DateTime::from_timestamp_micros(self.ticks.start(number))
                        .unwrap_or(DateTime::<Utc>::MAX_UTC);
                    if !self.stop.is_stopped() && held.begin_use() {
                        self.last = Some(number);
                        tracing::info!(semaphore = self.name(), %due_at, "tick begins");
                        return Ok(Some((held, due_at)));
                    }
                    self.give_up(held);
                    if !self.stop.is_stopped() {
                        tracing::warn!(semaphore = self.name(), %due_at, "tick not begun: its lease has ended");
                        // Without a pause, a lease that is too short would be granted again and again.
                        self.pause(self.renewer.interval().min(POLL_INTERVAL)).await;
                    }
                }
                Err(Error::Stopped { .. }) => break,
                Err(error) => {
                    let pause = self
                        .failures
                        .pause_after(error, self.job.semaphore.name())?;
                    self.pause(pause).await;
                }
            }
        }
        Ok(None)
    }

    async fn pause(&self, time: Duration) {
        self.stop.pause::<LockTimer<L>>(time).await;
    }

    async fn step(&mut self) -> Result<Step, Error> {
        // Before the look at the stop: a shutdown that has missed this call has stopped it.
        let active = self.renewer.begin_activity();
        let mut conn = self.renewer.borrow(&self.job.semaphore).await?;
        self.release_unused(&mut *conn).await?;
        let now = unless_dropped!(&mut *conn, |conn| Engine::<L>::now_us(conn));
        let now = discard_if_unusable(&mut *conn, now)?;
        let number = self.ticks.number(now);
        let last = *self.last.get_or_insert(number);
        if number <= last {
            return Ok(until(self.ticks.end(last), now));
        }
        let first = self.first_slot(&mut *conn).await?;
        if first == FirstSlot::TableLocked {
            // Without a look it is not known whether the tick was run: an attempt could run it once more.
            return Ok(Step::Wait(backoff::jittered(CONTENTION_PAUSE)));
        }
        if let FirstSlot::Found(times) = first {
            let end = self.ticks.end(self.ticks.number(times.acquired_us));
            if was_run(&times, self.ticks.start(number), end) {
                return Ok(until(end, now));
            }
            // An earlier tick is still run, or its node has died, or it has another period.
            if times.remaining_us > 0 {
                let poll = backoff::jittered(self.renewer.interval());
                return Ok(Step::Wait(poll.min(micros(times.remaining_us + 1000))));
            }
        }
        let rest = micros(self.ticks.end(number) - now);
        self.acquire(conn, active, rest, last).await
    }

    async fn first_slot(&self, conn: &mut L::Connection) -> Result<FirstSlot, Error> {
        let first = unless_dropped!(conn, |conn| Engine::<L>::first_slot_nowait(
            conn,
            self.name()
        ));
        discard_if_unusable(conn, first)
    }

    /// Acquires the slot for the tick that ends after `rest`.
    async fn acquire(
        &mut self,
        mut conn: Borrowed<L>,
        active: Active,
        rest: Duration,
        last: i64,
    ) -> Result<Step, Error> {
        let lease = self.lease.at_least(rest);
        let again = Ok(Step::Wait(backoff::jittered(CONTENTION_PAUSE)));
        let token = Uuid::new_v4();
        conn.begin_to_lease();
        let attempt = try_acquire_as(&mut *conn, &self.job.semaphore, &lease, token);
        let granted = counted(self.renewer.activity(), attempt).await;
        let slot = match discard_if_unusable(&mut *conn, granted) {
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
        let held = self.renewer.hold(slot, self.lease, active)?;
        held.release_as(ReleaseKind::Unused);
        match self.granted_tick(&mut *conn, &held, last).await {
            Ok(Some(number)) => Ok(Step::Run(held, number)),
            Ok(None) => {
                // The tick ended before the grant, and the rest of the next one is not covered. Or the clock was set.
                self.give_up(held);
                self.release_unused(&mut *conn).await?;
                again
            }
            Err(error) => {
                self.give_up(held);
                Err(error)
            }
        }
    }

    /// Returns the tick for which the slot was granted, if the slot is unavailable until the end of that tick. The time
    /// of the grant decides which tick it is: the statement may have waited.
    async fn granted_tick(
        &self,
        conn: &mut L::Connection,
        held: &Held,
        last: i64,
    ) -> Result<Option<i64>, Error> {
        loop {
            match self.first_slot(conn).await? {
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
            self.renewer.check_stop(&self.job.semaphore)?;
            if !held.is_held() {
                return Ok(None);
            }
            LockTimer::<L>::pause(backoff::jittered(CONTENTION_PAUSE)).await;
        }
    }

    /// Has the slot released, although its minimum hold time has not passed: the tick was not started.
    fn give_up(&mut self, held: Held) {
        let active = self.renewer.begin_activity();
        self.unused = held.into_slot().map(|slot| (slot, active));
    }

    async fn release_unused(&mut self, conn: &mut L::Connection) -> Result<(), Error> {
        if let Some((slot, _)) = &self.unused {
            let released = unless_dropped!(conn, |conn| holding::release_unused(conn, slot));
            discard_if_unusable(conn, released)?;
            self.unused = None;
        }
        Ok(())
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

    fn name(&self) -> &'a str {
        self.job.semaphore.name()
    }
}

/// The node ends: it was stopped or dropped, or its closure or the database failed.
impl<L: Lender> Drop for Node<'_, L> {
    fn drop(&mut self) {
        if let Some((slot, _)) = &self.unused {
            self.renewer.release_unused(slot, self.lease.duration());
        }
    }
}

/// Whether a tick that was due at `start` was run. A slot that was granted for a tick, on a node with any period, has a
/// minimum hold time, and keeps it when it is released.
fn was_run(times: &SlotTimes, start: i64, end: i64) -> bool {
    let for_a_tick = times.hold_until_us > times.acquired_us;
    let ends_with_tick = times.hold_until_us >= end;
    for_a_tick && times.acquired_us >= start && (ends_with_tick || times.remaining_us <= 0)
}

/// Waits until a time, both by the database's clock.
fn until(time: i64, now: i64) -> Step {
    Step::Wait(micros(time.saturating_sub(now)).min(CLOCK_CHECK))
}

fn micros(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}
