//! When the first waiter polls.

#[cfg(feature = "_pool")]
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::super::Turn;
use super::super::waiter::Waiter;
#[cfg(feature = "_pool")]
use super::super::{Queues, Released};
#[cfg(feature = "_pool")]
use super::{LIMIT, Test};
use super::{Wait, next_turn, queued_behind, queues, refused, until, wait_on_thread};

#[cfg(feature = "_pool")]
#[test]
fn next_waiter_of_an_exclusive_queue_does_not_poll_while_a_query_runs() {
    let queues: &'static Test = Box::leak(Box::new(Queues::exclusive()));
    let mut first = refused(queues, 1);
    let mut second = queues.join("slots", 1, |_| true);
    second.set_target(Some(1));
    // Its query runs until the end of the test.
    assert_eq!(first.wait(None), Turn::Query { notified: None });
    let started = Instant::now();
    let limit = Duration::from_millis(300);
    second.wait(Some(started + limit));
    assert!(started.elapsed() >= limit);
    second.record_refusal();
    // A release while the query runs goes to the next one.
    queues.notify_released("slots", 1, None);
    let notified = second.wait(Some(started + LIMIT));
    assert_eq!(
        notified,
        Turn::Query {
            notified: Some(Released(None))
        }
    );
}

#[cfg(feature = "_pool")]
#[test]
fn waiter_of_an_exclusive_queue_that_succeeds_by_a_release_lets_nobody_query() {
    let queues: &'static Test = Box::leak(Box::new(Queues::exclusive()));
    let mut first = refused(queues, 1);
    assert_eq!(first.wait(None), Turn::Query { notified: None });
    // A release while it queries, which is granted to it. Then another one joins.
    queues.notify_released("slots", 1, None);
    let mut second = queues.join("slots", 1, |_| true);
    second.set_pause(Some(LIMIT));
    let mut second = second.polling_within(LIMIT);
    first.finish();
    let turn = second.wait(Some(Instant::now()));
    assert_eq!(turn, Turn::Query { notified: None });
}

#[cfg(feature = "_pool")]
#[test]
fn next_waiter_without_a_connection_does_not_poll_while_a_first_query_runs() {
    let queues = queues();
    let mut first = queues.join("slots", 1, |_| true).serial();
    assert_eq!(first.wait(None), Turn::Query { notified: None });
    let mut second = queues.join("slots", 1, |_| true).serial();
    second.identify_at = None;
    let started = Instant::now();
    let limit = Duration::from_millis(300);
    second.wait(Some(started + limit));
    assert!(started.elapsed() >= limit);
    second.record_refusal();
    // It has its turn when the first query ends.
    drop(first);
    assert!(matches!(
        second.wait(Some(started + LIMIT)),
        Turn::Query { notified: Some(_) }
    ));
}

#[cfg(feature = "_pool")]
#[test]
fn waiters_of_an_exclusive_queue_do_not_query_beside_a_long_first_query() {
    let queues: &'static Test = Box::leak(Box::new(Queues::exclusive()));
    let mut first = queues.join_target("slots", 0, 1);
    assert_eq!(first.wait(None), Turn::Query { notified: None });
    let mut second = queues.join_target("slots", 0, 1);
    let started = Instant::now();
    let limit = Duration::from_millis(300);
    assert_eq!(
        second.wait(Some(started + limit)),
        Turn::Query { notified: None }
    );
    assert!(started.elapsed() >= limit, "it had no other turn");
}

#[cfg(feature = "_pool")]
#[test]
fn short_queries_of_others_do_not_restart_a_pause() {
    let queues = queues();
    let (sender, turns) = channel();
    let mut first = refused(queues, 0).serial();
    first.set_pause(Some(Duration::from_millis(300)));
    wait_on_thread(first, 1, &sender);
    let started = Instant::now();
    // Each comes, identifies its target, and leaves, more often than the first one polls.
    let polled = || turns.try_recv().is_ok();
    while !polled() {
        assert!(started.elapsed() < LIMIT, "it never polls");
        let mut other = queues.join("slots", 1, |_| true);
        other.identify_at = Some(Instant::now());
        while other.wait(None) != Turn::Identify {}
        other.set_target(Some(0));
    }
}

#[cfg(feature = "_pool")]
#[test]
fn waiter_outside_the_queues_is_stopped() {
    let queues = queues();
    let mut ticket = queues.independent("slots");
    ticket.record_refusal();
    let asked = AtomicUsize::new(0);
    let turn = ticket.wait_unless(|| {
        asked.fetch_add(1, Ordering::SeqCst);
        true
    });
    assert_eq!(turn, Turn::Query { notified: None });
    assert_eq!(asked.into_inner(), 1, "asked before the pause");
}

#[test]
fn waiters_do_not_query_after_a_refused_first_query() {
    let queues = queues();
    let mut first = queues.join("slots", 1, |_| true);
    assert_eq!(first.wait(None), Turn::Query { notified: None });
    let mut second = queues.join("slots", 1, |_| true);
    second.identify_at = None;
    first.set_target(Some(0));
    first.record_refusal();
    let started = Instant::now();
    let limit = Duration::from_millis(100);
    assert_eq!(
        second.wait(Some(started + limit)),
        Turn::Query { notified: None }
    );
    assert!(started.elapsed() >= limit, "the first one polls for both");
}

/// One waits for a long time, and another one that comes later not.
#[test]
fn queue_polls_at_the_shortest_interval_of_its_waiters() {
    const HOUR: Duration = Duration::from_secs(3600);
    let queues = queues();
    let (sender, turns) = channel();
    let mut patient = refused(queues, 0).polling_within(HOUR);
    patient.set_pause(Some(HOUR));
    wait_on_thread(patient, 1, &sender);
    let sleeps = || {
        let all = queues.lock();
        let mut waiters = all.names["slots"].by_target[0].waiters.values();
        waiters.all(Waiter::is_parked)
    };
    until(sleeps);
    wait_on_thread(queued_behind(queues), 2, &sender);
    let (turn, _patient) = next_turn(&turns);
    assert_eq!(turn, 1, "it polls for both");
}
