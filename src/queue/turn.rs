//! Waits for the turn to query.

use std::hash::Hash;
use std::sync::{Arc, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::ticket::Ticket;
use super::waiters::{MAX_POLL_INTERVAL, Position, Released, State};
use crate::backoff;

/// The shortest pause between two queries of the first waiter, before jitter.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How often a waiter outside the queues looks whether it was stopped.
const STOP_INTERVAL: Duration = Duration::from_millis(25);

/// What the holder of a ticket does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Query the database.
    Query {
        /// The release that the waiter was notified of.
        notified: Option<Released>,
    },
    /// Identify the target, and pass it to [`Ticket::set_target`].
    Identify,
}

impl<K: Eq + Hash + Clone, T: PartialEq + Clone> Ticket<'_, K, T> {
    /// Waits for the turn to query, or until `deadline`, when the waiter queries for the last time.
    pub(crate) fn wait(&mut self, deadline: Option<Instant>) -> Turn {
        self.wait_unless(deadline, || false)
    }

    /// [`wait`](Self::wait) that also ends when `stopped` returns true. [`Queues::wake`] has it asked.
    pub(crate) fn wait_unless(
        &mut self,
        deadline: Option<Instant>,
        stopped: impl Fn() -> bool,
    ) -> Turn {
        match self.position {
            Position::Immediate { .. } => Turn::Query { notified: None },
            Position::Independent => {
                if self.refusals > 0 {
                    let end = Instant::now() + self.pause();
                    sleep_until(deadline.map_or(end, |deadline| deadline.min(end)), stopped);
                }
                Turn::Query { notified: None }
            }
            Position::Queued { number } => self.wait_in_queue(number, deadline, stopped),
        }
    }

    fn wait_in_queue(
        &mut self,
        number: u64,
        deadline: Option<Instant>,
        stopped: impl Fn() -> bool,
    ) -> Turn {
        let pause = self.pause();
        let mut all = self.queues.lock();
        let mut entered = false;
        loop {
            let queues = all.get_mut(&self.key).expect("queues with a waiter");
            let queue = queues.queue_of(number).expect("a queue with a waiter");
            let now = Instant::now();
            if !std::mem::replace(&mut entered, true) {
                let waiter = queue.waiter(number);
                waiter.pause = pause;
                waiter.pause_beside_query = self.pause_beside_query;
                waiter.longest_pause = self.longest_pause;
                queue.limit_pause(self.longest_pause);
                queue.update();
            }
            queue.notify_if_due(now);
            let waiter = queue.waiter(number);
            let passed = |time: Option<Instant>| time.is_some_and(|time| now >= time);
            let ended = passed(deadline) || stopped();
            let (queries, notified) = match waiter.state {
                State::Notified(released) => (true, Some(released)),
                State::Due => (true, None),
                State::Sleeping | State::Querying => (ended, None),
            };
            if queries || passed(self.identify_at) {
                // The database may not respond: meanwhile the next sleeping waiter is the first.
                waiter.state = State::Querying;
                queue.update();
                self.notified = notified.is_some();
                self.identifying = !queries;
                return if queries {
                    Turn::Query { notified }
                } else {
                    Turn::Identify
                };
            }
            let wake_at = [deadline, queue.watch(number), self.identify_at];
            let waiter = queue.waiter(number);
            waiter.parked = true;
            let wake = Arc::clone(&waiter.wake);
            all = match wake_at.into_iter().flatten().min() {
                Some(time) => {
                    let limit = time.saturating_duration_since(now);
                    let woken = wake.wait_timeout(all, limit);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => wake.wait(all).unwrap_or_else(PoisonError::into_inner),
            };
            let queues = all.get_mut(&self.key).expect("queues with a waiter");
            let queue = queues.queue_of(number).expect("a queue with a waiter");
            queue.waiter(number).parked = false;
        }
    }

    fn pause(&self) -> Duration {
        if let Some(pause) = self.next_pause {
            return pause;
        }
        let pauses = self.refusals.saturating_sub(1);
        backoff::jittered(backoff::growing(
            pauses,
            MIN_POLL_INTERVAL,
            MAX_POLL_INTERVAL,
        ))
    }
}

/// Sleeps until `end`, or until `stopped` returns true.
fn sleep_until(end: Instant, stopped: impl Fn() -> bool) {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || stopped() {
            return;
        }
        sleep(left.min(STOP_INTERVAL));
    }
}
