//! A place in a queue.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::queues::{Locked, Queues};
use super::waiter::{MAX_POLL_INTERVAL, Released, State, Waiter};
#[cfg(feature = "_pool")]
use super::waiters::unreached_pause;
use super::waiters::{NameQueues, Position, Queue};
use super::wakes::Wakes;
use crate::backoff;

/// The pause of the next waiter without a connection of its own while the query of another one is running, which may
/// wait for a connection of the pool.
const SERIAL_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How long the connection of a sleeping waiter is idle, before jitter. A server may end a session that is idle: 8 s is a
/// usual limit where clients are to be noticed that have vanished.
const MAX_IDLE: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 5000 });

/// A place in a queue, which ends when the ticket is dropped.
#[allow(clippy::struct_excessive_bools, reason = "independent of each other")]
pub(crate) struct Ticket<'a, K: Eq + Hash, T: PartialEq> {
    pub(super) queues: &'a Queues<K, T>,
    pub(super) key: K,
    pub(super) position: Position,
    /// The number of refused queries.
    pub(super) refusals: u32,
    /// The number of queries in succession that did not reach the database.
    #[cfg(feature = "_pool")]
    pub(super) unreached: u32,
    pub(super) target_known: bool,
    /// When it joined.
    #[cfg(feature = "_pool")]
    joined: Instant,
    /// When its present query began.
    pub(super) asked_at: Option<Instant>,
    /// Whether it has queried before.
    #[cfg(feature = "_pool")]
    has_asked: bool,
    /// Whether its present query began when it joined, beside others at the most that query too.
    #[cfg(feature = "_pool")]
    pub(super) at_once: bool,
    /// When it queries at the latest, unless a query of its queue that began after it joined was refused.
    #[cfg(feature = "_pool")]
    pub(super) ask_by: Option<Instant>,
    /// When the target is to be identified.
    pub(super) identify_at: Option<Instant>,
    /// Whether the present query follows a release.
    pub(super) notified: bool,
    /// Whether the waiter is identifying its target, and has not queried yet.
    pub(super) identifying: bool,
    /// The pause before the next query, if it is not that which follows from the number of refusals.
    pub(super) next_pause: Option<Duration>,
    /// Its pause while the query of another waiter of its queue is running, if that is longer than usual.
    pub(super) pause_beside_query: Option<Duration>,
    /// The longest pause of its queue while it waits there.
    pub(super) longest_pause: Duration,
    /// How long the connection that it keeps is idle, before jitter. Then it identifies its target.
    pub(super) longest_idle: Option<Duration>,
}

impl<K: Eq + Hash + Clone, T: PartialEq + Clone> Queues<K, T> {
    /// Joins the queue of the only target that `matches`. If there is none, the waiter may query at once, unless
    /// `max_concurrent` others query for the first time.
    pub(crate) fn join(
        &self,
        key: K,
        max_concurrent: usize,
        matches: impl Fn(&T) -> bool,
    ) -> Ticket<'_, K, T> {
        let mut ticket = self.ticket(key);
        let Locked { names, wakes } = &mut self.lock();
        let queues = names
            .entry(ticket.key.clone())
            .or_insert_with(NameQueues::new);
        let mut matching = queues
            .by_target
            .iter_mut()
            .filter(|queue| queue.target.as_ref().is_some_and(&matches));
        let unambiguous = !self.ambiguous.load(Ordering::SeqCst);
        let mut identify_at = Instant::now() + backoff::jittered(MAX_POLL_INTERVAL);
        ticket.position = match (matching.next(), matching.next()) {
            (None, _) => queues.admit(max_concurrent, false),
            (Some(queue), second) => {
                if second.is_some() || !unambiguous {
                    identify_at = Instant::now();
                }
                let number = queues.next_number;
                queue.waiters.insert(number, Waiter::new(false));
                queue.admit_newcomer(wakes);
                queues.next_number += 1;
                Position::Queued { number }
            }
        };
        ticket.identify_at = Some(identify_at);
        ticket
    }

    /// Joins the queue of a known target. If all others in it are querying, and fewer than `max_concurrent`, the waiter may query
    /// at once.
    #[cfg(feature = "_pool")]
    pub(crate) fn join_target(&self, key: K, target: T, max_concurrent: usize) -> Ticket<'_, K, T> {
        let mut ticket = self.ticket(key);
        ticket.target_known = true;
        let Locked { names, wakes } = &mut self.lock();
        let queues = names
            .entry(ticket.key.clone())
            .or_insert_with(NameQueues::new);
        let number = queues.next_number;
        queues.next_number += 1;
        let queue = queues.queue_for(Some(target));
        let mut others = queue.waiters.values();
        ticket.at_once = queue.waiters.len() < max_concurrent.max(1)
            && others.all(|waiter| waiter.state == State::Querying);
        let mut waiter = Waiter::new(false);
        if ticket.at_once {
            waiter.state = State::Querying;
        }
        queue.waiters.insert(number, waiter);
        queue.admit_newcomer(wakes);
        ticket.position = Position::Queued { number };
        ticket
    }

    /// Joins for one query. The waiter does not wait behind those that wait for a release, but only for its turn when
    /// `max_concurrent` others query for the first time.
    pub(crate) fn join_once(&self, key: K, max_concurrent: usize) -> Ticket<'_, K, T> {
        let mut ticket = self.ticket(key);
        let Locked { names, .. } = &mut self.lock();
        let queues = names
            .entry(ticket.key.clone())
            .or_insert_with(NameQueues::new);
        ticket.position = queues.admit(max_concurrent, true);
        ticket
    }

    fn ticket(&self, key: K) -> Ticket<'_, K, T> {
        // Counted before the query: a release after the query sees the ticket.
        self.tickets.fetch_add(1, Ordering::SeqCst);
        let mut ticket = self.independent(key);
        ticket.target_known = false;
        ticket
    }

    /// A ticket of a waiter that must not wait for others of this process. It joins no queue and polls on its own.
    pub(crate) fn independent(&self, key: K) -> Ticket<'_, K, T> {
        Ticket {
            queues: self,
            key,
            position: Position::Independent,
            refusals: 0,
            #[cfg(feature = "_pool")]
            unreached: 0,
            target_known: true,
            #[cfg(feature = "_pool")]
            joined: Instant::now(),
            asked_at: None,
            #[cfg(feature = "_pool")]
            has_asked: false,
            #[cfg(feature = "_pool")]
            at_once: false,
            #[cfg(feature = "_pool")]
            ask_by: None,
            identify_at: None,
            notified: false,
            identifying: false,
            next_pause: None,
            pause_beside_query: self.exclusive.then_some(SERIAL_POLL_INTERVAL),
            longest_pause: MAX_POLL_INTERVAL,
            longest_idle: None,
        }
    }
}

impl<K: Eq + Hash + Clone, T: PartialEq + Clone> Ticket<'_, K, T> {
    /// A waiter that has no connection of its own. While the query of another waiter of its queue is running, it polls
    /// after a second, so that few of them wait for connections. If the target is unknown, and the queue is that of one, it
    /// identifies its own first: it might not query in the queue of another.
    #[cfg(feature = "_pool")]
    pub(crate) fn serial(mut self) -> Self {
        self.pause_beside_query = Some(SERIAL_POLL_INTERVAL);
        let mut has_target = false;
        self.in_queue(|queue, _, _| has_target = queue.target.is_some());
        if has_target {
            self.identify_at = self.identify_at.map(|at| at.min(Instant::now()));
        }
        self
    }

    /// Has the waiter query by this time, unless a query of its queue that began after it joined was refused: the first
    /// waiter may get no answer.
    #[cfg(feature = "_pool")]
    pub(crate) fn asking_by(mut self, time: Option<Instant>) -> Self {
        self.ask_by = time;
        self
    }

    /// Whether it has queried, or a query of its queue that began after it joined was refused.
    #[cfg(feature = "_pool")]
    pub(crate) fn is_answered(&self) -> bool {
        let mut refused_at = None;
        self.in_queue(|queue, _, _| refused_at = queue.refused_at);
        self.is_answered_by(refused_at)
    }

    /// A waiter that keeps a connection of its own. It identifies its target every few seconds, because the server may end
    /// the session of a connection that is idle.
    pub(crate) fn keeping_connection(mut self) -> Self {
        self.longest_idle = Some(MAX_IDLE);
        self
    }

    /// Sets the pause after which its queue is to query at the latest, whoever is the first.
    pub(crate) fn polling_within(mut self, longest_pause: Duration) -> Self {
        self.longest_pause = longest_pause;
        self
    }

    /// Whether the next turn comes without a wait.
    pub(crate) fn may_query_at_once(&self) -> bool {
        match self.position {
            Position::Immediate { .. } => true,
            Position::Independent => self.refusals == 0,
            #[cfg(feature = "_pool")]
            Position::Queued { .. } => self.at_once,
            #[cfg(not(feature = "_pool"))]
            Position::Queued { .. } => false,
        }
    }

    /// The number of the waiter, if it is in a queue or may join one.
    #[cfg(feature = "_pool")]
    pub(crate) fn number(&self) -> Option<u64> {
        match self.position {
            Position::Immediate { number } | Position::Queued { number } => Some(number),
            Position::Independent => None,
        }
    }

    /// Whether the target is unknown.
    pub(crate) fn needs_target(&self) -> bool {
        !self.target_known
    }

    /// Sets the target, and moves the ticket to its queue. Without a target no other waiter waits for the same.
    pub(crate) fn set_target(&mut self, target: Option<T>) {
        let was_known = std::mem::replace(&mut self.target_known, true);
        self.identify_at = None;
        let identifying = std::mem::take(&mut self.identifying);
        let Locked { names, wakes } = &mut self.queues.lock();
        let Some(queues) = names.get_mut(&self.key) else {
            return;
        };
        let (number, missed) = match self.position {
            Position::Independent => return,
            Position::Immediate { number } => (number, std::mem::take(&mut queues.missed)),
            Position::Queued { number } => {
                let Some(queue) = queues.queue_of(number) else {
                    return;
                };
                if target.is_some() && queue.target == target {
                    if identifying {
                        queue.sleep_or_query(number, wakes);
                    }
                    return;
                }
                if queue.target.is_some() {
                    // A connection that reaches another database than before makes no name ambiguous.
                    if !was_known {
                        self.queues.ambiguous.store(true, Ordering::SeqCst);
                    }
                    (number, 0)
                } else {
                    (number, std::mem::take(&mut queues.missed))
                }
            }
        };
        let mut followers = BTreeMap::new();
        if target.is_some() && !self.queues.ambiguous.load(Ordering::SeqCst) {
            // Later waiters would be refused too. They follow, and identify their targets later. Before the next first
            // query may start, which would be theirs.
            let queue = queues.queue_for(None);
            let all = std::mem::take(&mut queue.waiters);
            (queue.waiters, followers) = all
                .into_iter()
                .partition(|(_, waiter)| waiter.once || waiter.state != State::Sleeping);
            queue.recompute_longest_pause(Duration::ZERO);
            queue.update(wakes);
            queues.by_target.retain(|queue| !queue.waiters.is_empty());
        }
        if std::mem::take(&mut self.notified)
            && let Some(queue) = queues.queue_of(number)
        {
            queue.notify_first(Released(None), wakes);
        }
        queues.remove(self.position, wakes);
        let Some(target) = target else {
            self.position = Position::Independent;
            self.queues.tickets.fetch_sub(1, Ordering::SeqCst);
            if queues.is_empty() {
                names.remove(&self.key);
            }
            return;
        };
        self.position = Position::Queued { number };
        let queue = queues.queue_for(Some(target));
        queue.missed += missed;
        let mut waiter = Waiter::new(false);
        if !identifying {
            // Until it records its refusal: a release before that is not missed.
            waiter.state = State::Querying;
        } else if queue.waiters.is_empty() {
            // No other waiter queries for it there, and it has not queried yet.
            waiter.state = State::Notified(Released(None));
        }
        queue.waiters.insert(number, waiter);
        for waiter in followers.values() {
            queue.limit_pause(waiter.longest_pause);
        }
        queue.waiters.append(&mut followers);
        queue.update(wakes);
    }

    /// Records that the query was refused. To be called after [`set_target`](Self::set_target).
    pub(crate) fn record_refusal(&mut self) {
        let asked_at = self.end_query();
        #[cfg(feature = "_pool")]
        {
            self.unreached = 0;
        }
        self.notified = false;
        self.in_queue(|queue, number, wakes| {
            queue.reach();
            queue.refused_at = queue.refused_at.max(asked_at);
            queue.end_attempt(number, wakes);
        });
    }

    /// Ends the present query, and returns when it began.
    fn end_query(&mut self) -> Option<Instant> {
        self.refusals = self.refusals.saturating_add(1);
        let asked_at = self.asked_at.take();
        #[cfg(feature = "_pool")]
        {
            self.at_once = false;
            self.has_asked |= asked_at.is_some();
        }
        asked_at
    }

    /// Records that no connection of the pool was free to query with. The release of which it was notified is not lost: a waiter
    /// with a connection of its own is notified at once, or any one after a pause.
    #[cfg(feature = "_pool")]
    pub(crate) fn record_no_query(&mut self) {
        self.next_pause = None;
        self.end_query();
        let notified = std::mem::take(&mut self.notified);
        self.in_queue(|queue, number, wakes| queue.end_without_query(number, notified, wakes));
    }

    /// Records that the query did not reach the database. The pauses of the queue grow until one does. A release of which the
    /// waiter was notified is not handed over: two waiters would query in turn without a pause.
    #[cfg(feature = "_pool")]
    pub(crate) fn record_unreached(&mut self) {
        self.end_query();
        self.unreached = self.unreached.saturating_add(1);
        self.next_pause = match self.position {
            Position::Queued { .. } => None,
            Position::Immediate { .. } | Position::Independent => {
                Some(unreached_pause(self.unreached))
            }
        };
        self.notified = false;
        self.identifying = false;
        self.in_queue(Queue::end_unreached);
    }

    /// Has the next waiter query at once when this one leaves: it has an error that the others will have too.
    #[cfg(feature = "_pool")]
    pub(crate) fn notify_next(&mut self) {
        self.notified = true;
    }

    /// Has the waiter identify its target later: it had no connection.
    #[cfg(feature = "_pool")]
    pub(crate) fn identify_later(&mut self) {
        self.identifying = false;
        self.identify_at = Some(Instant::now() + backoff::jittered(MAX_POLL_INTERVAL));
        self.in_queue(Queue::sleep_or_query);
    }

    /// Sets the pause before the next query; `None` for that which follows from the number of refusals.
    pub(crate) fn set_pause(&mut self, pause: Option<Duration>) {
        self.next_pause = pause;
    }

    /// Ends the wait after a query that succeeded. A waiter that was not notified of the release lets the next one
    /// query, as there may be more; a first query lets the next first query start.
    pub(crate) fn finish(mut self) {
        let notified = std::mem::take(&mut self.notified);
        let exclusive = self.queues.exclusive;
        let done = notified || exclusive;
        let asked_at = self.end_query().filter(|_| exclusive);
        self.in_queue(|queue, _, wakes| {
            // A release while all were querying is the one that it has used.
            queue.reach();
            queue.refused_at = queue.refused_at.max(asked_at);
            if !notified {
                queue.missed = queue.missed.saturating_sub(1);
            }
            if !done || queue.target.is_none() {
                queue.notify_first(Released(None), wakes);
            }
        });
    }

    pub(super) fn in_queue(&self, change: impl FnOnce(&mut Queue<T>, u64, &mut Wakes)) {
        if let Position::Queued { number } = self.position {
            let Locked { names, wakes } = &mut self.queues.lock();
            let queues = names.get_mut(&self.key);
            if let Some(queue) = queues.and_then(|queues| queues.queue_of(number)) {
                change(queue, number, wakes);
            }
        }
    }
}

#[cfg(feature = "_pool")]
impl<K: Eq + Hash, T: PartialEq> Ticket<'_, K, T> {
    /// [`is_answered`](Self::is_answered), if the last refused query of its queue began at this time.
    pub(super) fn is_answered_by(&self, refused_at: Option<Instant>) -> bool {
        self.has_asked || self.target_known && refused_at.is_some_and(|at| at >= self.joined)
    }
}

impl<K: Eq + Hash, T: PartialEq> Drop for Ticket<'_, K, T> {
    fn drop(&mut self) {
        if matches!(self.position, Position::Independent) {
            return;
        }
        self.queues.tickets.fetch_sub(1, Ordering::SeqCst);
        let Locked { names, wakes } = &mut self.queues.lock();
        if let Some(queues) = names.get_mut(&self.key) {
            #[cfg(feature = "_pool")]
            let queries = self.notified || self.at_once;
            #[cfg(not(feature = "_pool"))]
            let queries = self.notified;
            // It was to query for a release, or as the first one, and has neither succeeded nor been refused.
            if let Position::Queued { number } = self.position
                && queries
                && let Some(queue) = queues.queue_of(number)
            {
                queue.notify_first(Released(None), wakes);
            }
            queues.remove(self.position, wakes);
            if queues.is_empty() {
                names.remove(&self.key);
            }
        }
    }
}
