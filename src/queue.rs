//! Queues of the waiters of this process: first come, first served.
//!
//! The first waiter of a queue polls the database; the others sleep. A release in this process calls
//! [`Queues::notify_released`], which wakes the first sleeping waiter, and that one queries at once. So the number of
//! queries depends on the number of releases, not on the number of waiters.
//!
//! - A waiter whose query is running does not block the others: meanwhile the next sleeping waiter is the first. So a
//!   connection that does not respond delays only its own waiter.
//! - No release is missed: a waiter whose query was running during a release, and was refused, queries once more.
//! - Other processes are not notified. They poll as often as the first waiter of a queue here, and would hardly ever
//!   find a slot that is handed over within this process. So some releases are yielded to them, each for as long as
//!   the slot would stay free if all waiters of this process polled ([`FairShare`]).
//! - The number of concurrent first queries is limited. When one of them ends, the next one starts.
//! - A name may stand for different things in different databases: each is a [target](Ticket::set_target) with its own
//!   queue. The target of a new waiter is unknown; if there is one queue, it joins that one, and has to
//!   [identify](Turn::Identify) its target soon.

mod ticket;
mod waiters;

#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::backoff;
use waiters::{NameQueues, Position, Waiter};

pub(crate) use ticket::Ticket;

/// The shortest and the longest pause between two queries of the first waiter, before jitter.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(20);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// At most one of this many releases is yielded to other processes,
const RELEASES_PER_YIELD: u32 = 3;
/// and at most one part in this many of the time.
const YIELD_TIME_DIVISOR: u32 = 20;

/// `K` is the name of what is waited for, `T` the target.
pub(crate) struct Queues<K, T> {
    by_name: Mutex<HashMap<K, NameQueues<T>>>,
    /// The number of tickets. While it is zero, a release takes no lock.
    tickets: AtomicUsize,
    /// Whether a name was found to have several targets. From then on a new waiter identifies its target first.
    ambiguous: AtomicBool,
    /// The shares of other processes, by the hashes of the names. They outlive the queues, which are often empty for a
    /// moment, and their number does not grow.
    shares: Mutex<[FairShare; SHARES]>,
}

const SHARES: usize = 64;

/// What other processes get of the releases of a name.
#[derive(Clone, Copy)]
struct FairShare {
    /// The number of releases handed over in this process since the last yield.
    handed_over: u32,
    /// The earliest time of the next yield.
    next_yield: Option<Instant>,
}

/// A release, with the slot's number if it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Released(pub(crate) Option<u32>);

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

impl<K: Eq + Hash + Clone, T: PartialEq + Clone> Queues<K, T> {
    pub(crate) fn new() -> Self {
        Self {
            by_name: Mutex::default(),
            tickets: AtomicUsize::new(0),
            ambiguous: AtomicBool::new(false),
            shares: Mutex::new(
                [FairShare {
                    handed_over: 0,
                    next_yield: None,
                }; SHARES],
            ),
        }
    }

    /// Joins the queue of the only target that `matches`. If there is none, the waiter may query at once, unless
    /// `max_concurrent` others query for the first time.
    pub(crate) fn join(
        &self,
        key: K,
        max_concurrent: usize,
        matches: impl Fn(&T) -> bool,
    ) -> Ticket<'_, K, T> {
        let mut ticket = self.ticket(key);
        let mut all = self.lock();
        let queues = all
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
                queues.next_number += 1;
                Position::Queued { number }
            }
        };
        ticket.identify_at = Some(identify_at);
        drop(all);
        ticket
    }

    /// Joins for one query. The waiter does not wait behind those that wait for a release, but only for its turn when
    /// `max_concurrent` others query for the first time.
    pub(crate) fn join_once(&self, key: K, max_concurrent: usize) -> Ticket<'_, K, T> {
        let mut ticket = self.ticket(key);
        let mut all = self.lock();
        let queues = all
            .entry(ticket.key.clone())
            .or_insert_with(NameQueues::new);
        ticket.position = queues.admit(max_concurrent, true);
        drop(all);
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
            target_known: true,
            identify_at: None,
            notified: false,
            identifying: false,
        }
    }

    /// The number of tickets.
    #[cfg(feature = "r2d2")]
    pub(crate) fn waiting(&self) -> usize {
        self.tickets.load(Ordering::SeqCst)
    }

    /// Has the waiters of a name ask whether they are stopped.
    #[cfg(feature = "r2d2")]
    pub(crate) fn wake_all<Q: Eq + Hash + ?Sized>(&self, key: &Q)
    where
        K: Borrow<Q>,
    {
        if let Some(queues) = self.lock().get(key) {
            let waiters = queues
                .by_target
                .iter()
                .flat_map(|queue| queue.waiters.values());
            waiters.for_each(|waiter| waiter.wake.notify_one());
        }
    }

    /// Notifies waiters that `count` slots were released in this process, whatever their target, and among them
    /// `number` if it is known.
    pub(crate) fn notify_released<Q: Eq + Hash + ?Sized>(
        &self,
        key: &Q,
        count: usize,
        number: Option<u32>,
    ) where
        K: Borrow<Q>,
    {
        if self.tickets.load(Ordering::SeqCst) == 0 {
            return;
        }
        if let Some(queues) = self.lock().get_mut(key) {
            queues.missed = queues.first_queries().min(queues.missed + count);
            let now = Instant::now();
            let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
            let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
            let share = &mut shares[usize::try_from(hash % SHARES as u64).unwrap_or(0)];
            let identified = queues.by_target.iter_mut();
            for queue in identified.filter(|queue| queue.target.is_some()) {
                // Notifying more than there are waiters has no effect.
                for _ in 0..count.min(queue.waiters.len()) {
                    queue.hand_over_or_yield(now, Released(number), share);
                }
            }
        }
    }
}

impl<K, T> Queues<K, T> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, NameQueues<T>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
