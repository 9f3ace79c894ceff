//! A wait: for what, how long, until which stop; and its attempts, in turn with other waiters of the process.

use std::hash::Hash;
use std::time::{Duration, Instant};

use crate::engine::HasEngine;
use crate::queue::{Released, Ticket, Turn};
#[cfg(feature = "_pool")]
use crate::stop::StopToken;
use crate::timer::{LATEST_ANSWER, Timer};
use crate::transaction::backend::TransactionBackend;
use crate::{Error, Wait};

/// How long an attempt waits for the answer of a server at least, so that what is free is acquired with any time limit.
#[cfg(feature = "_pool")]
const SHORTEST_ANSWER: Duration = Duration::from_millis(500);

/// Waits for the answer of a server to an attempt that waits in the database. Returns `None` if it does not come until
/// [`LATEST_ANSWER`] after the limit; `attempt` is then to be dropped. A thread waits on.
pub(crate) async fn answer_in_time<C: HasEngine, T: Send>(
    wait: Wait,
    started: Instant,
    attempt: impl Future<Output = T> + Send,
) -> Option<T> {
    match wait {
        Wait::AtMost(limit) if C::LockEngine::IS_REMOTE => {
            let limit = limit.saturating_sub(started.elapsed()) + LATEST_ANSWER;
            C::LockTimer::answer_within(limit, attempt).await
        }
        _ => Some(attempt.await),
    }
}

/// What is waited for, and how long.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) wait: Wait,
    /// For errors.
    resource: String,
    started: Instant,
    #[cfg(feature = "_pool")]
    stop: Option<StopToken>,
}

impl Waiting {
    /// The wait begins now.
    pub(crate) fn new(wait: Wait, resource: String) -> Result<Self, Error> {
        if let Wait::AtMost(requested) = wait
            && requested > Wait::LONGEST
        {
            return Err(Error::InvalidWait { requested });
        }
        Ok(Self {
            wait,
            resource,
            started: Instant::now(),
            #[cfg(feature = "_pool")]
            stop: None,
        })
    }

    /// The same wait, which ends when `stop` is stopped.
    #[cfg(feature = "_pool")]
    pub(crate) fn stopped_by(self, stop: Option<&StopToken>) -> Self {
        Self {
            stop: stop.cloned(),
            ..self
        }
    }

    #[cfg(feature = "_pool")]
    pub(crate) fn stop(&self) -> Option<&StopToken> {
        self.stop.as_ref()
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn deadline(&self) -> Option<Instant> {
        match self.wait {
            Wait::AtMost(limit) => Some(self.started + limit),
            Wait::No | Wait::Forever => None,
        }
    }

    /// Whether the wait has a limit, and its time is up.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.wait, Wait::AtMost(limit) if self.elapsed() >= limit)
    }

    /// Half of its limit from its beginning on: when a waiter queries at the latest that has no answer yet.
    #[cfg(feature = "_pool")]
    pub(crate) fn ask_by(&self) -> Option<Instant> {
        match self.wait {
            Wait::AtMost(limit) => Some(self.started + limit / 2),
            Wait::No | Wait::Forever => None,
        }
    }

    /// Makes an attempt with a connection of the caller, which is lost if the server does not answer in time.
    pub(crate) async fn answer_or_time_out<C: HasEngine, T: Send>(
        &self,
        attempt: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        let answer = answer_in_time::<C, _>(self.wait, self.started, attempt).await;
        answer.unwrap_or_else(|| Err(self.timed_out(None)))
    }

    /// Makes an attempt. Returns `None` if a server does not answer until the limit of the wait, and for
    /// [`SHORTEST_ANSWER`] at least. A thread waits on.
    #[cfg(feature = "_pool")]
    pub(crate) async fn answer<C: HasEngine, T: Send>(
        &self,
        attempt: impl Future<Output = T> + Send,
    ) -> Option<T> {
        let limit = match self.wait {
            Wait::AtMost(limit) if C::LockEngine::IS_REMOTE => limit,
            _ => return Some(attempt.await),
        };
        let limit = limit.saturating_sub(self.elapsed()).max(SHORTEST_ANSWER);
        let answer = C::LockTimer::answer_within(limit, attempt).await;
        if answer.is_none() {
            tracing::warn!(resource = self.resource, ?limit, "no answer to an attempt");
        }
        answer
    }

    /// Returns whether the wait is stopped; `None` if it can't be.
    #[cfg_attr(
        not(feature = "_pool"),
        expect(clippy::unused_self, reason = "only a wait on a pool can be stopped")
    )]
    fn stopped(&self) -> Option<impl Fn() -> bool> {
        #[cfg(feature = "_pool")]
        let stopped = self.stop.as_ref().map(|stop| || stop.is_stopped());
        #[cfg(not(feature = "_pool"))]
        let stopped = None::<fn() -> bool>;
        stopped
    }

    /// Fails with [`Error::Stopped`] when the wait is stopped.
    #[cfg_attr(
        not(feature = "_pool"),
        expect(
            clippy::unused_self,
            clippy::unnecessary_wraps,
            reason = "only a wait on a pool can be stopped"
        )
    )]
    pub(crate) fn check_stop(&self) -> Result<(), Error> {
        #[cfg(feature = "_pool")]
        if self.stop.as_ref().is_some_and(StopToken::is_stopped) {
            return Err(self.stopped_error());
        }
        Ok(())
    }

    /// The error of a wait that is stopped.
    #[cfg(feature = "_pool")]
    pub(crate) fn stopped_error(&self) -> Error {
        Error::Stopped {
            resource: self.resource.clone(),
            waited: self.elapsed(),
        }
    }

    fn unavailable(&self) -> Error {
        Error::Unavailable {
            resource: self.resource.clone(),
        }
    }

    /// Whether the wait goes on after an attempt has failed with this error: a time-out. On SQLite an attempt times out while
    /// another connection writes, on MariaDB while a backup lets no session commit. On PostgreSQL no attempt times out.
    pub(crate) fn outlasts(&self, error: &Error) -> bool {
        self.wait != Wait::No && matches!(error, Error::LockTimeout { .. })
    }

    /// `cause`: the error of the last attempt, if it had one.
    fn timed_out(&self, cause: Option<Error>) -> Error {
        Error::LockTimeout {
            resource: self.resource.clone(),
            waited: self.elapsed(),
            limit: match self.wait {
                Wait::AtMost(limit) => Some(limit),
                Wait::No | Wait::Forever => None,
            },
            source: match cause {
                Some(Error::LockTimeout { source, .. }) => source,
                cause => cause.map(Into::into),
            },
        }
    }
}

/// What a waiter does when its time is up while it waits for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtTheEnd {
    /// It makes a last attempt.
    Attempt,
    /// It makes none, unless it was notified of a release, did not wait before, its limit is zero, or neither it nor another one
    /// of its queue was refused since it waits. For waiters that would have to wait for a connection.
    #[cfg(feature = "_pool")]
    GiveUp,
}

/// One attempt of a wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) is_first: bool,
    /// The release of which the waiter was notified.
    pub(crate) notified: Option<Released>,
}

/// What an attempt of a wait returned.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer<T> {
    Granted(T),
    Refused {
        /// The pause before the next attempt, if it is not that which follows from the number of refusals.
        pause: Option<Duration>,
    },
}

impl<T> From<Option<T>> for Answer<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Refused { pause: None }, Self::Granted)
    }
}

/// What a wait repeats.
pub(crate) trait RepeatedAttempt: Send {
    /// How it waits between attempts.
    type Timer: Timer;
    /// Identifies what is waited for: see [`Ticket::set_target`].
    type Target: PartialEq + Clone + Send;
    type Value;

    fn target(&mut self) -> impl Future<Output = Result<Option<Self::Target>, Error>> + Send;

    /// Whether another waiter is about to find out the target, so that this one asks for it later.
    #[cfg(feature = "_pool")]
    fn target_comes(&self) -> bool {
        false
    }

    fn run(
        &mut self,
        attempt: Attempt,
    ) -> impl Future<Output = Result<Answer<Self::Value>, Error>> + Send;
}

/// Repeats an attempt until it returns a value, the time is up, or the wait is stopped.
pub(crate) async fn repeat<K, A>(
    waiting: &Waiting,
    mut ticket: Ticket<'_, K, A::Target>,
    at_the_end: AtTheEnd,
    mut attempt: A,
) -> Result<A::Value, Error>
where
    K: Eq + Hash + Clone + Send,
    A: RepeatedAttempt,
{
    let deadline = waiting.deadline();
    #[cfg(feature = "_pool")]
    if at_the_end == AtTheEnd::GiveUp {
        ticket = ticket.asking_by(waiting.ask_by());
    }
    let mut is_first = true;
    let mut cause = None;
    loop {
        let at_once = ticket.may_query_at_once();
        let turn = ticket.turn_unless::<A::Timer>(deadline, waiting.stopped());
        let turn = turn.await;
        waiting.check_stop()?;
        let notified = match turn {
            Turn::Query { notified } => notified,
            #[cfg(feature = "_pool")]
            Turn::Identify if attempt.target_comes() => {
                ticket.identify_later();
                continue;
            }
            Turn::Identify => {
                match attempt.target().await {
                    Ok(target) => ticket.set_target(target),
                    #[cfg(feature = "_pool")]
                    Err(error) if error.is_out_of_reach() => ticket.record_unreached(),
                    #[cfg(feature = "_pool")]
                    Err(error) if error.has_no_connection_yet() => ticket.identify_later(),
                    Err(error) => return Err(ended_by(error, &mut ticket)),
                }
                continue;
            }
        };
        #[cfg(feature = "_pool")]
        if at_the_end == AtTheEnd::GiveUp
            && (notified.is_none() && !at_once)
            && waiting.wait != Wait::AtMost(Duration::ZERO)
            && waiting.is_over()
            && ticket.is_answered()
        {
            return Err(waiting.timed_out(cause));
        }
        // Only a waiter on a pool gives up without an attempt.
        #[cfg(not(feature = "_pool"))]
        let _ = (&cause, at_the_end, at_once);
        let next_pause = match attempt.run(Attempt { is_first, notified }).await {
            Ok(Answer::Granted(value)) => {
                ticket.finish();
                return Ok(value);
            }
            Ok(Answer::Refused { pause }) => {
                cause = None;
                pause
            }
            // It has waited before, for a release or after a refusal, so it may wait until its own limit.
            #[cfg(feature = "_pool")]
            Err(error) if error.has_no_connection_yet() && (!is_first || !at_once) => {
                tracing::warn!(resource = waiting.resource, %error, "wait continues: no connection for an attempt");
                cause = Some(error);
                None
            }
            Err(error) if waiting.outlasts(&error) => {
                tracing::warn!(resource = waiting.resource, %error, "wait continues: the database lets this connection not write yet");
                cause = Some(error);
                None
            }
            Err(error) => return Err(ended_by(error, &mut ticket)),
        };
        waiting.check_stop()?;
        if waiting.wait == Wait::No {
            return Err(waiting.unavailable());
        }
        if waiting.is_over() {
            return Err(waiting.timed_out(cause));
        }
        is_first = false;
        #[cfg(feature = "_pool")]
        if let Some(error) = cause.as_ref().filter(|error| error.is_pool()) {
            if error.is_out_of_reach() {
                ticket.record_unreached();
            } else {
                ticket.record_no_query();
            }
            continue;
        }
        if ticket.needs_target() {
            ticket.set_target(attempt.target().await?);
        }
        ticket.record_refusal();
        ticket.set_pause(next_pause);
    }
}

/// The error that ends a wait. After one of a pool that lends no connections any more, the next waiter asks at once, so that
/// each of them gets its error.
#[cfg_attr(
    not(feature = "_pool"),
    expect(unused_variables, reason = "only a pool is closed")
)]
fn ended_by<K, T>(error: Error, ticket: &mut Ticket<'_, K, T>) -> Error
where
    K: Eq + Hash + Clone,
    T: PartialEq + Clone,
{
    #[cfg(feature = "_pool")]
    if error.is_pool() && !error.has_no_connection_yet() {
        ticket.notify_next();
    }
    error
}

#[cfg(all(test, feature = "r2d2", feature = "sqlite", feature = "_async_pool"))]
mod tests;
