//! Queues of the waiters of this process, in the order in which they came.
//!
//! The first waiter of a queue polls the database, at least as often as any of them wants to; the others sleep. A release in
//! this process calls the first sleeping waiter, which queries at once. So the number of queries depends on the number of
//! releases, not on the number of waiters. [`alarm`](crate::rt::alarm) watches the time.
//!
//! - A waiter whose query is running does not block the others: meanwhile the next sleeping waiter is the first. So a
//!   connection that does not respond, or a future that its application does not poll, delays the others for a moment. And a
//!   waiter may be overtaken: a release during its query is handed over to the next one.
//! - No release is missed: a waiter whose query was running during a release that nobody else was notified of, and that is
//!   refused, queries once more.
//! - Other processes are not notified of a release. Some releases are yielded to them ([`FairShare`](line::FairShare)).
//! - A name may stand for different things in different databases: each is a target with its own queue. A waiter that does not
//!   know its target yet queries first, if nobody waits for the name ([`Place::query_first`]), and finds the target out before
//!   it [joins](Place::join).
//! - A waiter relies on the queries of others only while they are answered: see [`Place::ask_by`].

mod line;
mod place;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::queue::line::{FairShare, Line, Wakes};
pub(crate) use crate::queue::line::{Options, Released};
pub(crate) use crate::queue::place::Place;
use crate::rt::alarm::call_at;
use crate::rt::lock;
use crate::rt::permits::Permits;

/// The longest pause between two queries of the first waiter, before jitter.
pub(crate) const MAX_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The shortest time between two looks at all queues,
const ALARM_INTERVAL: Duration = Duration::from_millis(5);
/// and the longest while one waits: an alarm that is replaced by an earlier one stays until its own time.
const LONGEST_ALARM: Duration = Duration::from_secs(1);

const SHARES: usize = 64;

pub(crate) struct Queues {
    pub(crate) state: Mutex<State>,
    /// The number of waiters. While it is zero, a release takes no lock.
    pub(crate) waiting: AtomicUsize,
    /// Whether at most one waiter of a queue can succeed at a time. Then one that succeeds does not let the next one query.
    pub(crate) exclusive: bool,
}

pub(crate) struct State {
    /// By the names of what is waited for.
    pub(crate) names: HashMap<String, Name>,
    alarm_at: Option<Instant>,
    /// The shares of other processes, by the hashes of the names. They outlive the queues, which are often empty for a moment,
    /// and their number does not grow.
    pub(crate) shares: [FairShare; SHARES],
}

/// The queues of one name.
#[derive(Default)]
pub(crate) struct Name {
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
    pub(crate) lines: Vec<Line>,
}

impl Queues {
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
    pub(crate) fn notify_released(self: &Arc<Self>, name: &str, count: usize, number: Option<u32>) {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
        let share = usize::try_from(hash % SHARES as u64).unwrap_or(0);
        self.change(name, |name, shares, now, wakes| {
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
    pub(crate) fn change<R>(
        self: &Arc<Self>,
        key: &str,
        change: impl FnOnce(&mut Name, &mut [FairShare; SHARES], Instant, &mut Wakes) -> R,
    ) -> Option<R> {
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
        key: &str,
        change: impl FnOnce(&mut Name, Instant) -> R,
    ) -> R {
        let mut state = self.lock();
        let now = Instant::now();
        let name = state.names.entry(key.to_owned()).or_default();
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

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
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

impl Name {
    /// Returns when the next waiters are to be called.
    fn tick(&mut self, now: Instant, wakes: &mut Wakes) -> Option<Instant> {
        let lines = self.lines.iter_mut();
        let due = lines.filter_map(|line| {
            line.tick(now, wakes);
            line.due()
        });
        due.min()
    }

    pub(crate) fn line(&mut self, target: &str) -> &mut Line {
        let line = self.lines.iter_mut().find(|line| line.target == target);
        line.expect("a queue with a waiter")
    }

    /// Hands over a release that a waiter was notified of and has not used.
    pub(crate) fn hand_over(
        &mut self,
        target: &str,
        released: Released,
        now: Instant,
        wakes: &mut Wakes,
    ) {
        // A first query that is refused may have missed it.
        self.releases += 1;
        self.line(target).hand_over(released, now, wakes);
    }
}
