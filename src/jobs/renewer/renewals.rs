//! The loop that renews and releases the slots of a renewer in the background, on a thread of its own or as a task; and the
//! renewal of all slots, when a third of the shortest lease has passed.

use std::collections::HashMap;
use std::future::poll_fn;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::acts::cancel_guard::unless_dropped;
use crate::acts::events;
#[cfg(feature = "testing")]
use crate::acts::failures;
use crate::engine::HasEngine;
use crate::jobs::callbacks::never_wait;
use crate::jobs::renewer::{Inner, Renew, Sends, Shared};
use crate::rt::alarm::call_at;
use crate::rt::{self, Polled, caught};
use crate::values::lease::{RenewalRequest, RenewalResult, up_to_micros};
use crate::{Error, Pool};

/// The pause before a loop continues after a panic, or requests a thread again.
const RESTART_DELAY: Duration = Duration::from_millis(100);

/// A renewal that failed is retried after a tenth of the shortest lease, within these bounds.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(10);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(2);

/// How long the loop waits for an answer, unless half of the remaining time of a lease is between them.
pub(super) const SHORTEST_ANSWER: Duration = Duration::from_millis(200);
const LONGEST_ANSWER: Duration = Duration::from_secs(10);

const NAME: &str = "diesel-locks renewer";

/// Starts the loop: as a task on the runtime of the caller, unless it is to run `apart` from the application.
pub(super) fn start<P: Pool>(shared: &Arc<Shared<P>>, apart: bool) {
    let running = Running {
        number: shared.lock().current,
        shared: Arc::clone(shared),
        apart,
        has_ended: false,
    };
    if let Err(error) = P::spawn(NAME, apart, run(running)) {
        tracing::warn!(%error, "no thread to renew slots; retrying");
    }
}

async fn run<P: Pool>(mut running: Running<P>) {
    if P::BLOCKS {
        // What the application runs on it may drop a guard.
        never_wait();
    }
    // Hooks of the pool, and the application's instrumentation and subscriber, run in it, and may panic.
    while caught(renew_and_release(&running.shared, running.number))
        .await
        .is_err()
    {
        let restart = Instant::now() + RESTART_DELAY;
        running.shared.lock().postpone(restart);
        let told =
            async { tracing::error!("panic while slots were renewed or released; retrying") };
        let _ = caught(told).await;
    }
    running.has_ended = true;
}

async fn renew_and_release<P: Pool>(shared: &Arc<Shared<P>>, number: u64) {
    while let Some(due) = shared.next_work(number).await {
        if due.renewal {
            shared.renew_all(number).await;
        }
        if due.release && !shared.is_replaced(number) {
            shared.release_pending(number).await;
        }
    }
}

struct Running<P: Pool> {
    shared: Arc<Shared<P>>,
    number: u64,
    apart: bool,
    has_ended: bool,
}

/// The runtime of the loop is shut down, and what is left to do is done apart from it. Or there was no thread for the loop.
impl<P: Pool> Drop for Running<P> {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let mut inner = self.shared.lock();
        let has_work = !inner.slots.is_empty() || !inner.pending_releases.is_empty();
        let continues = has_work && !self.apart && !P::BLOCKS;
        inner.is_running = continues;
        inner.waker = None;
        drop(inner);
        if continues {
            start(&self.shared, true);
        } else if has_work {
            let shared = Arc::clone(&self.shared);
            call_at(Instant::now() + RESTART_DELAY, move || {
                shared.wake(shared.lock());
            });
        }
    }
}

struct Due {
    renewal: bool,
    release: bool,
}

impl Inner {
    fn postpone(&mut self, time: Instant) {
        self.next_renewal = self.next_renewal.map(|at| at.max(time));
        self.next_release = Some(time);
    }

    /// The time until the first lease expires of those that are renewed.
    pub(super) fn remaining(&self) -> Option<Duration> {
        let renewed = self.slots.values().filter(|slot| slot.is_renewed);
        renewed.map(|slot| slot.state.remaining()).min()
    }

    /// What is to be done now; if nothing is, when something will be.
    fn due(&self, now: Instant) -> Result<Due, Option<Instant>> {
        let renewal = self.next_renewal.filter(|_| !self.slots.is_empty());
        let release = self.next_release.unwrap_or(now);
        let release = (!self.pending_releases.is_empty()).then_some(release);
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let due = Due {
            renewal: is_due(renewal),
            release: is_due(release),
        };
        if due.renewal || due.release {
            Ok(due)
        } else {
            Err(renewal.into_iter().chain(release).min())
        }
    }
}

impl<P: Pool> Shared<P> {
    /// Waits for the next renewal or release of the loop with this number. Returns `None` when the loop was replaced, and when
    /// the renewer is closed and nothing is left to release.
    async fn next_work(&self, number: u64) -> Option<Due> {
        rt::wait(|waker| {
            let mut inner = self.lock();
            if inner.current != number {
                return Polled::Ready(None);
            }
            inner.waker = None;
            match inner.due(Instant::now()) {
                Ok(due) => Polled::Ready(Some(due)),
                Err(_) if inner.closed && inner.pending_releases.is_empty() => {
                    inner.is_running = false;
                    Polled::Ready(None)
                }
                Err(until) => {
                    inner.waker = Some(waker.clone());
                    Polled::Pending { until }
                }
            }
        })
        .await
    }

    /// Waits for an answer as [`rt::answer_within`]. A thread can't stop waiting, so at the limit another loop, on another thread,
    /// replaces its loop. Returns `None`, and ignores the answer, if the loop was replaced. Sends nothing if it was replaced before.
    pub(super) async fn answer_within<T: Send>(
        self: &Arc<Self>,
        number: u64,
        limit: Duration,
        work: impl Future<Output = T> + Send,
    ) -> Option<T> {
        if P::Connection::IN_PROCESS {
            return rt::answer_within(limit, work).await;
        }
        let answer_by = Instant::now() + limit;
        if !P::BLOCKS {
            return self.drop_unless_answered(answer_by, work).await;
        }
        {
            let mut inner = self.lock();
            if inner.current != number {
                return None;
            }
            self.await_until(&mut inner, answer_by);
        }
        let answer = caught(work).await;
        let mut inner = self.lock();
        let in_time = inner.current == number;
        if in_time {
            inner.answer_by = None;
        } else {
            inner.unanswered -= 1;
        }
        drop(inner);
        let answer = answer.unwrap_or_else(|panic| resume_unwind(panic));
        in_time.then_some(answer)
    }

    /// Waits as a task, which a guard that is added meanwhile may wake to wait no longer.
    async fn drop_unless_answered<T: Send>(
        &self,
        answer_by: Instant,
        work: impl Future<Output = T> + Send,
    ) -> Option<T> {
        self.lock().answer_by = Some(answer_by);
        let mut work = pin!(work);
        let mut limit = pin!(rt::wait(|waker| {
            let mut inner = self.lock();
            inner.waker = Some(waker.clone());
            match inner.answer_by {
                Some(until) if until > Instant::now() => Polled::Pending { until: Some(until) },
                _ => Polled::Ready(()),
            }
        }));
        let answer = poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => limit.as_mut().poll(context).map(|()| None),
        });
        let answer = answer.await;
        self.lock().answer_by = None;
        answer
    }

    /// Whether another loop has replaced this one.
    pub(super) fn is_replaced(&self, number: u64) -> bool {
        self.lock().current != number
    }

    /// Sets when the answer to the request of the loop is to come at the latest, and has that looked at, if the loop can't do it.
    pub(super) fn await_until(self: &Arc<Self>, inner: &mut Inner, at: Instant) {
        inner.answer_by = Some(at);
        if P::BLOCKS {
            self.look_at(inner, at);
        }
    }

    /// One alarm serves many requests: most are answered long before.
    fn look_at(self: &Arc<Self>, inner: &mut Inner, at: Instant) {
        if inner.alarm.is_some_and(|alarm| alarm <= at) {
            return;
        }
        inner.alarm = Some(at);
        let shared = Arc::downgrade(self);
        call_at(at, move || {
            if let Some(shared) = shared.upgrade() {
                shared.replace_loop(at);
            }
        });
    }

    /// Starts another loop if an answer is overdue, while the pool has connections for it.
    pub(super) fn replace_loop(self: &Arc<Self>, alarm: Instant) {
        let mut inner = self.lock();
        inner.alarm = inner.alarm.filter(|at| *at != alarm);
        let Some(answer_by) = inner.answer_by else {
            return;
        };
        let now = Instant::now();
        if now < answer_by {
            self.look_at(&mut inner, answer_by);
            return;
        }
        let is_replaced = inner.unanswered + 1 < self.connections.share();
        if is_replaced {
            inner.unanswered += 1;
            inner.answer_by = None;
            inner.current += 1;
        } else {
            self.look_at(&mut inner, now + MAX_RETRY_DELAY);
        }
        let sends = inner.sends;
        drop(inner);
        if is_replaced {
            start(self, false);
            tracing::warn!("no answer: another thread renews the slots");
        }
        if sends == Sends::Renewals {
            events::record_renewal(&Ok(false), 0);
        }
    }

    /// Renews all slots with one statement, and sets the time of the next renewal.
    pub(super) async fn renew_all(self: &Arc<Self>, number: u64) {
        self.remove_lost();
        #[cfg(feature = "testing")]
        self.lose_chosen();
        let Some((leases, shortest, remaining)) = self.leases() else {
            return;
        };
        let timeout = remaining.min(shortest / 6);
        let retry_delay = (shortest / 10).clamp(MIN_RETRY_DELAY, MAX_RETRY_DELAY);
        let renewed = self.renew(number, &leases, timeout).await;
        // Without an answer it was recorded when the loop was replaced.
        if self.is_replaced(number) {
            return;
        }
        let pause = match renewed {
            Ok(true) => shortest / 3,
            // Another session had a row locked, or there was no answer.
            Ok(false) | Err(_) => retry_delay,
        };
        // Guards that were added meanwhile may be due earlier.
        let mut inner = self.lock();
        let remaining = inner.remaining();
        let next = remaining.map_or(pause, |remaining| {
            pause.min(remaining / 3).max(MIN_RETRY_DELAY.min(pause))
        });
        let next = if inner.renews_again {
            Duration::ZERO
        } else {
            next
        };
        inner.next_renewal = Some(Instant::now() + next);
        drop(inner);
        events::record_renewal(&renewed, leases.len());
    }

    /// The leases that are to be renewed now, the length of the shortest, and the time until the first one ends. `None` without any.
    fn leases(&self) -> Option<(Vec<RenewalRequest>, Duration, Duration)> {
        let mut inner = self.lock();
        inner.renews_again = false;
        inner.sends = Sends::Renewals;
        let mut leases = Vec::new();
        let mut left_out = Vec::new();
        let mut shortest = None;
        for slot in inner.slots.values_mut() {
            let next = slot.state.next_lease();
            let was_renewed = std::mem::replace(&mut slot.is_renewed, next.is_some());
            if was_renewed && next.is_none() {
                left_out.push(Arc::clone(&slot.state));
            }
            if let Some(next) = next {
                let release_seen = slot.state.release_requested();
                leases.extend(slot.state.slot().rows().map(|row| RenewalRequest {
                    release_seen,
                    ..RenewalRequest::new(row, up_to_micros(next))
                }));
                let lease = slot.state.lease.duration();
                shortest = Some(shortest.map_or(lease, |it: Duration| it.min(lease)));
            }
        }
        let found = shortest.zip(inner.remaining());
        if found.is_none() {
            inner.next_renewal = None;
        }
        drop(inner);
        for state in left_out {
            state.record_stall();
        }
        found.map(|(shortest, remaining)| (leases, shortest, remaining))
    }

    /// Has the guards lose their slots for which a test has chosen that, in place of their renewals.
    #[cfg(feature = "testing")]
    fn lose_chosen(&self) {
        let mut inner = self.lock();
        let slots = inner.slots.extract_if(|_, slot| {
            let semaphore = &slot.state.slot().semaphore;
            failures::loses_slot(semaphore)
        });
        let lost: Vec<_> = slots.map(|(_, slot)| slot.state).collect();
        drop(inner);
        for state in lost {
            state.revoke();
        }
    }

    /// Removes the slots whose leases have ended: a lost guard is not renewed. Asks the guards without the lock, as a callback
    /// may drop another guard.
    fn remove_lost(&self) {
        let states: Vec<_> = {
            let inner = self.lock();
            let slots = inner.slots.values();
            slots.map(|slot| Arc::clone(&slot.state)).collect()
        };
        for state in states {
            if !state.is_held() {
                self.remove(state.slot());
            }
        }
    }

    /// How long the loop waits for an answer: when it has given up, another connection can still renew all slots.
    pub(super) fn answer_limit(&self) -> Duration {
        self.lock().remaining().map_or(LONGEST_ANSWER, |remaining| {
            (remaining / 2).clamp(SHORTEST_ANSWER, LONGEST_ANSWER)
        })
    }

    async fn renew(
        self: &Arc<Self>,
        number: u64,
        leases: &[RenewalRequest],
        timeout: Duration,
    ) -> Result<bool, Error> {
        let limit = self.answer_limit();
        // The pool may ask the server whether the connection is usable.
        let timeout = timeout.min(limit);
        let lent_within = (timeout + SHORTEST_ANSWER).min(limit);
        let lending = self.answer_within(number, lent_within, self.lend(timeout));
        let Some(lent) = lending.await else {
            return Ok(false);
        };
        let mut conn = lent?;
        let started = Instant::now();
        let limit = self.answer_limit();
        let mut engine = P::Connection::engine(&mut conn)?;
        let renewing =
            async { unless_dropped!(borrowed &mut *engine, |engine| engine.renew_batch(leases)) };
        let Some(answers) = self.answer_within(number, limit, renewing).await else {
            let guards = leases.len();
            tracing::warn!(?limit, guards, "no answer to a renewal; retrying");
            return Ok(false);
        };
        let answers = answers?;
        let clock_resolution = engine.clock_resolution();
        drop(engine);
        drop(conn);
        Ok(self.confirm(leases, answers, started, clock_resolution))
    }

    /// Extends the leases that the database has extended in the statement that was sent at `started`, and marks the guards of
    /// others as lost; that of several permits if one is lost. Returns whether all that are still held have a new lease.
    fn confirm(
        &self,
        leases: &[RenewalRequest],
        answers: Vec<RenewalResult>,
        started: Instant,
        clock_resolution: Duration,
    ) -> bool {
        let answers: HashMap<Vec<u8>, (i64, bool)> = answers
            .into_iter()
            .map(|it| (it.token, (it.remaining_us, it.release_requested)))
            .collect();
        let mut confirmed = Vec::new();
        let mut lost = Vec::new();
        let mut all_renewed = true;
        let inner = self.lock();
        for lease in leases {
            // The first permit of several stands for all.
            let token = Uuid::from_bytes(lease.token);
            let Some(slot) = inner.slots.get(&token) else {
                continue;
            };
            let rows = slot.state.slot().rows();
            let answers: Option<Vec<_>> = rows
                .map(|row| answers.get(row.token.as_bytes().as_slice()).copied())
                .collect();
            let answer = answers.map(|rows| {
                let is_requested = rows.iter().any(|(_, requested)| *requested);
                let remaining = rows.iter().map(|(remaining_us, _)| *remaining_us).min();
                (remaining.unwrap_or(0), is_requested)
            });
            if let Some((remaining_us, requested)) = answer
                && let Ok(remaining_us) = u64::try_from(remaining_us)
            {
                let lease_us = lease.lease_us.unsigned_abs();
                let remaining_us = remaining_us.min(lease_us);
                // Less than the lease when another session had the row locked.
                all_renewed &= remaining_us > lease_us / 4 * 3;
                let remaining =
                    Duration::from_micros(remaining_us).saturating_sub(clock_resolution);
                confirmed.push((Arc::clone(&slot.state), started + remaining, requested));
            } else {
                lost.push(Arc::clone(&slot.state));
            }
        }
        drop(inner);
        for (state, deadline, requested) in confirmed {
            state.confirm(deadline, requested);
        }
        // One after the other: those that a panic of the subscriber leaves are found by the next renewal.
        for state in lost {
            self.remove(state.slot());
            state.revoke();
        }
        all_renewed
    }
}
