//! Waits for the turn to query.

use std::hash::Hash;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::queues::Locked;
use super::ticket::Ticket;
use super::waiter::{MAX_POLL_INTERVAL, Released, State};
use super::waiters::Position;
use crate::backoff;
use crate::timer::{Event, Polled, Timer};

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

impl<K, T> Ticket<'_, K, T>
where
    K: Eq + Hash + Clone + Send,
    T: PartialEq + Clone + Send,
{
    /// Waits for the turn to query, or until `deadline`, when the waiter queries for the last time.
    ///
    /// The future may be dropped at any time: the ticket is then as before, and keeps the turn if it had come.
    pub(crate) async fn turn<W: Timer>(&mut self, deadline: Option<Instant>) -> Turn {
        self.turn_unless::<W>(deadline, None::<fn() -> bool>).await
    }

    /// [`turn`](Self::turn) that also ends when `stopped` returns true. [`Queues::wake`](super::Queues::wake) has it asked.
    pub(crate) async fn turn_unless<W: Timer>(
        &mut self,
        deadline: Option<Instant>,
        stopped: Option<impl Fn() -> bool + Send>,
    ) -> Turn {
        self.asked_at = Some(Instant::now());
        match self.position {
            Position::Immediate { .. } => Turn::Query { notified: None },
            #[cfg(feature = "_pool")]
            Position::Queued { .. } if self.at_once => Turn::Query { notified: None },
            Position::Independent => {
                if self.refusals > 0 {
                    let end = Instant::now() + self.pause();
                    let end = deadline.map_or(end, |deadline| deadline.min(end));
                    W::wait(PauseOutside { end, stopped }).await;
                }
                Turn::Query { notified: None }
            }
            Position::Queued { number } => {
                self.asked_at = None;
                let longest_idle = self.longest_idle.map(backoff::jittered);
                W::wait(QueuedTurn {
                    number,
                    pause: self.pause(),
                    idle_end: longest_idle.map(|idle| Instant::now() + idle),
                    deadline,
                    stopped,
                    may_stall: W::MAY_STALL,
                    ticket: self,
                    entered: false,
                    ended: false,
                })
                .await
            }
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

/// The turn of a waiter in a queue.
struct QueuedTurn<'t, 'q, K: Eq + Hash, T: PartialEq, F> {
    ticket: &'t mut Ticket<'q, K, T>,
    number: u64,
    pause: Duration,
    /// When it identifies its target to use its connection.
    idle_end: Option<Instant>,
    deadline: Option<Instant>,
    stopped: Option<F>,
    /// See [`Timer::MAY_STALL`].
    may_stall: bool,
    /// Whether its queue knows its pauses.
    entered: bool,
    /// Whether it had its turn.
    ended: bool,
}

impl<K, T, F> Event for QueuedTurn<'_, '_, K, T, F>
where
    K: Eq + Hash + Send,
    T: PartialEq + Send,
    F: Fn() -> bool + Send,
{
    type Value = Turn;

    fn poll(&mut self, waker: &Waker) -> Polled<Turn> {
        let ticket = &mut *self.ticket;
        let number = self.number;
        let Locked { names, wakes } = &mut ticket.queues.lock();
        let queues = names.get_mut(&ticket.key).expect("queues with a waiter");
        let queue = queues.queue_of(number).expect("a queue with a waiter");
        let now = Instant::now();
        let waiter = queue.waiter(number);
        wakes.discard(waiter.unpark());
        if !std::mem::replace(&mut self.entered, true) {
            waiter.may_stall = self.may_stall;
            waiter.pause = self.pause;
            waiter.pause_beside_query = ticket.pause_beside_query;
            waiter.longest_pause = ticket.longest_pause;
            #[cfg(feature = "_pool")]
            {
                waiter.keeps_connection = ticket.longest_idle.is_some();
            }
            queue.limit_pause(ticket.longest_pause);
            queue.update(wakes);
        }
        queue.notify_if_due(now, wakes);
        #[cfg(feature = "_pool")]
        let refused_at = queue.refused_at;
        let waiter = queue.waiter(number);
        let passed = |time: Option<Instant>| time.is_some_and(|time| now >= time);
        #[cfg(feature = "_pool")]
        let ask_by = ticket.ask_by.filter(|_| !ticket.is_answered_by(refused_at));
        #[cfg(not(feature = "_pool"))]
        let ask_by = None;
        let ended = passed(self.deadline)
            || passed(ask_by)
            || self.stopped.as_ref().is_some_and(|stopped| stopped());
        let (queries, notified) = match waiter.state {
            State::Notified(released) => (true, Some(released)),
            State::Due => (true, None),
            State::Sleeping | State::Querying => (ended, None),
        };
        // After it did not reach the database, another one is to reach it first.
        #[cfg(feature = "_pool")]
        let retry_at = queue.retry_at.filter(|_| ticket.unreached > 0);
        #[cfg(not(feature = "_pool"))]
        let retry_at = None;
        let identify_at = ticket.identify_at.max(ticket.identify_at.and(retry_at));
        if queries || passed(identify_at) || passed(self.idle_end) {
            // The database may not respond: meanwhile the next sleeping waiter is the first.
            queue.waiter(number).state = State::Querying;
            queue.update(wakes);
            ticket.notified = notified.is_some();
            ticket.identifying = !queries;
            ticket.asked_at = queries.then_some(now);
            self.ended = true;
            return Polled::Ready(if queries {
                Turn::Query { notified }
            } else {
                Turn::Identify
            });
        }
        let watch = queue.watch(number);
        let wakes_at = watch.unwrap_or_else(|| queue.reliance(now));
        let times = [
            self.deadline,
            ask_by,
            Some(wakes_at),
            identify_at,
            self.idle_end,
        ];
        queue.waiter(number).park(waker);
        Polled::Pending {
            until: times.into_iter().flatten().min(),
        }
    }
}

/// Ends the wait. If it is given up, the waiter sleeps no longer: another one watches the time.
impl<K: Eq + Hash, T: PartialEq, F> Drop for QueuedTurn<'_, '_, K, T, F> {
    fn drop(&mut self) {
        if self.ended || !self.entered {
            return;
        }
        let number = self.number;
        let Locked { names, wakes } = &mut self.ticket.queues.lock();
        let queues = names.get_mut(&self.ticket.key);
        if let Some(queue) = queues.and_then(|queues| queues.queue_of(number)) {
            wakes.discard(queue.waiter(number).unpark());
            queue.leave_watch(number, wakes);
        }
    }
}

/// The pause between two queries of a waiter that is in no queue.
struct PauseOutside<F> {
    end: Instant,
    stopped: Option<F>,
}

impl<F: Fn() -> bool + Send> Event for PauseOutside<F> {
    type Value = ();

    fn poll(&mut self, _: &Waker) -> Polled<()> {
        let now = Instant::now();
        if now >= self.end || self.stopped.as_ref().is_some_and(|stopped| stopped()) {
            return Polled::Ready(());
        }
        let end = match self.stopped {
            Some(_) => self.end.min(now + STOP_INTERVAL),
            None => self.end,
        };
        Polled::Pending { until: Some(end) }
    }
}
