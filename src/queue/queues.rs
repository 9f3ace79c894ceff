//! The queues of all names.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::waiter::Released;
use super::waiters::{FairShare, NameQueues};
use super::wakes::Wakes;

/// `K` is the name of what is waited for, `T` the target.
pub(crate) struct Queues<K, T> {
    pub(super) by_name: Mutex<HashMap<K, NameQueues<T>>>,
    /// The number of tickets. While it is zero, a release takes no lock.
    pub(super) tickets: AtomicUsize,
    /// Whether a name was found to have several targets. From then on a new waiter identifies its target first.
    pub(super) ambiguous: AtomicBool,
    /// Whether at most one waiter of a queue can succeed at a time. Then a waiter that succeeds does not let the next one
    /// query, and while a query is running, the next waiter polls after a second.
    pub(super) exclusive: bool,
    /// The shares of other processes, by the hashes of the names. They outlive the queues, which are often empty for a
    /// moment, and their number does not grow.
    pub(super) shares: Mutex<[FairShare; SHARES]>,
}

const SHARES: usize = 64;

/// The queues of all names, locked, and the waiters that are woken when they are unlocked.
pub(super) struct Locked<'a, K, T> {
    pub(super) names: MutexGuard<'a, HashMap<K, NameQueues<T>>>,
    /// Dropped after `names`.
    pub(super) wakes: Wakes,
}

impl<K: Eq + Hash + Clone, T: PartialEq + Clone> Queues<K, T> {
    pub(crate) fn new() -> Self {
        Self::of_kind(false)
    }

    /// Queues of waiters of which at most one can succeed at a time.
    #[cfg(feature = "_pool")]
    pub(crate) fn exclusive() -> Self {
        Self::of_kind(true)
    }

    fn of_kind(exclusive: bool) -> Self {
        Self {
            by_name: Mutex::default(),
            exclusive,
            tickets: AtomicUsize::new(0),
            ambiguous: AtomicBool::new(false),
            shares: Mutex::new([FairShare::default(); SHARES]),
        }
    }

    /// The number of tickets.
    #[cfg(feature = "_pool")]
    pub(crate) fn waiting(&self) -> usize {
        self.tickets.load(Ordering::SeqCst)
    }

    /// Has a waiter ask whether it is stopped.
    #[cfg(feature = "_pool")]
    pub(crate) fn wake<Q: Eq + Hash + ?Sized>(&self, key: &Q, number: u64)
    where
        K: Borrow<Q>,
    {
        let Locked { names, wakes } = &mut self.lock();
        let queue = names
            .get_mut(key)
            .and_then(|queues| queues.queue_of(number));
        if let Some(waiter) = queue.and_then(|queue| queue.waiters.get_mut(&number)) {
            waiter.wake(wakes);
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
        let Locked { names, wakes } = &mut self.lock();
        if let Some(queues) = names.get_mut(key) {
            queues.missed = queues.first_queries().min(queues.missed + count);
            let now = Instant::now();
            let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
            let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
            let share = &mut shares[usize::try_from(hash % SHARES as u64).unwrap_or(0)];
            let identified = queues.by_target.iter_mut();
            for queue in identified.filter(|queue| queue.target.is_some()) {
                // Notifying more than there are waiters has no effect.
                for _ in 0..count.min(queue.waiters.len()) {
                    queue.hand_over_or_yield(now, Released(number), share, wakes);
                }
            }
        }
    }
}

impl<K, T> Queues<K, T> {
    pub(super) fn lock(&self) -> Locked<'_, K, T> {
        Locked {
            names: self.by_name.lock().unwrap_or_else(PoisonError::into_inner),
            wakes: Wakes::default(),
        }
    }
}
