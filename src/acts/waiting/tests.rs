//! Waits without a connection, and while the database is out of reach.

use std::sync::Arc;
use std::thread;

use diesel_async::pooled_connection::PoolError;

use crate::acts::waiting::*;
use crate::error::{AsyncPoolError, PoolStep};
use crate::queue::{MAX_POLL_INTERVAL, Options, Queues};
use crate::rt::block_on;

fn join(queues: &Arc<Queues>) -> Place {
    let mut place = queues.place("slots");
    let options = Options {
        connected: false,
        longest_pause: MAX_POLL_INTERVAL,
    };
    place.join("", 1, options);
    place
}

/// One whose first attempt was refused.
fn refused(queues: &Arc<Queues>) -> Place {
    let mut place = join(queues);
    block_on(place.turn(None, None));
    place.refused(None);
    place
}

/// Makes attempts that fail so, until the wait ends. Returns its error, and their number.
fn fails(place: Place, limit: Duration, error: impl Fn() -> AsyncPoolError) -> (Error, u32) {
    let waiting = Waiting::new(Wait::AtMost(limit), "a slot".to_owned()).expect("a valid limit");
    let mut attempts = Attempts::borrowing(&waiting, place);
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
    let queues = Queues::new(false);
    let places = [refused(&queues), join(&queues)];
    queues.notify_released("slots", 1, None);
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
    let first = refused(&queues);
    let mut second = join(&queues);
    let limit = Duration::from_secs(20);
    let (error, attempts) = fails(first, limit, || AsyncPoolError::Closed);
    let closed = matches!(error, Error::AsyncPool(AsyncPoolError::Closed));
    assert!(closed && attempts == 1, "{error:?}, {attempts}");
    let turn = block_on(second.turn(Some(Instant::now()), None));
    assert_eq!(turn, Some(Released(None)));
}
