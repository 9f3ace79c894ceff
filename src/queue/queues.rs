//! The queues of all names.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::queue::fair_share::FairShare;
use crate::queue::line::{Line, Released, Wakes};
use crate::rt::alarm::call_at;
use crate::rt::permits::Permits;

/// The shortest time between two looks at all queues,
const ALARM_INTERVAL: Duration = Duration::from_millis(5);
/// and the longest while one waits: an alarm that is replaced by an earlier one stays until its own time.
const LONGEST_ALARM: Duration = Duration::from_secs(1);

const SHARES: usize = 64;

pub(crate) trait Key: Eq + Hash + Clone + Send + Sync + 'static {}

impl<K: Eq + Hash + Clone + Send + Sync + 'static> Key for K {}

/// `K` is the name of what is waited for, `T` the target.
pub(crate) struct Queues<K, T> {
    pub(crate) state: Mutex<State<K, T>>,
    /// The number of waiters. While it is zero, a release takes no lock.
    pub(crate) waiting: AtomicUsize,
    /// Whether at most one waiter of a queue can succeed at a time. Then one that succeeds does not let the next one query.
    pub(crate) exclusive: bool,
}

pub(crate) struct State<K, T> {
    pub(crate) names: HashMap<K, Name<T>>,
    alarm_at: Option<Instant>,
    /// The shares of other processes, by the hashes of the names. They outlive the queues, which are often empty for a moment,
    /// and their number does not grow.
    pub(crate) shares: [FairShare; SHARES],
}

/// The queues of one name.
pub(crate) struct Name<T> {
    pub(crate) next: u64,
    /// The number of waiters that are in no queue,
    pub(crate) entered: usize,
    /// and of those that join one if their query is refused.
    pub(crate) first_queries: usize,
    /// So many of them may query at a time.
    pub(crate) permits: Arc<Permits>,
    /// The number of releases.
    pub(crate) releases: u64,
    /// One for each target.
    pub(crate) lines: Vec<Line<T>>,
}

impl<K: Key, T: Key> Queues<K, T> {
    pub(crate) fn new(exclusive: bool) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                names: HashMap::new(),
                alarm_at: None,
                shares: [FairShare::default(); SHARES],
            }),
            waiting: AtomicUsize::new(0),
            exclusive,
        })
    }

    /// Notifies waiters that `count` of what this name stands for were released in this process, whatever their target, and
    /// among them `number` if it is known.
    pub(crate) fn notify_released<Q>(self: &Arc<Self>, key: &Q, count: usize, number: Option<u32>)
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
        let share = usize::try_from(hash % SHARES as u64).unwrap_or(0);
        self.change(key, |name, shares, now, wakes| {
            name.releases += 1;
            for line in &mut name.lines {
                // More of them than there are waiters have no effect.
                for _ in 0..count.min(line.waiters.len()) {
                    line.release(Released(number), &mut shares[share], now, wakes);
                }
            }
        });
    }

    /// Changes the queues of a name. Calls those whose time has come, and has an alarm call the next ones.
    pub(crate) fn change<Q, R>(
        self: &Arc<Self>,
        key: &Q,
        change: impl FnOnce(&mut Name<T>, &mut [FairShare; SHARES], Instant, &mut Wakes) -> R,
    ) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        // Dropped without the lock.
        let mut wakes = Wakes::default();
        let mut state = self.lock();
        let State { names, shares, .. } = &mut *state;
        let name = names.get_mut(key)?;
        let now = Instant::now();
        let result = change(name, shares, now, &mut wakes);
        let due = name.tick(now, &mut wakes);
        if name.lines.is_empty() && name.entered == 0 {
            names.remove(key);
        }
        let alarm = state.set_alarm(due, now);
        drop(state);
        self.call_at(alarm);
        Some(result)
    }

    /// [`change`](Self::change) of a name that may have no queue yet.
    pub(crate) fn enter<R>(
        self: &Arc<Self>,
        key: &K,
        change: impl FnOnce(&mut Name<T>, Instant) -> R,
    ) -> R {
        let mut state = self.lock();
        let now = Instant::now();
        let name = state.names.entry(key.clone()).or_insert_with(|| Name {
            next: 0,
            entered: 0,
            first_queries: 0,
            permits: Arc::default(),
            releases: 0,
            lines: Vec::new(),
        });
        let result = change(name, now);
        let due = name.lines.iter().filter_map(Line::due).min();
        let alarm = state.set_alarm(due, now);
        drop(state);
        self.call_at(alarm);
        result
    }

    fn call_at(self: &Arc<Self>, alarm: Option<Instant>) {
        if let Some(time) = alarm {
            let queues = Arc::downgrade(self);
            call_at(time, move || {
                if let Some(queues) = queues.upgrade() {
                    queues.ring();
                }
            });
        }
    }

    fn ring(self: &Arc<Self>) {
        let mut wakes = Wakes::default();
        let mut state = self.lock();
        let now = Instant::now();
        // Otherwise an earlier alarm has set another one.
        if state.alarm_at.is_none_or(|time| now < time) {
            return;
        }
        state.alarm_at = None;
        let names = state.names.values_mut();
        let due = names.filter_map(|name| name.tick(now, &mut wakes)).min();
        let alarm = state.set_alarm(due, now);
        drop(state);
        self.call_at(alarm);
    }
}

impl<K, T> Queues<K, T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State<K, T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(feature = "_pool")]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }
}

impl<K, T> State<K, T> {
    /// Returns the time of the alarm if another one is needed.
    fn set_alarm(&mut self, due: Option<Instant>, now: Instant) -> Option<Instant> {
        let time = due?.clamp(now + ALARM_INTERVAL, now + LONGEST_ALARM);
        if self.alarm_at.is_some_and(|at| at <= time) {
            return None;
        }
        self.alarm_at = Some(time);
        Some(time)
    }
}

impl<T> Name<T> {
    /// Returns when the next waiters are to be called.
    fn tick(&mut self, now: Instant, wakes: &mut Wakes) -> Option<Instant> {
        let lines = self.lines.iter_mut();
        let due = lines.filter_map(|line| {
            line.tick(now, wakes);
            line.due()
        });
        due.min()
    }
}

impl<T: PartialEq> Name<T> {
    pub(crate) fn line(&mut self, target: &T) -> &mut Line<T> {
        let line = self.lines.iter_mut().find(|line| line.target == *target);
        line.expect("a queue with a waiter")
    }

    /// Hands over a release that a waiter was notified of and has not used.
    pub(crate) fn hand_over(
        &mut self,
        target: &T,
        released: Released,
        now: Instant,
        wakes: &mut Wakes,
    ) {
        // A first query that is refused may have missed it.
        self.releases += 1;
        self.line(target).hand_over(released, now, wakes);
    }
}
