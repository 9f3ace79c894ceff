//! A wait: for what, how long, until which stop; and its attempts, in turn with other waiters of the process.

use std::hash::Hash;
use std::time::{Duration, Instant};

use crate::queue::{Released, Ticket, Turn};
#[cfg(feature = "r2d2")]
use crate::stop::StopToken;
use crate::timer::Timer;
use crate::{Error, Wait};

/// What is waited for, and how long.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) wait: Wait,
    /// For errors.
    resource: String,
    started: Instant,
    #[cfg(feature = "r2d2")]
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
            #[cfg(feature = "r2d2")]
            stop: None,
        })
    }

    /// The same wait, which ends when `stop` is stopped.
    #[cfg(feature = "r2d2")]
    pub(crate) fn stopped_by(self, stop: Option<&StopToken>) -> Self {
        Self {
            stop: stop.cloned(),
            ..self
        }
    }

    #[cfg(feature = "r2d2")]
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

    /// Returns whether the wait is stopped; `None` if it can't be.
    #[cfg_attr(
        not(feature = "r2d2"),
        expect(clippy::unused_self, reason = "only a wait on a pool can be stopped")
    )]
    fn stopped(&self) -> Option<impl Fn() -> bool> {
        #[cfg(feature = "r2d2")]
        let stopped = self.stop.as_ref().map(|stop| || stop.is_stopped());
        #[cfg(not(feature = "r2d2"))]
        let stopped = None::<fn() -> bool>;
        stopped
    }

    /// Fails with [`Error::Stopped`] when the wait is stopped.
    #[cfg_attr(
        not(feature = "r2d2"),
        expect(
            clippy::unused_self,
            clippy::unnecessary_wraps,
            reason = "only a wait on a pool can be stopped"
        )
    )]
    pub(crate) fn check_stop(&self) -> Result<(), Error> {
        #[cfg(feature = "r2d2")]
        if self.stop.as_ref().is_some_and(StopToken::is_stopped) {
            return Err(Error::Stopped {
                resource: self.resource.clone(),
                waited: self.elapsed(),
            });
        }
        Ok(())
    }

    fn unavailable(&self) -> Error {
        Error::Unavailable {
            resource: self.resource.clone(),
        }
    }

    /// `without_connection`: the error of the pool, if it gave no connection for the last attempt.
    fn timed_out(&self, without_connection: Option<Error>) -> Error {
        Error::LockTimeout {
            resource: self.resource.clone(),
            waited: self.elapsed(),
            limit: match self.wait {
                Wait::AtMost(limit) => Some(limit),
                Wait::No | Wait::Forever => None,
            },
            source: without_connection.map(Into::into),
        }
    }
}

/// What a waiter does when its time is up while it waits for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtTheEnd {
    /// It makes a last attempt.
    Attempt,
    /// It makes none, unless it was notified of a release, did not wait before, or its limit is zero. For waiters that
    /// would have to wait for a connection.
    #[cfg(feature = "r2d2")]
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
    let mut is_first = true;
    let mut without_connection = None;
    loop {
        let at_once = ticket.may_query_at_once();
        let turn = ticket.turn_unless::<A::Timer>(deadline, waiting.stopped());
        let turn = turn.await;
        waiting.check_stop()?;
        let notified = match turn {
            Turn::Query { notified } => notified,
            Turn::Identify => {
                match attempt.target().await {
                    Ok(target) => ticket.set_target(target),
                    #[cfg(feature = "r2d2")]
                    Err(Error::Pool(_)) => ticket.identify_later(),
                    Err(error) => return Err(error),
                }
                continue;
            }
        };
        let gives_up = at_the_end != AtTheEnd::Attempt && notified.is_none() && !at_once;
        if gives_up && waiting.wait != Wait::AtMost(Duration::ZERO) && waiting.is_over() {
            return Err(waiting.timed_out(without_connection));
        }
        let next_pause = match attempt.run(Attempt { is_first, notified }).await {
            Ok(Answer::Granted(value)) => {
                ticket.finish();
                return Ok(value);
            }
            Ok(Answer::Refused { pause }) => {
                without_connection = None;
                pause
            }
            // It has waited before, for a release or after a refusal, so it may wait until its own limit.
            #[cfg(feature = "r2d2")]
            Err(error @ Error::Pool(_)) if !is_first || !at_once => {
                tracing::warn!(resource = waiting.resource, %error, "wait continues: no connection for an attempt");
                without_connection = Some(error);
                None
            }
            Err(error) => return Err(error),
        };
        waiting.check_stop()?;
        if waiting.wait == Wait::No {
            return Err(waiting.unavailable());
        }
        if waiting.is_over() {
            return Err(waiting.timed_out(without_connection));
        }
        if without_connection.is_some() {
            ticket.record_no_query();
        } else {
            if ticket.needs_target() {
                ticket.set_target(attempt.target().await?);
            }
            ticket.record_refusal();
        }
        ticket.set_pause(next_pause);
        is_first = false;
    }
}

#[cfg(all(test, feature = "r2d2", feature = "sqlite"))]
mod tests {
    use diesel::SqliteConnection;
    use diesel::r2d2::{ConnectionManager, Pool};

    use super::*;
    use crate::poll::poll_once;
    use crate::queue::Queues;
    use crate::timer::thread::ThreadTimer;

    /// The error of a pool that has no connection.
    fn no_connection() -> Error {
        let manager = ConnectionManager::<SqliteConnection>::new(":memory:");
        let pool = Pool::builder().max_size(1).build(manager).expect("a pool");
        let _borrowed = pool.get().expect("a connection");
        let error = pool.get_timeout(Duration::from_millis(1));
        Error::Pool(error.err().expect("none is left"))
    }

    /// Has no connection for the first attempts, nor to identify its target.
    struct WithoutConnection {
        attempts: u32,
        failing: u32,
    }

    impl RepeatedAttempt for WithoutConnection {
        type Timer = ThreadTimer;
        type Target = u8;
        type Value = u32;

        async fn target(&mut self) -> Result<Option<u8>, Error> {
            Err(no_connection())
        }

        async fn run(&mut self, _: Attempt) -> Result<Answer<u32>, Error> {
            self.attempts += 1;
            if self.attempts <= self.failing {
                Err(no_connection())
            } else {
                Ok(Answer::Granted(self.attempts))
            }
        }
    }

    fn without_connection(failing: u32) -> WithoutConnection {
        WithoutConnection {
            attempts: 0,
            failing,
        }
    }

    #[test]
    fn queued_waiter_waits_on_when_it_has_no_connection() {
        let queues: Queues<&str, u8> = Queues::new();
        let mut first = queues.join("slots", 1, |_| true);
        poll_once(first.turn::<ThreadTimer>(None));
        first.set_target(Some(0));
        first.record_refusal();
        let second = queues.join("slots", 1, |_| true);
        queues.notify_released("slots", 1, None);
        // The release is handed over to the next one.
        drop(first);
        let waiting = Waiting::new(Wait::AtMost(Duration::from_secs(20)), "a slot".to_owned());
        let outcome = poll_once(repeat(
            &waiting.expect("a valid limit"),
            second,
            AtTheEnd::GiveUp,
            without_connection(2),
        ));
        assert_eq!(outcome.expect("a connection at last"), 3);
    }

    #[test]
    fn first_attempt_without_a_connection_fails() {
        let queues: Queues<&str, u8> = Queues::new();
        let ticket = queues.join("slots", 1, |_| true);
        let waiting = Waiting::new(Wait::Forever, "a slot".to_owned()).expect("no limit");
        let outcome = poll_once(repeat(
            &waiting,
            ticket,
            AtTheEnd::GiveUp,
            without_connection(1),
        ));
        assert!(matches!(outcome, Err(Error::Pool(_))));
    }
}
