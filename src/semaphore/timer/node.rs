//! A node that waits for the ticks of a job.

use std::thread::sleep;
use std::time::{Duration, Instant};

use diesel::r2d2::R2D2Connection;
use uuid::Uuid;

use super::job::{Ticks, TimerJob};
use crate::activity::Active;
use crate::pooled::Borrowed;
use crate::semaphore::acquire::try_acquire_as;
use crate::semaphore::backend::SemaphoreBackend;
use crate::semaphore::holding;
use crate::semaphore::slot_times::{FirstSlot, SlotTimes};
use crate::{Error, LeaseOptions, SemaphoreExt, Slot, SlotGuard, SlotRenewer, backoff};

/// How often a node reads the database's clock while it waits for a tick: clocks drift and are set, and a node that was
/// granted the tick may give it up.
const CLOCK_CHECK: Duration = Duration::from_secs(60);

/// The pause after a slot was granted to another node at the same moment.
const CONTENTION_PAUSE: Duration = Duration::from_millis(50);

/// What a node does next.
pub(super) enum Step {
    Wait(Duration),
    /// The tick with this number.
    Run(SlotGuard, i64),
}

/// A node that waits for ticks.
pub(super) struct Node<'a, C: SemaphoreExt + R2D2Connection + Send + 'static> {
    /// Its waits end when the job is stopped.
    renewer: &'a SlotRenewer<C>,
    job: &'a TimerJob,
    ticks: Ticks,
    lease: &'a LeaseOptions,
    /// The last tick that this node need not run: it has run it, or it was due before this node began.
    last: Option<i64>,
    /// A slot that was granted for a tick, or may have been, and was not used. It is to be released before anything else.
    unused: Option<(Slot, Active)>,
}

impl<'a, C: SemaphoreExt + R2D2Connection + Send + 'static> Node<'a, C> {
    pub(super) fn new(
        renewer: &'a SlotRenewer<C>,
        job: &'a TimerJob,
        ticks: Ticks,
        lease: &'a LeaseOptions,
    ) -> Self {
        Self {
            renewer,
            job,
            ticks,
            lease,
            last: None,
            unused: None,
        }
    }

    /// The node runs the tick now.
    pub(super) fn begin(&mut self, number: i64) {
        self.last = Some(number);
    }

    pub(super) fn step(&mut self) -> Result<Step, Error> {
        // Before the look at the stop: a shutdown that has missed this call has stopped it.
        let active = self.renewer.begin_activity();
        let mut conn = self.renewer.borrow(&self.job.semaphore)?;
        self.release_unused(&mut conn)?;
        let now = C::block_on(C::LockEngine::now_us(&mut conn))?;
        let number = self.ticks.number(now);
        let last = *self.last.get_or_insert(number);
        if number <= last {
            return Ok(until(self.ticks.end(last), now));
        }
        let first = C::block_on(C::LockEngine::first_slot_nowait(&mut conn, self.name()))?;
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
        self.acquire(conn, active, rest, last)
    }

    /// Acquires the slot for the tick that ends after `rest`.
    fn acquire(
        &mut self,
        mut conn: Borrowed<C>,
        active: Active,
        rest: Duration,
        last: i64,
    ) -> Result<Step, Error> {
        let lease = self.lease.at_least(rest);
        let again = Ok(Step::Wait(backoff::jittered(CONTENTION_PAUSE)));
        let token = Uuid::new_v4();
        let attempt = try_acquire_as(&mut *conn, &self.job.semaphore, &lease, token);
        let slot = match C::block_on(attempt) {
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
        let guard = self.renewer.guard(slot, self.lease, active)?;
        match self.granted_tick(&mut conn, &guard, last) {
            Ok(Some(number)) => Ok(Step::Run(guard, number)),
            Ok(None) => {
                // The tick ended before the grant, and the rest of the next one is not covered. Or the clock was set.
                self.give_up(guard);
                self.release_unused(&mut conn)?;
                again
            }
            Err(error) => {
                self.give_up(guard);
                Err(error)
            }
        }
    }

    /// Returns the tick for which the slot was granted, if the slot is unavailable until the end of that tick. The time
    /// of the grant decides which tick it is: the statement may have waited.
    fn granted_tick(
        &self,
        conn: &mut C,
        guard: &SlotGuard,
        last: i64,
    ) -> Result<Option<i64>, Error> {
        loop {
            match C::block_on(C::LockEngine::first_slot_nowait(conn, self.name()))? {
                FirstSlot::Found(times) if times.fence == guard.fence() => {
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
            if !guard.is_held() {
                return Ok(None);
            }
            sleep(backoff::jittered(CONTENTION_PAUSE));
        }
    }

    /// Has the slot released, although its minimum hold time has not passed: the tick was not started.
    pub(super) fn give_up(&mut self, guard: SlotGuard) {
        let active = self.renewer.begin_activity();
        self.unused = guard.into_slot().map(|slot| (slot, active));
    }

    fn release_unused(&mut self, conn: &mut C) -> Result<(), Error> {
        if let Some((slot, _)) = &self.unused {
            C::block_on(holding::release_unused(conn, slot))?;
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

    fn name(&self) -> &str {
        self.job.semaphore.name()
    }
}

/// The node ends: it was stopped, or its closure or the database failed.
impl<C: SemaphoreExt + R2D2Connection + Send + 'static> Drop for Node<'_, C> {
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
