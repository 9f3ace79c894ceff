//! Waits without a connection, and while the database is out of reach.

use std::thread;

use diesel::SqliteConnection;
use diesel::r2d2::{ConnectionManager, Pool};

use diesel_async::pooled_connection::PoolError;

use super::*;
use crate::error::{AsyncPoolError, PoolStep};
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

/// Each attempt fails at once. Counts them.
struct Failing<'a, F> {
    attempts: &'a mut u32,
    error: F,
}

impl<F: Fn() -> AsyncPoolError + Send> RepeatedAttempt for Failing<'_, F> {
    type Timer = ThreadTimer;
    type Target = u8;
    type Value = ();

    async fn target(&mut self) -> Result<Option<u8>, Error> {
        *self.attempts += 1;
        Err((self.error)().into())
    }

    async fn run(&mut self, _: Attempt) -> Result<Answer<()>, Error> {
        *self.attempts += 1;
        Err((self.error)().into())
    }
}

fn refused<'a>(queues: &'a Queues<&'static str, u8>) -> Ticket<'a, &'static str, u8> {
    let mut ticket = queues.join("slots", 1, |_| true);
    poll_once(ticket.turn::<ThreadTimer>(None));
    ticket.set_target(Some(0));
    ticket.record_refusal();
    ticket
}

/// Returns the error of the wait, and the number of its attempts.
fn fails(
    ticket: Ticket<'_, &'static str, u8>,
    limit: Duration,
    error: impl Fn() -> AsyncPoolError + Send,
) -> (Error, u32) {
    let mut attempts = 0;
    let waiting = Waiting::new(Wait::AtMost(limit), "a slot".to_owned());
    let failing = Failing {
        attempts: &mut attempts,
        error,
    };
    let outcome = poll_once(repeat(
        &waiting.expect("a valid limit"),
        ticket,
        AtTheEnd::GiveUp,
        failing,
    ));
    (outcome.expect_err("it always fails"), attempts)
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
        let queues = Queues::new();
        let limit = Duration::from_millis(1500);
        let started = Instant::now();
        let (error, attempts) = fails(refused(&queues), limit, error);
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
    let queues = Queues::new();
    let tickets = [refused(&queues), queues.join("slots", 1, |_| true)];
    queues.notify_released("slots", 1, None);
    let attempts: u32 = thread::scope(|scope| {
        let waiters = tickets.map(|mut ticket| {
            ticket.set_target(Some(0));
            scope.spawn(|| fails(ticket, Duration::from_millis(300), in_use))
        });
        let outcomes = waiters.map(|waiter| waiter.join().expect("no panic"));
        outcomes.map(|(_, attempts)| attempts).into_iter().sum()
    });
    // A poll of each, and pauses of 5, 10, 20, 40 and 50 ms at least.
    assert!((2..=20).contains(&attempts), "{attempts}");
}

#[test]
fn pauses_grow_while_no_target_can_be_identified() {
    let queues = Queues::new();
    let _first = refused(&queues);
    let second = queues.join("slots", 1, |_| true);
    let limit = Duration::from_millis(1500);
    let out_of_reach = || PoolError::QueryError(diesel::result::Error::NotFound).into();
    let (error, attempts) = fails(second, limit, out_of_reach);
    assert!(matches!(error, Error::LockTimeout { .. }), "{error:?}");
    assert!((1..=5).contains(&attempts), "{attempts}");
}

#[test]
fn waiter_of_a_closed_pool_has_the_next_one_ask_at_once() {
    let queues = Queues::new();
    let first = refused(&queues);
    let mut second = queues.join("slots", 1, |_| true);
    second.set_target(Some(0));
    let limit = Duration::from_secs(20);
    let (error, attempts) = fails(first, limit, || AsyncPoolError::Closed);
    let closed = matches!(error, Error::AsyncPool(AsyncPoolError::Closed));
    assert!(closed && attempts == 1, "{error:?}, {attempts}");
    let turn = poll_once(second.turn::<ThreadTimer>(Some(Instant::now())));
    let notified = Some(Released(None));
    assert_eq!(turn, Turn::Query { notified });
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
