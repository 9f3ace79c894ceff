//! Waiters for different targets with one name, and waiters that do not know theirs yet.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::*;

fn query_first(queues: &Test, max_concurrent: usize) -> Option<TestPlace> {
    let mut place = queues.place(NAME);
    block_on(place.query_first(max_concurrent)).then_some(place)
}

#[test]
fn targets_have_separate_queues() {
    let queues = queues();
    let mut first = refused(&queues, PATIENT);
    let mut second = join_target(&queues, 1, PATIENT);
    // It is the only one of its target.
    assert_eq!(second.wait(None), None);
    second.refused(None);
    // A release may be of either.
    queues.notify_released(NAME, 1, Some(7));
    assert_eq!(first.wait(None), Some(Released(Some(7))));
    assert_eq!(second.wait(None), Some(Released(Some(7))));
    drop((first, second));
    assert_empty(&queues);
}

#[test]
fn first_query_is_made_before_the_target_is_known_unless_others_wait() {
    let queues = queues();
    let mut first = query_first(&queues, 2).expect("nobody waits");
    assert_eq!(first.wait(None), None);
    let second = query_first(&queues, 2).expect("two may query");
    assert!(query_first(&queues, 2).is_none(), "two query");
    first.refused(None);
    first.join(0, 2, PATIENT);
    drop(second);
    assert!(query_first(&queues, 2).is_none(), "one waits");
    drop(first);
    assert_empty(&queues);
}

#[test]
fn first_query_that_is_refused_keeps_its_position() {
    let queues = queues();
    let mut first = query_first(&queues, 1).expect("nobody waits");
    first.wait(None);
    let mut second = join(&queues, PATIENT);
    first.refused(None);
    first.join(0, 1, PATIENT);
    release(&queues);
    assert_eq!(first.wait(None), RELEASED);
    assert_eq!(second.wait(Some(Instant::now())), None);
}

#[test]
fn release_during_a_first_query_is_not_missed() {
    let queues = queues();
    let mut first = query_first(&queues, 1).expect("nobody waits");
    first.wait(None);
    queues.notify_released(NAME, 1, None);
    first.refused(None);
    first.join(0, 1, PATIENT);
    assert_eq!(first.wait(None), RELEASED);
    first.refused(Some(Duration::ZERO));
    assert_eq!(first.wait(None), None, "no release since then");
}

#[test]
fn release_that_a_dropped_waiter_has_not_used_is_not_missed_by_another_first_query() {
    let queues = queues();
    let mut first = query_first(&queues, 2).expect("nobody waits");
    let mut second = query_first(&queues, 2).expect("nobody waits");
    for place in [&mut first, &mut second] {
        place.wait(None);
    }
    first.refused(None);
    first.join(0, 2, PATIENT);
    release(&queues);
    drop(first);
    second.refused(None);
    second.join(0, 2, PATIENT);
    assert_eq!(second.wait(None), RELEASED);
}

#[test]
fn concurrent_single_queries_are_limited() {
    let queues = queues();
    let once = |limit| {
        let mut place = queues.place(NAME);
        block_on(place.query_once(1, Instant::now() + limit));
        place
    };
    let first = once(Duration::ZERO);
    let started = Instant::now();
    let limit = Duration::from_millis(20);
    let second = once(limit);
    assert!(started.elapsed() >= limit, "it waits for the first one");
    drop(first);
    let started = Instant::now();
    let third = once(LIMIT);
    assert!(started.elapsed() < LIMIT);
    drop((second, third));
    assert_empty(&queues);
}

#[test]
fn newcomer_that_may_not_query_calls_nobody() {
    let queues = queues();
    let mut first = refused(&queues, PATIENT);
    assert!(query_first(&queues, 1).is_none());
    assert_eq!(first.wait(Some(Instant::now())), None);
}

#[test]
fn waiter_without_a_target_pauses_and_leaves_the_first_queries() {
    let queues = queues();
    let mut alone = query_first(&queues, 1).expect("nobody waits");
    assert_eq!(alone.wait(None), None);
    alone.refused(Some(Duration::from_millis(50)));
    let started = Instant::now();
    assert_eq!(alone.wait(None), None, "before it leaves them, too");
    assert!(started.elapsed() >= Duration::from_millis(50));
    alone.stay_alone();
    assert!(query_first(&queues, 1).is_some(), "another one may");
    alone.refused(Some(Duration::from_millis(50)));
    let started = Instant::now();
    assert_eq!(alone.wait(None), None);
    assert!(started.elapsed() >= Duration::from_millis(50));
}

/// It neither waits behind those that wait, nor has them query when it was refused.
#[test]
fn single_query_disturbs_nobody_that_waits() {
    let queues = queues();
    let mut waiter = refused(&queues, PATIENT);
    let mut once = queues.place(NAME);
    block_on(once.query_once(1, Instant::now()));
    assert_eq!(once.wait(None), None);
    drop(once);
    assert_eq!(waiter.wait(Some(Instant::now())), None);
    waiter.refused(Some(HOUR));
    queues.notify_released(NAME, 1, None);
    assert_eq!(waiter.wait(None), RELEASED);
}

#[test]
fn query_without_response_does_not_block_others() {
    let queues = queues();
    let (sender, turns) = channel();
    let mut first = refused(&queues, CONNECTED);
    wait_on_thread(join(&queues, CONNECTED), 1, &sender);
    wait_on_thread(join(&queues, CONNECTED), 2, &sender);
    // Its query does not return, nor does that of the next.
    assert_eq!(first.wait(None), None);
    // The thread of the second may go on later than that of the third.
    let (one, second) = next_turn(&turns);
    let (other, third) = next_turn(&turns);
    assert_eq!(one + other, 3);
    drop((first, second, third));
    assert_empty(&queues);
}
