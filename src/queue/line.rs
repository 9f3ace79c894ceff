//! The queue of one target, as a machine whose states change under the lock of [`Queues`](crate::queue::Queues).

use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::queue::MAX_POLL_INTERVAL;
use crate::rt::backoff;

/// The pause of a waiter while the query of another one is running, unless it has a shorter one and a connection of its own: the
/// query may wait for a connection of the pool.
const PAUSE_BESIDE_QUERY: Duration = Duration::from_secs(1);

/// How long a waiter that was called may take until it queries: then another one is called.
const STALLED: Duration = MAX_POLL_INTERVAL;

/// The shortest and the longest pause of a queue after queries that did not reach the database, before jitter.
const MIN_UNREACHED_PAUSE: Duration = Duration::from_millis(100);
pub(crate) const MAX_UNREACHED_PAUSE: Duration = Duration::from_secs(5);

/// The shortest pause after an attempt without a connection, before jitter.
const MIN_KEPT_PAUSE: Duration = Duration::from_millis(10);

pub(crate) fn unreached_pause(queries: u32) -> Duration {
    let earlier = queries.saturating_sub(1);
    backoff::jittered(backoff::growing(
        earlier,
        MIN_UNREACHED_PAUSE,
        MAX_UNREACHED_PAUSE,
    ))
}

/// A release, with the slot's number if it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Released(pub(crate) Option<u32>);

#[derive(Clone, Copy)]
pub(crate) struct Options {
    /// It has a connection of its own, and uses it every few seconds. For a waiter without one see [`PAUSE_BESIDE_QUERY`].
    pub(crate) connected: bool,
    /// The pause after which its queue queries at the latest, whoever is the first.
    pub(crate) longest_pause: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Sleeping,
    /// It is to query: because of a release, or because it is time to poll.
    Called(Option<Released>),
    Querying {
        /// The number of unclaimed releases when it began.
        unclaimed: u64,
    },
}

pub(crate) struct Waiter {
    pub(crate) state: State,
    pub(crate) waker: Option<Waker>,
    pub(crate) options: Options,
    pub(crate) pause: Duration,
    /// When its last attempt ended, from which its pause is counted.
    tried_at: Option<Instant>,
    /// It is a future: it may be woken and not go on for a while, because its application polls another one.
    pub(crate) may_stall: bool,
    /// Its last attempt did not reach the database. Another one, which may have another pool, queries before it.
    failed: bool,
}

/// Wakes waiters when it is dropped. Not under the lock: a waker of another runtime may drop a future that has a place.
#[derive(Default)]
pub(crate) struct Wakes {
    wakers: Vec<Waker>,
    /// Only dropped.
    unused: Vec<Waker>,
}

impl Wakes {
    pub(crate) fn discard(&mut self, waker: Option<Waker>) {
        self.unused.extend(waker);
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        self.wakers.drain(..).for_each(Waker::wake);
    }
}

pub(crate) struct Line {
    pub(crate) target: String,
    pub(crate) waiters: BTreeMap<u64, Waiter>,
    /// How many of them query,
    querying: usize,
    /// and since when at least one does.
    querying_since: Option<Instant>,
    /// Those of the waiters, with their numbers.
    longest_pauses: BTreeSet<(Duration, u64)>,
    /// The number of releases that no waiter was notified of, because none slept.
    pub(crate) unclaimed: u64,
    /// When a waiter was last called, from which the pause of the next one is counted. If one leaves before it has polled, the
    /// next one continues its pause: otherwise none would poll while many leave.
    called_at: Instant,
    called: Option<u64>,
    /// The end of the present yield to other processes.
    pub(crate) yield_until: Option<Instant>,
    /// When a release is handed over that a waiter without a connection could not use,
    kept_until: Option<Instant>,
    /// and the number of attempts in succession for which no connection was free.
    without_connection: u32,
    /// When the first one polls at the earliest,
    pub(crate) retry_at: Option<Instant>,
    /// and the number of queries in succession that did not reach the database.
    unreached: u32,
    /// When the last query began that was refused.
    pub(crate) refused_at: Option<Instant>,
}

impl Line {
    pub(crate) fn new(target: String, now: Instant) -> Self {
        Self {
            target,
            waiters: BTreeMap::new(),
            querying: 0,
            querying_since: None,
            longest_pauses: BTreeSet::new(),
            unclaimed: 0,
            called_at: now,
            called: None,
            yield_until: None,
            kept_until: None,
            without_connection: 0,
            retry_at: None,
            unreached: 0,
            refused_at: None,
        }
    }

    /// A waiter has come. It does not wait for the end of a pause that has grown while others did not reach the database.
    pub(crate) fn add(&mut self, number: u64, state: State, options: Options, now: Instant) {
        if self.first().is_none() {
            self.called_at = now;
        }
        if let Some(retry_at) = &mut self.retry_at {
            *retry_at = (*retry_at).min(now + unreached_pause(1));
        }
        let waiter = Waiter {
            state: State::Sleeping,
            waker: None,
            options,
            pause: MAX_POLL_INTERVAL,
            tried_at: None,
            may_stall: false,
            failed: false,
        };
        self.longest_pauses.insert((options.longest_pause, number));
        self.waiters.insert(number, waiter);
        self.set_state(number, state, now);
    }

    pub(crate) fn remove(&mut self, number: u64, now: Instant, wakes: &mut Wakes) -> State {
        let state = self.set_state(number, State::Sleeping, now);
        let waiter = self.waiters.remove(&number).expect("a waiter with a place");
        wakes.discard(waiter.waker);
        let longest_pause = waiter.options.longest_pause;
        self.longest_pauses.remove(&(longest_pause, number));
        state
    }

    pub(crate) fn waiter(&mut self, number: u64) -> &mut Waiter {
        self.waiters
            .get_mut(&number)
            .expect("a waiter with a place")
    }

    fn set_state(&mut self, number: u64, state: State, now: Instant) -> State {
        let is_query = |state| matches!(state, State::Querying { .. });
        let waiter = self.waiter(number);
        let before = std::mem::replace(&mut waiter.state, state);
        self.querying += usize::from(is_query(state));
        self.querying -= usize::from(is_query(before));
        self.querying_since = match self.querying {
            0 => None,
            _ => Some(self.querying_since.unwrap_or(now)),
        };
        before
    }

    pub(crate) fn all_query(&self) -> bool {
        self.querying == self.waiters.len()
    }

    /// The first waiter that sleeps. While attempts fail, one whose attempt has not failed.
    pub(crate) fn first(&self) -> Option<u64> {
        let fails = self.unreached > 0 || self.without_connection > 0;
        let sleeping = |(_, waiter): &(&u64, &Waiter)| waiter.state == State::Sleeping;
        let mut preferred = self.waiters.iter().filter(sleeping);
        let preferred = preferred.find(|(_, waiter)| !(fails && waiter.failed));
        let first = preferred.or_else(|| self.waiters.iter().find(sleeping));
        first.map(|(number, _)| *number)
    }

    fn call(&mut self, number: u64, release: Option<Released>, now: Instant, wakes: &mut Wakes) {
        self.set_state(number, State::Called(release), now);
        self.called_at = now;
        self.called = Some(number);
        wakes.wakers.extend(self.waiter(number).waker.take());
    }

    /// Hands a release over to the first sleeping waiter.
    pub(crate) fn hand_over(&mut self, released: Released, now: Instant, wakes: &mut Wakes) {
        match self.first() {
            Some(number) => self.call(number, Some(released), now, wakes),
            None => self.unclaimed += 1,
        }
    }

    pub(crate) fn release(
        &mut self,
        released: Released,
        share: &mut FairShare,
        now: Instant,
        wakes: &mut Wakes,
    ) {
        if self.yield_until.is_none()
            && let Some(time) = share.yields(now, self.waiters.len())
        {
            self.yield_until = Some(now + time);
        } else {
            self.hand_over(released, now, wakes);
        }
    }

    pub(crate) fn tick(&mut self, now: Instant, wakes: &mut Wakes) {
        let Some(number) = self.first() else {
            return;
        };
        if self.due().is_none_or(|due| now < due) {
            return;
        }
        let kept = self.kept_until.take().is_some();
        let yielded = self.yield_until.take_if(|end| now >= *end).is_some();
        let release = (kept || yielded).then_some(Released(None));
        self.call(number, release, now, wakes);
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        let first = self.waiters.get(&self.first()?)?;
        let (longest_pause, _) = self.longest_pauses.first()?;
        let begin = first.tried_at.max(Some(self.called_at))?;
        // What it has learned is old if another one was called since.
        let learned = match first.tried_at {
            Some(tried) if tried < self.called_at && self.querying == 0 => MAX_POLL_INTERVAL,
            Some(tried) if tried < self.called_at => PAUSE_BESIDE_QUERY,
            _ => Duration::MAX,
        };
        let mut polls = begin + first.pause.min(*longest_pause).min(learned);
        if let Some(since) = self.querying_since
            && !first.options.connected
        {
            // Short queries of others delay it, and do not restart its pause: with many of them it would never poll.
            polls = polls.max(since.max(begin) + self.pause_beside_query());
        }
        let polls = polls.max(self.retry_at.unwrap_or(polls));
        let sooner = [self.yield_until, self.kept_until];
        sooner.into_iter().flatten().chain([polls]).min()
    }

    fn pause_beside_query(&self) -> Duration {
        let called = self.called.and_then(|number| self.waiters.get(&number));
        let stalls = |waiter: &Waiter| waiter.may_stall && matches!(waiter.state, State::Called(_));
        if called.is_some_and(stalls) {
            STALLED
        } else {
            PAUSE_BESIDE_QUERY
        }
    }

    pub(crate) fn begin_query(&mut self, number: u64, now: Instant) {
        let unclaimed = self.unclaimed;
        self.set_state(number, State::Querying { unclaimed }, now);
    }

    pub(crate) fn refuse(&mut self, number: u64, asked_at: Option<Instant>, now: Instant) {
        self.reach();
        self.refused_at = self.refused_at.max(asked_at);
        self.end_attempt(number, now);
    }

    /// The waiter sleeps, or queries once more if it has missed a release.
    fn end_attempt(&mut self, number: u64, now: Instant) {
        if self.fall_asleep(number, now) {
            self.set_state(number, State::Called(Some(Released(None))), now);
        }
    }

    /// Ends an attempt. Returns whether there was a release meanwhile that nobody was notified of.
    fn fall_asleep(&mut self, number: u64, now: Instant) -> bool {
        self.waiter(number).tried_at = Some(now);
        let before = self.set_state(number, State::Sleeping, now);
        matches!(before, State::Querying { unclaimed } if unclaimed != self.unclaimed)
    }

    /// There was no connection for the attempt of a waiter. The release that it was notified of is handed over to one that has
    /// a connection of its own, or kept for a pause, which grows until a query reaches the database: a pool may refuse at once.
    pub(crate) fn end_without_connection(
        &mut self,
        number: u64,
        released: bool,
        now: Instant,
        wakes: &mut Wakes,
    ) {
        self.without_connection = self.without_connection.saturating_add(1);
        self.fail(number);
        let missed = self.fall_asleep(number, now);
        if !released && !missed {
            return;
        }
        let mut waiters = self.waiters.iter();
        let connected =
            waiters.find(|(_, waiter)| waiter.state == State::Sleeping && waiter.options.connected);
        if let Some((number, _)) = connected {
            self.call(*number, Some(Released(None)), now, wakes);
        } else {
            let earlier = self.without_connection.saturating_sub(1);
            let pause = backoff::growing(earlier, MIN_KEPT_PAUSE, MAX_POLL_INTERVAL);
            self.kept_until = Some(now + backoff::jittered(pause));
        }
    }

    /// The query of a waiter did not reach the database. The queue pauses, longer each time.
    pub(crate) fn end_unreached(&mut self, number: u64, now: Instant) {
        self.unreached = self.unreached.saturating_add(1);
        self.retry_at = Some(now + unreached_pause(self.unreached));
        self.fail(number);
        self.end_attempt(number, now);
    }

    /// Has others query before this waiter. When all have failed, they take turns.
    fn fail(&mut self, number: u64) {
        self.waiter(number).failed = true;
        if self.waiters.values().all(|waiter| waiter.failed) {
            for (other, waiter) in &mut self.waiters {
                waiter.failed = *other == number;
            }
        }
    }

    /// A query has reached the database. Returns whether others have failed before.
    pub(crate) fn reach(&mut self) -> bool {
        let failed = self.unreached > 0 || self.without_connection > 0;
        if failed {
            self.without_connection = 0;
            self.unreached = 0;
            self.retry_at = None;
            for waiter in self.waiters.values_mut() {
                waiter.failed = false;
            }
        }
        failed
    }
}

pub(crate) const RELEASES_PER_YIELD: u32 = 3;
/// At most one part in this many of the time is yielded.
const YIELD_TIME_DIVISOR: u32 = 20;

/// The share of other processes in the releases of a name. Their waiters poll every 50 to 100 ms, as each of the `n` waiters here
/// would without a queue: what is released would stay free for that time divided by `n`. Some releases are yielded to them, each
/// for so long.
#[derive(Clone, Copy, Default)]
pub(crate) struct FairShare {
    releases: u32,
    next_yield: Option<Instant>,
}

impl FairShare {
    /// There is a release, and so many waiters here. Returns how long it is yielded to other processes, if it is.
    pub(crate) fn yields(&mut self, now: Instant, waiting: usize) -> Option<Duration> {
        self.releases = self.releases.saturating_add(1);
        if self.releases < RELEASES_PER_YIELD || self.next_yield.is_some_and(|time| now < time) {
            return None;
        }
        let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
        let time = backoff::jittered(MAX_POLL_INTERVAL) / waiting.max(1);
        self.releases = 0;
        self.next_yield = Some(now + time * YIELD_TIME_DIVISOR);
        Some(time)
    }

    /// Yields nothing for an hour.
    #[cfg(test)]
    pub(crate) fn never() -> Self {
        let hour = Duration::from_secs(3600);
        Self {
            releases: 0,
            next_yield: Some(Instant::now() + hour),
        }
    }
}
