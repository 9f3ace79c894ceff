//! A wait: for what, how long, until which stop; and its attempts, in turn with other waiters of the process.

use std::cell::Cell;
use std::hash::Hash;
use std::time::{Duration, Instant};

use crate::queue::{Released, Ticket, Turn};
#[cfg(feature = "r2d2")]
use crate::stop::StopToken;
use crate::{Error, Wait};

/// What is waited for, and how long.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) wait: Wait,
    /// For errors.
    resource: String,
    started: Instant,
    /// The pause after the next refusal.
    pause: Cell<Option<Duration>>,
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
            pause: Cell::new(None),
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

    /// Sets the pause after the refusal of the present attempt.
    pub(crate) fn set_pause(&self, pause: Duration) {
        self.pause.set(Some(pause));
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

    #[cfg_attr(
        not(feature = "r2d2"),
        expect(clippy::unused_self, reason = "only a wait on a pool can be stopped")
    )]
    fn is_stopped(&self) -> bool {
        #[cfg(feature = "r2d2")]
        let stopped = self.stop.as_ref().is_some_and(StopToken::is_stopped);
        #[cfg(not(feature = "r2d2"))]
        let stopped = false;
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
        if self.is_stopped() {
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

/// Repeats `attempt` with `state` until it returns a value, the time is up, or the wait is stopped. `target` identifies
/// what is waited for: see [`Ticket::set_target`].
pub(crate) fn repeat<K, G, S, T>(
    waiting: &Waiting,
    mut ticket: Ticket<'_, K, G>,
    at_the_end: AtTheEnd,
    mut state: S,
    mut target: impl FnMut(&mut S) -> Result<Option<G>, Error>,
    mut attempt: impl FnMut(&mut S, Attempt) -> Result<Option<T>, Error>,
) -> Result<T, Error>
where
    K: Eq + Hash + Clone,
    G: PartialEq + Clone,
{
    let deadline = waiting.deadline();
    let mut is_first = true;
    let mut without_connection = None;
    loop {
        let at_once = ticket.may_query_at_once();
        let turn = ticket.wait_unless(deadline, || waiting.is_stopped());
        waiting.check_stop()?;
        let notified = match turn {
            Turn::Query { notified } => notified,
            Turn::Identify => {
                match target(&mut state) {
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
        match attempt(&mut state, Attempt { is_first, notified }) {
            Ok(Some(value)) => {
                ticket.finish();
                return Ok(value);
            }
            Ok(None) => without_connection = None,
            // It has waited before, for a release or after a refusal, so it may wait until its own limit.
            #[cfg(feature = "r2d2")]
            Err(error @ Error::Pool(_)) if !is_first || !at_once => {
                tracing::warn!(resource = waiting.resource, %error, "wait continues: no connection for an attempt");
                without_connection = Some(error);
            }
            Err(error) => return Err(error),
        }
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
                ticket.set_target(target(&mut state)?);
            }
            ticket.record_refusal();
        }
        ticket.set_pause(waiting.pause.take());
        is_first = false;
    }
}

#[cfg(all(test, feature = "r2d2", feature = "_sqlite"))]
mod tests {
    use diesel::SqliteConnection;
    use diesel::r2d2::{ConnectionManager, Pool};

    use super::*;
    use crate::queue::Queues;

    /// The error of a pool that has no connection.
    fn no_connection() -> Error {
        let manager = ConnectionManager::<SqliteConnection>::new(":memory:");
        let pool = Pool::builder().max_size(1).build(manager).expect("a pool");
        let _borrowed = pool.get().expect("a connection");
        let error = pool.get_timeout(Duration::from_millis(1));
        Error::Pool(error.err().expect("none is left"))
    }

    #[test]
    fn queued_waiter_waits_on_when_it_has_no_connection() {
        let queues: Queues<&str, u8> = Queues::new();
        let mut first = queues.join("slots", 1, |_| true);
        first.wait(None);
        first.set_target(Some(0));
        first.record_refusal();
        let second = queues.join("slots", 1, |_| true);
        queues.notify_released("slots", 1, None);
        // The release is handed over to the next one.
        drop(first);
        let waiting = Waiting::new(Wait::AtMost(Duration::from_secs(20)), "a slot".to_owned());
        let mut attempts = 0;
        let outcome = repeat(
            &waiting.expect("a valid limit"),
            second,
            AtTheEnd::GiveUp,
            (),
            |()| Err(no_connection()),
            |(), _| {
                attempts += 1;
                if attempts < 3 {
                    Err(no_connection())
                } else {
                    Ok(Some(attempts))
                }
            },
        );
        assert_eq!(outcome.expect("a connection at last"), 3);
    }

    #[test]
    fn first_attempt_without_a_connection_fails() {
        let queues: Queues<&str, u8> = Queues::new();
        let ticket = queues.join("slots", 1, |_| true);
        let waiting = Waiting::new(Wait::Forever, "a slot".to_owned()).expect("no limit");
        let outcome: Result<(), _> = repeat(
            &waiting,
            ticket,
            AtTheEnd::GiveUp,
            (),
            |()| panic!("it has not queried"),
            |(), _| Err(no_connection()),
        );
        assert!(matches!(outcome, Err(Error::Pool(_))));
    }
}
