//! A wait: for what, how long, until which stop; and its attempts, in turn with other waiters of the process.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

#[cfg(feature = "testing")]
use crate::acts::failures::is_chosen_timeout;
use crate::acts::metrics::{Counted, QUEUED};
use crate::queue::{Place, Released};
use crate::rt::stop_token::StopToken;
use crate::rt::{self, LATEST_ANSWER};
use crate::{Error, Wait};

/// How long an attempt waits for the answer of a server at least, so that what is free is acquired with any time limit.
#[cfg(feature = "_pool")]
const SHORTEST_ANSWER: Duration = Duration::from_millis(500);

/// Waits for the answers of a server to an attempt that waits in the database. Returns `None` if after the limit none comes for
/// the time `silence`; `attempt` is then to be dropped. A request for many objects may get answers for longer. A thread waits on,
/// and so does every one whose database is in this process.
pub(crate) async fn answer_in_time<T: Send>(
    in_process: bool,
    wait: Wait,
    started: Instant,
    silence: Duration,
    attempt: impl Future<Output = T> + Send,
) -> Option<T> {
    match wait {
        Wait::AtMost(limit) if !in_process => {
            let limit = limit.saturating_sub(started.elapsed());
            rt::answers_within(limit, silence, attempt).await
        }
        _ => Some(attempt.await),
    }
}

/// `None` in place of the refusal of a request that does not wait.
pub(crate) fn unless_refused<T>(outcome: Result<T, Error>) -> Result<Option<T>, Error> {
    match outcome {
        Err(Error::Unavailable { .. }) => Ok(None),
        outcome => outcome.map(Some),
    }
}

#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) wait: Wait,
    resource: String,
    started: Instant,
    /// Only a wait on a pool can be stopped.
    stop: Option<StopToken>,
}

impl Waiting {
    pub(crate) fn new(wait: Wait, resource: String) -> Result<Self, Error> {
        wait.validate()?;
        Ok(Self {
            wait,
            resource,
            started: Instant::now(),
            stop: None,
        })
    }

    #[cfg(feature = "_pool")]
    pub(crate) fn stopped_by(self, stop: Option<&StopToken>) -> Self {
        Self {
            stop: stop.cloned(),
            ..self
        }
    }

    pub(crate) fn stop(&self) -> Option<&StopToken> {
        self.stop.as_ref()
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn deadline(&self) -> Option<Instant> {
        self.wait.limit().map(|limit| self.started + limit)
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.wait, Wait::AtMost(limit) if self.elapsed() >= limit)
    }

    /// Makes an attempt with a connection of the caller, which is lost if the server does not answer in time.
    pub(crate) async fn answer_or_time_out<T: Send>(
        &self,
        in_process: bool,
        attempt: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        let (wait, started) = (self.wait, self.started);
        let answer = answer_in_time(in_process, wait, started, LATEST_ANSWER, attempt).await;
        answer.unwrap_or_else(|| Err(self.timed_out(None)))
    }

    /// Makes an attempt. Returns `None` if a server does not answer until the limit of the wait, and for
    /// [`SHORTEST_ANSWER`] at least. A thread waits on.
    #[cfg(feature = "_pool")]
    pub(crate) async fn answer<T: Send>(
        &self,
        in_process: bool,
        attempt: impl Future<Output = T> + Send,
    ) -> Option<T> {
        let limit = match self.wait {
            Wait::AtMost(limit) if !in_process => limit,
            _ => return Some(attempt.await),
        };
        let limit = limit.saturating_sub(self.elapsed()).max(SHORTEST_ANSWER);
        let answer = rt::answer_within(limit, attempt).await;
        if answer.is_none() {
            tracing::warn!(resource = self.resource, ?limit, "no answer to an attempt");
        }
        answer
    }

    pub(crate) fn check_stop(&self) -> Result<(), Error> {
        if self.stop.as_ref().is_some_and(StopToken::is_stopped) {
            return Err(self.stopped_error());
        }
        Ok(())
    }

    pub(crate) fn stopped_error(&self) -> Error {
        #[cfg(feature = "_pool")]
        return Error::Stopped {
            resource: self.resource.clone(),
            waited: self.elapsed(),
        };
        #[cfg(not(feature = "_pool"))]
        unreachable!("only a wait on a pool is stopped: {self:?}");
    }

    /// Whether the wait continues after an attempt that failed with this error: true for a time-out. An attempt times out on
    /// SQLite while another connection writes, and on MariaDB while a backup prevents COMMIT; never on PostgreSQL.
    pub(crate) fn outlasts(&self, error: &Error) -> bool {
        #[cfg(feature = "testing")]
        if is_chosen_timeout(error) {
            return false;
        }
        self.wait != Wait::No && matches!(error, Error::LockTimeout { .. })
    }

    pub(crate) fn timed_out(&self, cause: Option<Error>) -> Error {
        let source = match cause {
            Some(Error::LockTimeout { source, .. }) => source,
            cause => cause.map(Into::into),
        };
        let resource = self.resource.clone();
        self.wait.timed_out(self.started, resource, source)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) is_first: bool,
    pub(crate) released: Option<Released>,
}

/// What an attempt was granted, or the pause until the next one, if it does not follow from the number of refusals.
pub(crate) type Answer<T> = ControlFlow<T, Option<Duration>>;

/// The attempts of a wait. [`next`](Self::next) waits for the turn of an attempt; the caller makes it and passes its outcome to
/// [`after`](Self::after).
pub(crate) struct Attempts<'a> {
    waiting: &'a Waiting,
    pub(crate) place: Place,
    /// Whether the waiter borrows a connection for each attempt. When its time is up, such a waiter makes a last attempt only
    /// if it was notified of a release, has not waited before, has a limit of zero, or no attempt of its queue was refused
    /// since it came.
    borrows: bool,
    /// Whether others may be granted the same beside it.
    pub(crate) shares: bool,
    made: u32,
    /// Whether it has waited. Then it may go on without a connection, until its own limit.
    pub(crate) has_begun: bool,
    cause: Option<Error>,
    /// For the metrics.
    semaphore: Option<&'a str>,
    queued: Option<Counted>,
}

impl<'a> Attempts<'a> {
    /// The attempts to acquire a slot of this semaphore, or object locks.
    pub(crate) fn connected(
        waiting: &'a Waiting,
        place: Place,
        semaphore: Option<&'a str>,
    ) -> Self {
        Self {
            semaphore,
            queued: None,
            waiting,
            place,
            borrows: false,
            shares: false,
            made: 0,
            has_begun: false,
            cause: None,
        }
    }

    #[cfg(feature = "_pool")]
    pub(crate) fn borrowing(
        waiting: &'a Waiting,
        mut place: Place,
        semaphore: Option<&'a str>,
    ) -> Self {
        let limit = waiting.wait.limit();
        place.ask_by(limit.map(|limit| waiting.started + limit / 2));
        Self {
            borrows: true,
            ..Self::connected(waiting, place, semaphore)
        }
    }

    /// Waits for the turn of the next attempt. Fails when the wait is stopped, and, without a connection, when its time is up.
    pub(crate) async fn next(&mut self) -> Result<Attempt, Error> {
        let waiting = self.waiting;
        if !self.place.may_query_at_once() {
            let queued = || Counted::new(QUEUED, self.semaphore);
            self.queued.get_or_insert_with(queued);
        }
        let released = self.place.turn(waiting.deadline(), waiting.stop()).await;
        waiting.check_stop()?;
        if self.borrows
            && (released.is_none() && !self.place.may_query_at_once())
            && waiting.wait != Wait::AtMost(Duration::ZERO)
            && waiting.is_over()
            && self.place.is_answered()
        {
            return Err(waiting.timed_out(self.cause.take()));
        }
        Ok(Attempt {
            is_first: self.made == 0,
            released,
        })
    }

    /// Returns what an attempt was granted, or `None` if the wait continues. Fails if it ends.
    pub(crate) fn after<T>(
        &mut self,
        answer: Result<Answer<T>, Error>,
    ) -> Result<Option<T>, Error> {
        match answer {
            Ok(ControlFlow::Break(granted)) => {
                self.place.granted(self.shares);
                return Ok(Some(granted));
            }
            Ok(ControlFlow::Continue(pause)) => {
                self.cause = None;
                self.place.refused(pause);
                self.go_on()?;
            }
            Err(error) => self.failed(error)?,
        }
        Ok(None)
    }

    /// Decides after a failed attempt: returns its error if the wait ends, and `Ok` if it continues.
    pub(crate) fn failed(&mut self, error: Error) -> Result<(), Error> {
        let waiting = self.waiting;
        let resource = &waiting.resource;
        if error.has_no_connection_yet() && (self.has_begun || !self.place.may_query_at_once()) {
            tracing::warn!(resource, %error, "wait continues: no connection for an attempt");
            let is_out_of_reach = error.is_out_of_reach();
            self.cause = Some(error);
            self.go_on()?;
            if is_out_of_reach {
                self.place.did_not_reach();
            } else {
                self.place.had_no_connection();
            }
            return Ok(());
        }
        if self.waiting.outlasts(&error) {
            let text = error.to_string();
            self.cause = Some(error);
            self.go_on()?;
            tracing::warn!(
                resource,
                error = text,
                "wait continues: the database lets this connection not write yet"
            );
            self.place.refused(None);
            return Ok(());
        }
        if error.is_pool() && !error.has_no_connection_yet() {
            // The pool lends no connections any more: each of the waiters gets its error at once.
            self.place.call_next();
        }
        #[cfg(feature = "testing")]
        if is_chosen_timeout(&error) {
            return Err(waiting.timed_out(Some(error)));
        }
        Err(error)
    }

    /// Fails if the wait is stopped, or does not go on after the first attempt.
    fn go_on(&mut self) -> Result<(), Error> {
        let waiting = self.waiting;
        waiting.check_stop()?;
        if waiting.wait == Wait::No {
            let resource = waiting.resource.clone();
            return Err(Error::Unavailable { resource });
        }
        if waiting.is_over() {
            return Err(waiting.timed_out(self.cause.take()));
        }
        self.made = self.made.saturating_add(1);
        self.has_begun = true;
        Ok(())
    }
}

/// Waits without a connection, and while the database is out of reach.
#[cfg(all(test, feature = "_async_pool"))]
mod tests {
    use std::thread;

    use diesel_async::pooled_connection::PoolError;

    use super::*;
    use crate::error::{AsyncPoolError, PoolStep};
    use crate::queue::Queues;
    use crate::queue::tests::{NAME, SERIAL, join, refused};
    use crate::rt::block_on;

    /// Makes attempts that fail so, until the wait ends. Returns its error, and their number.
    fn fails(place: Place, limit: Duration, error: impl Fn() -> AsyncPoolError) -> (Error, u32) {
        let waiting =
            Waiting::new(Wait::AtMost(limit), "a slot".to_owned()).expect("a valid limit");
        let mut attempts = Attempts::borrowing(&waiting, place, None);
        let mut made = 0;
        loop {
            if let Err(error) = block_on(attempts.next()) {
                return (error, made);
            }
            made += 1;
            if let Err(error) = attempts.failed(error().into()) {
                return (error, made);
            }
        }
    }

    #[test]
    fn pauses_grow_while_the_database_is_out_of_reach() {
        let out_of_reach: [fn() -> AsyncPoolError; 3] = [
            || PoolError::QueryError(diesel::result::Error::NotFound).into(),
            || AsyncPoolError::Hook("no answer".into()),
            || AsyncPoolError::TimedOut {
                waited: None,
                step: Some(PoolStep::Connect),
            },
        ];
        for error in out_of_reach {
            let queues = Queues::new(false);
            let limit = Duration::from_millis(1500);
            let started = Instant::now();
            let (error, attempts) = fails(refused(&queues, SERIAL), limit, error);
            assert!(matches!(error, Error::LockTimeout { .. }), "{error:?}");
            assert!(started.elapsed() >= limit);
            // After pauses of 10, 50, 100, 200, 400 and 800 ms at least.
            assert!((1..=5).contains(&attempts), "{attempts}");
        }
    }

    /// deadpool without a wait, while the application uses all connections.
    #[test]
    fn attempts_pause_while_the_pool_refuses_at_once() {
        let in_use = || AsyncPoolError::TimedOut {
            waited: None,
            step: Some(PoolStep::Queue),
        };
        let queues = Queues::new(false);
        let places = [refused(&queues, SERIAL), join(&queues, SERIAL)];
        queues.notify_released(NAME, 1, None);
        let attempts: u32 = thread::scope(|scope| {
            let limit = Duration::from_millis(300);
            let waiters = places.map(|place| scope.spawn(move || fails(place, limit, in_use)));
            let outcomes = waiters.map(|waiter| waiter.join().expect("no panic"));
            outcomes.map(|(_, attempts)| attempts).into_iter().sum()
        });
        // A poll of each, and pauses of 5, 10, 20, 40 and 50 ms at least.
        assert!((2..=20).contains(&attempts), "{attempts}");
    }

    #[test]
    fn waiter_of_a_closed_pool_has_the_next_one_ask_at_once() {
        let queues = Queues::new(false);
        let first = refused(&queues, SERIAL);
        let mut second = join(&queues, SERIAL);
        let limit = Duration::from_secs(20);
        let (error, attempts) = fails(first, limit, || AsyncPoolError::Closed);
        let closed = matches!(error, Error::AsyncPool(AsyncPoolError::Closed));
        assert!(closed && attempts == 1, "{error:?}, {attempts}");
        let turn = block_on(second.turn(Some(Instant::now()), None));
        assert_eq!(turn, Some(Released(None)));
    }
}
