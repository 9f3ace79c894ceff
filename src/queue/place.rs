//! The place of a waiter, and its turns.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::queue::line::{Line, Options, Released, State, Wakes, unreached_pause};
use crate::queue::{MAX_POLL_INTERVAL, Queues};
use crate::rt::permits::Permit;
use crate::rt::stop_token::{StopToken, StopWatch, stop_or_end};
use crate::rt::{self, Polled, backoff};

/// The shortest pause between two queries of the first waiter, before jitter.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How long the connection of a sleeping waiter is idle, before jitter. A server may end a session that is idle: 8 s is a
/// usual limit where clients are to be noticed that have vanished.
const MAX_IDLE: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 5000 });

/// How long a waiter sleeps without a look at the time of its queue, before jitter. Usually the alarm calls it: not in a
/// process that was forked, or could not start a thread.
const LONGEST_SLEEP: Duration = Duration::from_secs(10);

pub(crate) struct Place {
    queues: Arc<Queues>,
    name: String,
    position: Position,
    joined: Instant,
    /// The number of queries that were refused,
    refusals: u32,
    /// and of those in succession that did not reach the database.
    unreached: u32,
    /// The pause before the next query, if it is not that which follows from the number of refusals.
    next_pause: Option<Duration>,
    asked_at: Option<Instant>,
    has_asked: bool,
    released: bool,
    /// Whether its first query begins without a wait.
    at_once: bool,
    ask_by: Option<Instant>,
}

enum Position {
    /// In no queue: it polls on its own.
    Alone,
    /// It queries before it knows its target.
    First {
        number: u64,
        /// The number of releases when it came.
        releases: u64,
        /// It queries once, and joins no queue.
        once: bool,
        /// Without one it queries only if it does so once.
        permit: Option<Permit>,
    },
    Queued {
        number: u64,
        target: String,
        connected: bool,
    },
}

impl Queues {
    pub(crate) fn place(self: &Arc<Self>, name: impl Into<String>) -> Place {
        Place {
            queues: Arc::clone(self),
            name: name.into(),
            position: Position::Alone,
            joined: Instant::now(),
            refusals: 0,
            unreached: 0,
            next_pause: None,
            asked_at: None,
            has_asked: false,
            released: false,
            at_once: true,
            ask_by: None,
        }
    }
}

impl Place {
    /// Has the waiter query before it knows its target. Returns false if others wait for the name, or `max_concurrent` query
    /// that do not know theirs either.
    ///
    /// One that queries once waits for fewer, until `once` at the longest, and not behind those that wait for the name.
    pub(crate) async fn query_first(
        &mut self,
        max_concurrent: usize,
        once: Option<Instant>,
    ) -> bool {
        let deadline = once.unwrap_or_else(Instant::now);
        let once = once.is_some();
        // Counted before the query: a release after the query sees it.
        self.queues.waiting.fetch_add(1, Ordering::SeqCst);
        let (number, releases, permits, others) = self.queues.enter(&self.name, |name, _| {
            name.entered += 1;
            name.first_queries += usize::from(!once);
            name.next += 1;
            let permits = Arc::clone(&name.permits);
            (name.next, name.releases, permits, !name.lines.is_empty())
        });
        let position = |permit| Position::First {
            number,
            releases,
            once,
            permit,
        };
        self.position = position(None);
        let permit = if others && !once {
            None
        } else {
            permits.acquire(max_concurrent, Some(deadline), None).await
        };
        if permit.is_none() && !once {
            self.leave(Outcome::Unused);
            return false;
        }
        self.position = position(permit);
        true
    }

    /// Joins the queue of its target. If all others in it query, and fewer than `max_concurrent`, it may query at once; not
    /// after a query that was refused.
    pub(crate) fn join(
        &mut self,
        target: impl Into<String>,
        max_concurrent: usize,
        options: Options,
    ) {
        let target = target.into();
        let (number, missed_from) = match std::mem::replace(&mut self.position, Position::Alone) {
            Position::First {
                number, releases, ..
            } => (Some(number), Some(releases)),
            Position::Alone => {
                self.queues.waiting.fetch_add(1, Ordering::SeqCst);
                (None, None)
            }
            Position::Queued { .. } => unreachable!("it joins once"),
        };
        // Of a query that was refused.
        let asked_at = self.asked_at.take().filter(|_| missed_from.is_some());
        let (number, at_once) = self.queues.enter(&self.name, |name, now| {
            if missed_from.is_some() {
                name.entered -= 1;
                name.first_queries -= 1;
            }
            let number = number.unwrap_or_else(|| {
                name.next += 1;
                name.next
            });
            let others = name.first_queries;
            let place = name.lines.iter().position(|line| line.target == target);
            let place = place.unwrap_or_else(|| {
                name.lines.push(Line::new(target.clone(), now));
                name.lines.len() - 1
            });
            let missed = missed_from.is_some_and(|before| name.releases != before);
            let line = &mut name.lines[place];
            let at_once = missed_from.is_none()
                && line.all_query()
                && line.waiters.len() + others < max_concurrent.max(1);
            let state = if at_once {
                let unclaimed = line.unclaimed;
                State::Querying { unclaimed }
            } else if missed {
                State::Called(Some(Released(None)))
            } else {
                State::Sleeping
            };
            line.add(number, state, options, now);
            line.refused_at = line.refused_at.max(asked_at);
            (number, at_once)
        });
        self.joined = Instant::now();
        self.at_once = at_once;
        self.position = Position::Queued {
            number,
            target,
            connected: options.connected,
        };
    }

    /// Leaves its first queries, and polls on its own: it has no target, or does not know it yet.
    pub(crate) fn stay_alone(&mut self) {
        self.leave(Outcome::Unused);
    }

    /// Whether the waiter is to find its target out, and to join.
    pub(crate) fn is_first(&self) -> bool {
        matches!(self.position, Position::First { .. })
    }

    pub(crate) fn may_query_at_once(&self) -> bool {
        self.at_once
    }

    /// Has the waiter query by this time, unless it is [answered](Self::is_answered): the first waiter may get no answer.
    #[cfg(feature = "_pool")]
    pub(crate) fn ask_by(&mut self, time: Option<Instant>) {
        self.ask_by = time;
    }

    /// Whether it has queried, or a query of its queue that began after it joined was refused.
    pub(crate) fn is_answered(&self) -> bool {
        let refused_at = self.in_line(|line, _, _, _| line.refused_at).flatten();
        self.is_answered_by(refused_at)
    }

    fn is_answered_by(&self, refused_at: Option<Instant>) -> bool {
        self.has_asked || refused_at.is_some_and(|at| at >= self.joined)
    }

    /// Waits for the turn to query, until `deadline`, when the waiter queries for the last time, or until the stop. Returns the
    /// release that the waiter was notified of.
    ///
    /// The future may be dropped at any time: the place is then as before, and keeps the turn if it had come.
    pub(crate) async fn turn(
        &mut self,
        deadline: Option<Instant>,
        stop: Option<&StopToken>,
    ) -> Option<Released> {
        let released = match &self.position {
            _ if self.at_once => None,
            Position::Alone | Position::First { .. } => {
                let end = Instant::now() + self.pause();
                let end = Some(deadline.map_or(end, |deadline| deadline.min(end)));
                stop_or_end(stop, end).await;
                None
            }
            Position::Queued { connected, .. } => {
                let idle = connected.then_some(MAX_IDLE);
                let idle_until = idle.map(|idle| Instant::now() + backoff::jittered(idle));
                self.queued_turn([deadline, idle_until], stop).await
            }
        };
        self.asked_at = Some(Instant::now());
        self.released = released.is_some();
        released
    }

    /// [`turn`](Self::turn) in a queue. `ends`: when it queries in any case, at the deadline and to use its connection.
    async fn queued_turn(
        &self,
        ends: [Option<Instant>; 2],
        stop: Option<&StopToken>,
    ) -> Option<Released> {
        let (pause, may_stall) = (self.pause(), !rt::blocks().await);
        let mut entered = false;
        let mut look_at = Instant::now() + backoff::jittered(LONGEST_SLEEP);
        let mut stop = StopWatch::new(stop);
        rt::wait(|waker| {
            let stopped = stop.is_stopped(waker);
            let polled = self.in_line(|line, number, now, wakes| {
                if !std::mem::replace(&mut entered, true) {
                    let waiter = line.waiter(number);
                    waiter.pause = pause;
                    waiter.may_stall = may_stall;
                }
                line.tick(now, wakes);
                let ask_by = self
                    .ask_by
                    .filter(|_| !self.is_answered_by(line.refused_at));
                let end = [ends[0], ends[1], ask_by].into_iter().flatten().min();
                let is_over = stopped || end.is_some_and(|end| now >= end);
                if now >= look_at {
                    look_at = now + backoff::jittered(LONGEST_SLEEP);
                }
                let waiter = line.waiter(number);
                match waiter.state {
                    State::Sleeping if !is_over => {
                        wakes.discard(waiter.waker.replace(waker.clone()));
                        let until = Some(end.map_or(look_at, |end| end.min(look_at)));
                        Polled::Pending { until }
                    }
                    State::Called(released) => {
                        line.begin_query(number, now);
                        Polled::Ready(released)
                    }
                    State::Sleeping | State::Querying { .. } => {
                        line.begin_query(number, now);
                        Polled::Ready(None)
                    }
                }
            });
            polled.expect("a queue with a waiter")
        })
        .await
    }

    fn pause(&self) -> Duration {
        self.next_pause.unwrap_or_else(|| {
            let pauses = self.refusals.saturating_sub(1);
            let longest = backoff::growing(pauses, MIN_POLL_INTERVAL, MAX_POLL_INTERVAL);
            backoff::jittered(longest)
        })
    }

    /// The query was refused.
    pub(crate) fn refused(&mut self, pause: Option<Duration>) {
        self.unreached = 0;
        let asked_at = self.end_query(pause);
        self.in_line(|line, number, now, _| line.refuse(number, asked_at, now));
        if self.is_first() {
            // For its queue, which it joins now.
            self.asked_at = asked_at;
        }
    }

    /// No connection of the pool was free to query with. The release that the waiter was notified of is not lost.
    pub(crate) fn had_no_connection(&mut self) {
        let released = std::mem::take(&mut self.released);
        self.end_query(None);
        self.in_line(|line, number, now, wakes| {
            line.end_without_connection(number, released, now, wakes);
        });
    }

    /// The query did not reach the database. The pauses grow until one does.
    pub(crate) fn did_not_reach(&mut self) {
        self.unreached = self.unreached.saturating_add(1);
        let pause = match self.position {
            Position::Queued { .. } => None,
            Position::First { .. } | Position::Alone => Some(unreached_pause(self.unreached)),
        };
        self.end_query(pause);
        self.in_line(|line, number, now, _| line.end_unreached(number, now));
    }

    /// Ends the present query, and returns when it began.
    fn end_query(&mut self, next_pause: Option<Duration>) -> Option<Instant> {
        self.refusals = self.refusals.saturating_add(1);
        self.next_pause = next_pause;
        self.at_once = false;
        self.released = false;
        let asked_at = self.asked_at.take();
        self.has_asked |= asked_at.is_some();
        asked_at
    }

    /// Has the next waiter query at once when this one leaves: it has an error that the others will have too.
    pub(crate) fn call_next(&mut self) {
        self.released = true;
    }

    /// Ends the wait after a query that succeeded. A waiter that was notified of no release lets the next one query, as there
    /// may be more; one that `shares` what it is granted does so in any case.
    pub(crate) fn granted(&mut self, shares: bool) {
        self.leave(if shares {
            Outcome::Shared
        } else {
            Outcome::Granted
        });
    }

    fn leave(&mut self, outcome: Outcome) {
        let exclusive = self.queues.exclusive && outcome != Outcome::Shared;
        let asked_at = self.asked_at;
        let (released, at_once) = (self.released, self.at_once);
        match std::mem::replace(&mut self.position, Position::Alone) {
            Position::Alone => return,
            Position::First { once, permit, .. } => {
                let queried = permit.is_some();
                self.queues.change(&self.name, |name, _, now, wakes| {
                    name.entered -= 1;
                    name.first_queries -= usize::from(!once);
                    // Those that have joined meanwhile rely on its query.
                    if queried && !once {
                        for line in &mut name.lines {
                            line.hand_over(Released(None), now, wakes);
                        }
                    }
                });
            }
            Position::Queued { number, target, .. } => {
                self.queues.change(&self.name, |name, _, now, wakes| {
                    let line = name.line(&target);
                    let state = line.remove(number, now, wakes);
                    let left = match outcome {
                        Outcome::Granted | Outcome::Shared => {
                            // Others may have failed to use a release.
                            let failed = line.reach();
                            if exclusive {
                                line.refused_at = line.refused_at.max(asked_at);
                            }
                            let released = released && outcome != Outcome::Shared;
                            (!exclusive && (!released || failed)).then_some(Released(None))
                        }
                        Outcome::Unused => match state {
                            State::Called(release) => release,
                            State::Querying { unclaimed } => {
                                let unused = released || at_once || line.unclaimed != unclaimed;
                                unused.then_some(Released(None))
                            }
                            State::Sleeping => None,
                        },
                    };
                    if let Some(released) = left {
                        name.hand_over(&target, released, now, wakes);
                    }
                    name.lines.retain(|line| !line.waiters.is_empty());
                });
            }
        }
        self.queues.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    fn in_line<R>(
        &self,
        change: impl FnOnce(&mut Line, u64, Instant, &mut Wakes) -> R,
    ) -> Option<R> {
        let Position::Queued { number, target, .. } = &self.position else {
            return None;
        };
        self.queues.change(&self.name, |name, _, now, wakes| {
            change(name.line(target), *number, now, wakes)
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Granted,
    /// Others like it may be granted the same.
    Shared,
    Unused,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave(Outcome::Unused);
    }
}
