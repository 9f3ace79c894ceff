//! The waiters of one name, in one queue per target.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::waiter::{MAX_POLL_INTERVAL, Released, State, Waiter};
use super::wakes::Wakes;
use super::watch::Watches;
use crate::backoff;

/// The shortest and the longest pause of a queue after queries that did not reach the database, before jitter.
#[cfg(feature = "_pool")]
const MIN_UNREACHED_PAUSE: Duration = Duration::from_millis(100);
#[cfg(feature = "_pool")]
pub(super) const MAX_UNREACHED_PAUSE: Duration = Duration::from_secs(5);

/// The pause after this many queries in succession that did not reach the database.
#[cfg(feature = "_pool")]
pub(super) fn unreached_pause(queries: u32) -> Duration {
    backoff::jittered(backoff::growing(
        queries.saturating_sub(1),
        MIN_UNREACHED_PAUSE,
        MAX_UNREACHED_PAUSE,
    ))
}

/// The shortest and the longest pause of a release that waiters without a connection could not use, before jitter.
const MIN_KEPT_PAUSE: Duration = Duration::from_millis(10);
const MAX_KEPT_PAUSE: Duration = MAX_POLL_INTERVAL;

/// At most one of this many releases is yielded to other processes,
pub(super) const RELEASES_PER_YIELD: u32 = 3;
/// and at most one part in this many of the time.
const YIELD_TIME_DIVISOR: u32 = 20;

/// What other processes get of the releases of a name.
#[derive(Clone, Copy, Default)]
pub(super) struct FairShare {
    /// The number of releases handed over in this process since the last yield.
    handed_over: u32,
    /// The earliest time of the next yield.
    pub(super) next_yield: Option<Instant>,
}

/// The queues of one name.
pub(super) struct NameQueues<T> {
    /// The number of the next ticket.
    pub(super) next_number: u64,
    /// The number of tickets that query without having waited.
    pub(super) immediate: usize,
    /// The number of releases since the first queries began, of which a refused first query does not know.
    pub(super) missed: usize,
    pub(super) by_target: Vec<Queue<T>>,
}

/// One queue.
pub(super) struct Queue<T> {
    /// `None` for waiters that have not queried yet, and wait until the number of first queries allows it.
    pub(super) target: Option<T>,
    /// The waiters in the order in which they came.
    pub(super) waiters: BTreeMap<u64, Waiter>,
    /// The number of releases while the queries of all waiters were running, and of those that a waiter without a connection
    /// could not use.
    pub(super) missed: usize,
    /// The number of attempts in succession for which no connection was free,
    pub(super) without_query: u32,
    /// and when a release that they could not use is handed over.
    pub(super) hand_over_at: Option<Instant>,
    /// The end of the present yield to other processes.
    pub(super) yield_until: Option<Instant>,
    /// The first sleeping waiter.
    pub(super) first: Option<u64>,
    /// The begin of the pause of the first waiter. When that leaves before it has polled, the next waiter continues the pause.
    /// If each first waiter began a new one, none would poll while many leave.
    pub(super) pausing_since: Instant,
    /// Since when queries of its waiters have been running without a break, if the first waiter polls later then.
    pub(super) querying_since: Option<Instant>,
    pub(super) watches: Watches,
    /// The shortest [`longest_pause`](Waiter::longest_pause) of the waiters.
    pub(super) longest_pause: Duration,
    /// The number of queries in succession that did not reach the database,
    pub(super) unreached: u32,
    /// and when the next waiter queries, unless it is notified of a release.
    pub(super) retry_at: Option<Instant>,
    /// When the last query began that was refused.
    pub(super) refused_at: Option<Instant>,
    /// The last waiter that was to query because its time had come.
    pub(super) called: Option<u64>,
}

#[derive(Clone, Copy)]
pub(super) enum Position {
    /// Queries without having waited.
    Immediate {
        number: u64,
    },
    Queued {
        number: u64,
    },
    /// In no queue: polls on its own.
    Independent,
}

impl<T> NameQueues<T> {
    pub(super) fn new() -> Self {
        Self {
            next_number: 0,
            immediate: 0,
            missed: 0,
            by_target: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.immediate == 0 && self.by_target.is_empty()
    }

    /// The number of first queries that are running, or were notified to start.
    pub(super) fn first_queries(&self) -> usize {
        let unidentified = self.by_target.iter().filter(|queue| queue.target.is_none());
        let notified = unidentified
            .flat_map(|queue| queue.waiters.values())
            .filter(|waiter| waiter.state != State::Sleeping);
        self.immediate + notified.count()
    }
}

impl<T: PartialEq> NameQueues<T> {
    pub(super) fn admit(&mut self, max_concurrent: usize, once: bool) -> Position {
        let number = self.next_number;
        self.next_number += 1;
        if self.first_queries() < max_concurrent.max(1) {
            self.immediate += 1;
            return Position::Immediate { number };
        }
        let queue = self.queue_for(None);
        queue.waiters.insert(number, Waiter::new(once));
        Position::Queued { number }
    }

    /// The queue of a target, created if needed.
    pub(super) fn queue_for(&mut self, target: Option<T>) -> &mut Queue<T> {
        let found = self.by_target.iter();
        let found = found
            .map(|queue| &queue.target)
            .position(|it| *it == target);
        let position = found.unwrap_or_else(|| {
            self.by_target.push(Queue::new(target));
            self.by_target.len() - 1
        });
        &mut self.by_target[position]
    }

    /// The queue that contains the ticket `number`.
    pub(super) fn queue_of(&mut self, number: u64) -> Option<&mut Queue<T>> {
        self.by_target
            .iter_mut()
            .find(|queue| queue.waiters.contains_key(&number))
    }

    /// Removes a ticket from its position.
    pub(super) fn remove(&mut self, position: Position, wakes: &mut Wakes) {
        match position {
            Position::Immediate { .. } => {
                self.immediate -= 1;
                self.missed = self.missed.min(self.first_queries());
                // The next first query may start.
                let mut queues = self.by_target.iter_mut();
                if let Some(queue) = queues.find(|queue| queue.target.is_none()) {
                    queue.notify_first(Released(None), wakes);
                }
            }
            Position::Queued { number } => {
                let Some(queue) = self.queue_of(number) else {
                    return;
                };
                let waiter = queue.waiters.remove(&number);
                if let Some(waiter) = &waiter {
                    queue.unlimit_pause(waiter.longest_pause);
                }
                // The release that it was notified of, or for which it would have queried once more.
                let released = match waiter.map(|waiter| waiter.state) {
                    Some(State::Notified(released)) => Some(released),
                    Some(State::Querying) if queue.take_missed() => Some(Released(None)),
                    _ => None,
                };
                if queue.waiters.is_empty() {
                    let missed = queue.missed + usize::from(released.is_some());
                    let is_identified = queue.target.is_some();
                    self.by_target.retain(|queue| !queue.waiters.is_empty());
                    if is_identified {
                        self.missed = self.first_queries().min(self.missed + missed);
                    }
                } else if let Some(released) = released {
                    queue.notify_first(released, wakes);
                } else {
                    queue.update(wakes);
                }
            }
            Position::Independent => {}
        }
    }
}

impl<T> Queue<T> {
    fn new(target: Option<T>) -> Self {
        Self {
            target,
            waiters: BTreeMap::new(),
            missed: 0,
            without_query: 0,
            hand_over_at: None,
            yield_until: None,
            first: None,
            pausing_since: Instant::now(),
            querying_since: None,
            watches: Watches::default(),
            longest_pause: Duration::MAX,
            unreached: 0,
            retry_at: None,
            refused_at: None,
            called: None,
        }
    }

    /// The waiter of a ticket in this queue.
    pub(super) fn waiter(&mut self, number: u64) -> &mut Waiter {
        self.waiters
            .get_mut(&number)
            .expect("a waiter with a ticket")
    }

    pub(super) fn first_sleeping(&mut self) -> Option<(&u64, &mut Waiter)> {
        let sleeps = |waiter: &Waiter| waiter.state == State::Sleeping;
        let may_reach = |waiter: &Waiter| sleeps(waiter) && !waiter.unreached;
        let fails = self.unreached > 0 || self.without_query > 0;
        let prefers = fails && self.waiters.values().any(may_reach);
        self.waiters
            .iter_mut()
            .find(|(_, waiter)| sleeps(waiter) && !(prefers && waiter.unreached))
    }

    /// Hands a release over to the first sleeping waiter.
    pub(super) fn notify_first(&mut self, released: Released, wakes: &mut Wakes) {
        match self.first_sleeping() {
            Some((_, waiter)) => {
                waiter.state = State::Notified(released);
                waiter.wake(wakes);
                self.update(wakes);
            }
            None => self.missed = self.waiters.len().min(self.missed + 1),
        }
    }

    /// Ends an attempt of a waiter.
    pub(super) fn end_attempt(&mut self, number: u64, wakes: &mut Wakes) {
        if let Some(waiter) = self.waiters.get_mut(&number) {
            waiter.tried_at = Some(Instant::now());
        }
        self.sleep_or_query(number, wakes);
    }

    /// Ends the query of a waiter: it sleeps, or queries once more when there was a release meanwhile.
    pub(super) fn sleep_or_query(&mut self, number: u64, wakes: &mut Wakes) {
        let missed = self.take_missed();
        if let Some(waiter) = self.waiters.get_mut(&number) {
            waiter.state = if missed {
                State::Notified(Released(None))
            } else {
                State::Sleeping
            };
        }
        self.update(wakes);
    }

    /// Takes a release that was missed, unless it is kept for later.
    fn take_missed(&mut self) -> bool {
        let is_kept = self.hand_over_at.is_some_and(|time| Instant::now() < time);
        let takes = self.missed > 0 && !is_kept;
        self.missed -= usize::from(takes);
        takes
    }

    /// When a release is handed over that waiters without a connection could not use.
    pub(super) fn hand_over_time(&self) -> Option<Instant> {
        self.hand_over_at.filter(|_| self.missed > 0)
    }

    /// Takes a release for the first waiter when its time has come, or the waiter `polls` before. The next release has
    /// another pause.
    pub(super) fn take_kept(&mut self, now: Instant, polls: bool) -> bool {
        let time = self.hand_over_time();
        let takes = time.is_some_and(|time| polls || now >= time);
        if takes {
            self.missed -= 1;
            self.keep_missed(now);
        }
        takes
    }

    fn keep_missed(&mut self, now: Instant) {
        let pause = backoff::growing(
            self.without_query.saturating_sub(1),
            MIN_KEPT_PAUSE,
            MAX_KEPT_PAUSE,
        );
        self.hand_over_at = Some(now + backoff::jittered(pause));
    }

    /// There was no connection for the attempt of a waiter. The release of which it was `notified` is handed over to one that
    /// has a connection of its own, or kept for a pause, which grows until a query reaches the database: a pool may refuse
    /// at once.
    #[cfg(feature = "_pool")]
    pub(super) fn end_without_query(&mut self, number: u64, notified: bool, wakes: &mut Wakes) {
        self.without_query = self.without_query.saturating_add(1);
        self.keep_missed(Instant::now());
        self.prefer_others(number);
        let mut waiters = self.waiters.values_mut();
        let keeps = waiters.find(|it| it.state == State::Sleeping && it.keeps_connection);
        match keeps {
            Some(waiter) if notified => {
                waiter.state = State::Notified(Released(None));
                waiter.wake(wakes);
            }
            _ if notified => self.missed = self.waiters.len().min(self.missed + 1),
            _ => {}
        }
        let waiter = self.waiter(number);
        waiter.state = State::Sleeping;
        waiter.tried_at = Some(Instant::now());
        self.update(wakes);
    }

    /// Has others of the queue query before this waiter. When all have failed, they take turns.
    #[cfg(feature = "_pool")]
    fn prefer_others(&mut self, number: u64) {
        self.waiter(number).unreached = true;
        if self.waiters.values().all(|waiter| waiter.unreached) {
            for (other, waiter) in &mut self.waiters {
                waiter.unreached = *other == number;
            }
        }
    }

    /// The query of a waiter did not reach the database. The queue pauses, longer each time.
    #[cfg(feature = "_pool")]
    pub(super) fn end_unreached(&mut self, number: u64, wakes: &mut Wakes) {
        self.unreached = self.unreached.saturating_add(1);
        self.retry_at = Some(Instant::now() + unreached_pause(self.unreached));
        if let Some(waiter) = self.waiters.get_mut(&number) {
            waiter.unreached = true;
        }
        self.end_attempt(number, wakes);
    }

    /// A waiter has come. It does not wait for the end of a pause that has grown while others did not reach the database: that
    /// may be within reach by now.
    pub(super) fn admit_newcomer(&mut self, wakes: &mut Wakes) {
        #[cfg(feature = "_pool")]
        if let Some(retry_at) = &mut self.retry_at {
            *retry_at = (*retry_at).min(Instant::now() + unreached_pause(1));
        }
        self.update(wakes);
    }

    /// A query has reached the database.
    pub(super) fn reach(&mut self) {
        if self.unreached == 0 && self.without_query == 0 {
            return;
        }
        self.without_query = 0;
        self.hand_over_at = None;
        self.unreached = 0;
        self.retry_at = None;
        for waiter in self.waiters.values_mut() {
            waiter.unreached = false;
        }
    }

    /// Hands a release over to a waiter, or yields it to other processes. Their waiters poll every 50 to 100 ms, as each
    /// of the `n` waiters here would without a queue: the slot would stay free for that time divided by `n`.
    pub(super) fn hand_over_or_yield(
        &mut self,
        now: Instant,
        released: Released,
        share: &mut FairShare,
        wakes: &mut Wakes,
    ) {
        share.handed_over = share.handed_over.saturating_add(1);
        let too_soon = share.next_yield.is_some_and(|time| now < time);
        if share.handed_over < RELEASES_PER_YIELD || too_soon || self.yield_until.is_some() {
            self.notify_first(released, wakes);
            return;
        }
        let waiting = u32::try_from(self.waiters.len()).unwrap_or(u32::MAX);
        let time = backoff::jittered(MAX_POLL_INTERVAL) / waiting.max(1);
        share.handed_over = 0;
        share.next_yield = Some(now + time * YIELD_TIME_DIVISOR);
        self.yield_until = Some(now + time);
        self.update(wakes);
    }
}
