//! Queries that do not reach the database.

use std::time::{Duration, Instant};

use super::super::waiters::MAX_UNREACHED_PAUSE;
use super::super::{Released, Turn};
use super::{LIMIT, Test, Wait, notify_first, queued_behind, queues, refused};

const NOTIFIED: Turn = Turn::Query {
    notified: Some(Released(None)),
};
const NOT_NOTIFIED: Turn = Turn::Query { notified: None };

/// The time until the queue queries again.
fn pause(queues: &Test) -> Option<Duration> {
    let retry_at = queues.lock().names["slots"].by_target[0].retry_at;
    retry_at.map(|time| time.saturating_duration_since(Instant::now()))
}

#[test]
fn pauses_of_the_queue_grow_until_a_query_reaches_the_database() {
    let queues = queues();
    let mut first = refused(queues, 0);
    let mut second = queued_behind(queues);
    assert_eq!(pause(queues), None);
    let mut longest = Duration::from_millis(100);
    for unreached in 0..10 {
        // Whichever waiter queries.
        let ticket = if unreached % 2 == 0 {
            &mut first
        } else {
            &mut second
        };
        ticket.record_unreached();
        let pause = pause(queues).expect("a pause");
        let tolerance = Duration::from_millis(20);
        assert!(
            pause + tolerance >= longest / 2 && pause <= longest,
            "{pause:?}"
        );
        longest = (longest * 2).min(MAX_UNREACHED_PAUSE);
    }
    second.record_refusal();
    assert_eq!(pause(queues), None);
}

#[test]
fn limit_stop_and_release_end_the_pause() {
    let queues = queues();
    let mut first = refused(queues, 0);
    for _ in 0..10 {
        first.record_unreached();
    }
    let started = Instant::now();
    assert_eq!(first.wait(Some(started)), NOT_NOTIFIED, "its limit");
    first.record_unreached();
    assert_eq!(first.wait_unless(|| true), NOT_NOTIFIED, "a stop");
    first.record_unreached();
    queues.notify_released("slots", 1, None);
    assert_eq!(first.wait(None), NOTIFIED);
    assert!(started.elapsed() < MAX_UNREACHED_PAUSE / 2, "no pause");
}

#[test]
fn release_is_not_handed_to_and_fro_by_waiters_that_do_not_reach_the_database() {
    let queues = queues();
    let mut first = refused(queues, 0);
    let mut second = queued_behind(queues);
    notify_first(queues);
    assert_eq!(first.wait(None), NOTIFIED);
    first.record_unreached();
    assert_eq!(second.wait(Some(Instant::now())), NOT_NOTIFIED);
    second.record_unreached();
    assert_eq!(first.wait(Some(Instant::now())), NOT_NOTIFIED);
}

/// It may have another pool, or a connection.
#[test]
fn waiter_that_may_reach_the_database_queries_before_those_that_did_not() {
    let queues = queues();
    let mut first = refused(queues, 0);
    let mut second = queued_behind(queues);
    first.record_unreached();
    let started = Instant::now();
    assert_eq!(second.wait(Some(started + LIMIT)), NOT_NOTIFIED);
    assert!(started.elapsed() < LIMIT, "it had no turn");
    second.record_refusal();
    notify_first(queues);
    assert_eq!(first.wait(None), NOTIFIED, "first come, first served");
}

#[test]
fn targets_are_not_identified_again_in_the_pause() {
    let queues = queues();
    let mut first = refused(queues, 0);
    let mut second = queues.join("slots", 1, |_| true);
    second.identify_at = Some(Instant::now());
    for _ in 0..10 {
        first.record_unreached();
    }
    assert_eq!(second.wait(None), Turn::Identify, "it may be another one");
    second.record_unreached();
    let limit = Instant::now() + MAX_UNREACHED_PAUSE / 10;
    assert_eq!(second.wait(Some(limit)), NOT_NOTIFIED);
    second.record_refusal();
    assert_eq!(second.wait(None), Turn::Identify);
}

#[test]
fn waiter_outside_the_queues_pauses_longer_each_time() {
    let queues = queues();
    let mut ticket = queues.independent("slots");
    for _ in 0..10 {
        ticket.record_unreached();
    }
    assert!(ticket.next_pause >= Some(MAX_UNREACHED_PAUSE / 2));
    ticket.record_refusal();
    ticket.set_pause(None);
    ticket.record_unreached();
    assert!(ticket.next_pause <= Some(Duration::from_millis(100)));
}

/// The wait has ended with an error that all will have.
#[test]
fn waiter_has_the_next_one_query_when_it_leaves() {
    let queues = queues();
    let mut first = refused(queues, 0);
    let mut second = queued_behind(queues);
    assert_eq!(first.wait(None), NOT_NOTIFIED);
    first.notify_next();
    drop(first);
    assert_eq!(second.wait(None), NOTIFIED);
}
