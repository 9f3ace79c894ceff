//! The time of a queue: when its first waiter polls, and which waiters watch for it.
//!
//! Releases in this process change the first waiter thousands of times per second. If each new first waiter woke to watch
//! its own time, each release would wake two threads in place of one: with 128 connections and 8 permits that took a sixth
//! of the grants per second. So the waiter that is likely to sleep longest, the last one, watches the time of the first.
//!
//! A waiter that is a future may be left alone by its application, which polls another one meanwhile. So while such a one
//! watches, a second waiter does too, and wakes a little later. Both may be left alone: so while one of them is a future, each
//! other waiter wakes every few seconds, and does what they should have done. A waiter that sleeps already does not learn that
//! futures have replaced a thread that watched: so each waiter wakes from time to time in any case.

use std::time::{Duration, Instant};

use super::waiter::{MAX_POLL_INTERVAL, Released, State, Waiter};
use super::waiters::Queue;
use super::wakes::Wakes;
use crate::backoff;

/// How much later the second waiter that watches wakes.
const STALLED: Duration = MAX_POLL_INTERVAL;

/// How long a waiter relies on futures that watch, before jitter. Tests wait for it several times.
const RELIANCE: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 3000 });

/// How long a waiter relies on others in any case, before jitter.
const LONGEST_SLEEP: Duration = Duration::from_millis(if cfg!(test) { 1000 } else { 10_000 });

/// The waiters that watch the time for the others. The second one only while the first one may stall.
pub(super) type Watches = [Option<Watch>; 2];

/// A waiter that watches, and when it wakes.
#[derive(Clone, Copy)]
pub(super) struct Watch {
    pub(super) number: u64,
    until: Instant,
}

impl<T> Queue<T> {
    /// Updates what follows from the states of the waiters. To be called after each change of one.
    pub(super) fn update(&mut self, wakes: &mut Wakes) {
        let now = Instant::now();
        let first = self.first_sleeping().map(|(number, waiter)| {
            let beside_query = waiter.pause_beside_query.is_some();
            (*number, beside_query)
        });
        let number = first.map(|(number, _)| number);
        if number != self.first {
            let last = self.first.map(|last| self.waiters.get(&last));
            let polls = last.is_none_or(|last| {
                last.is_some_and(|it| matches!(it.state, State::Due | State::Notified(_)))
            });
            if polls {
                self.pausing_since = now;
            }
            self.first = number;
        }
        let mut others = self.waiters.values();
        let querying = first.is_some_and(|(_, beside_query)| beside_query)
            && (self.target.is_none() || others.any(|waiter| waiter.state == State::Querying));
        self.querying_since = querying.then(|| self.querying_since.unwrap_or(now));
        for place in 0..self.watches.len() {
            self.watches[place] = self.watches[place].filter(|watch| self.sleeps(watch.number));
            self.replace_stalled(place, now, wakes);
        }
        let Some(due) = self.due() else {
            return;
        };
        for (place, until) in times(due) {
            if place > 0 && !self.watch_may_stall() {
                return;
            }
            let number = match self.watches[place] {
                Some(watch) if watch.until <= until => continue,
                Some(watch) => watch.number,
                None => match self.last_parked() {
                    Some(number) => number,
                    None => return,
                },
            };
            self.watches[place] = Some(Watch { number, until });
            self.waiter(number).wake(wakes);
        }
    }

    /// The last waiter that sleeps until it is woken, and does not watch.
    fn last_parked(&self) -> Option<u64> {
        let mut latest = self.waiters.iter().rev();
        let parked = latest.find(|(number, waiter)| {
            waiter.is_parked() && waiter.state == State::Sleeping && !self.is_watching(**number)
        });
        parked.map(|(number, _)| *number)
    }

    fn is_watching(&self, number: u64) -> bool {
        let mut watches = self.watches.iter().flatten();
        watches.any(|watch| watch.number == number)
    }

    /// Whether the first of those that watch may stall.
    fn watch_may_stall(&self) -> bool {
        let waiter = self.watches[0].and_then(|watch| self.waiters.get(&watch.number));
        waiter.is_some_and(|waiter| waiter.may_stall)
    }

    /// A waiter that should have gone on watches no longer, and is not chosen again before it goes on.
    fn replace_stalled(&mut self, place: usize, now: Instant, wakes: &mut Wakes) {
        let Some(watch) = self.watches[place] else {
            return;
        };
        let waiter = self.waiter(watch.number);
        if waiter.may_stall && now >= watch.until + STALLED {
            waiter.wake(wakes);
            self.watches[place] = None;
        }
    }

    /// Notifies the first waiter when its time has come.
    pub(super) fn notify_if_due(&mut self, now: Instant, wakes: &mut Wakes) {
        let is_due = self.due().is_some_and(|time| now >= time);
        if !is_due || self.first_sleeping().is_none() {
            return;
        }
        let polls = self.poll_time().is_some_and(|time| now >= time);
        let state = if self.yield_until.is_some_and(|end| now >= end) {
            self.yield_until = None;
            State::Notified(Released(None))
        } else if self.take_kept(now, polls) {
            State::Notified(Released(None))
        } else if polls {
            State::Due
        } else {
            return;
        };
        let Some((number, waiter)) = self.first_sleeping() else {
            return;
        };
        let number = *number;
        waiter.state = state;
        waiter.wake(wakes);
        self.called = Some(number);
        self.update(wakes);
    }

    /// Whether a waiter is to query, and has not begun: its application may have left it alone.
    fn is_stalled(&self) -> bool {
        let called = self.called.and_then(|number| self.waiters.get(&number));
        called.is_some_and(|waiter| {
            waiter.may_stall && matches!(waiter.state, State::Due | State::Notified(_))
        })
    }

    /// The waiter `number` sleeps no longer: another one watches.
    pub(super) fn leave_watch(&mut self, number: u64, wakes: &mut Wakes) {
        self.forget_watch(number);
        self.update(wakes);
    }

    fn forget_watch(&mut self, number: u64) {
        for watch in &mut self.watches {
            *watch = watch.filter(|watch| watch.number != number);
        }
    }

    /// Until when the waiter `number` sleeps to watch the time for the others; `None` while others do.
    pub(super) fn watch(&mut self, number: u64) -> Option<Instant> {
        self.forget_watch(number);
        for (place, until) in times(self.due()?) {
            if place > 0 && !self.watch_may_stall() {
                return None;
            }
            if !self.watches[place].is_some_and(|watch| self.sleeps(watch.number)) {
                self.watches[place] = Some(Watch { number, until });
                return Some(until);
            }
        }
        None
    }

    /// Until when a waiter that does not watch sleeps at the longest.
    pub(super) fn reliance(&self, now: Instant) -> Instant {
        let mut watching = self.watches.iter().flatten();
        let any_may_stall = watching.any(|watch| {
            let waiter = self.waiters.get(&watch.number);
            waiter.is_some_and(|waiter| waiter.may_stall)
        });
        let longest = if any_may_stall {
            RELIANCE
        } else {
            LONGEST_SLEEP
        };
        now + backoff::jittered(longest)
    }

    fn sleeps(&self, number: u64) -> bool {
        let waiter = self.waiters.get(&number);
        waiter.is_some_and(|waiter| waiter.state == State::Sleeping)
    }

    /// When the first waiter polls, stops yielding to other processes, or is notified of a release that was kept.
    fn due(&self) -> Option<Instant> {
        let polls = self.poll_time()?;
        let others = [self.yield_until, self.hand_over_time()];
        Some(others.into_iter().flatten().fold(polls, Instant::min))
    }

    /// When the first waiter polls. Short queries of others delay it, and do not restart its pause: with many of them it
    /// would never poll.
    fn poll_time(&self) -> Option<Instant> {
        let Waiter {
            pause,
            pause_beside_query,
            tried_at,
            ..
        } = self.waiters.get(&self.first?)?;
        let begin = tried_at.map_or(self.pausing_since, |at| at.max(self.pausing_since));
        let time = begin + self.longest_pause.min(*pause);
        let beside_query = pause_beside_query.map(|longer| {
            if self.is_stalled() {
                longer.min(STALLED)
            } else {
                longer
            }
        });
        let delayed = self.querying_since.zip(beside_query);
        let time = delayed.map_or(time, |(since, longer)| time.max(since.max(begin) + longer));
        Some(self.retry_at.map_or(time, |retry| time.max(retry)))
    }

    /// A waiter has come that waits for at most `pause` between two polls.
    pub(super) fn limit_pause(&mut self, pause: Duration) {
        self.longest_pause = self.longest_pause.min(pause);
    }

    /// A waiter has left for which [`limit_pause`](Self::limit_pause) was called. Mostly the first that is looked at has
    /// the same limit.
    pub(super) fn unlimit_pause(&mut self, pause: Duration) {
        if pause > self.longest_pause {
            return;
        }
        self.recompute_longest_pause(pause);
    }

    /// Recomputes the longest pause, which is not shorter than `at_least`.
    pub(super) fn recompute_longest_pause(&mut self, at_least: Duration) {
        self.longest_pause = Duration::MAX;
        for waiter in self.waiters.values() {
            self.longest_pause = self.longest_pause.min(waiter.longest_pause);
            if self.longest_pause <= at_least {
                return;
            }
        }
    }
}

/// When each of those that watch wakes.
fn times(due: Instant) -> [(usize, Instant); 2] {
    [(0, due), (1, due + STALLED)]
}
