//! Whose turn it is, also of waiters for different targets with one name, and of those that do not know theirs yet.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;

use super::*;
use crate::queue::line::RELEASES_PER_YIELD;

#[test]
fn first_come_first_served() {
    let queues = queues();
    // In the queue, it alone polls.
    let first = refused(&queues, PATIENT);
    let places: Vec<_> = (0..8).map(|_| join(&queues, PATIENT)).collect();
    assert_eq!(in_line(&queues, |line| line.waiters.len()), 9);
    drop(first);
    for mut place in places {
        release(&queues);
        assert_eq!(place.wait(None), RELEASED);
        assert_eq!(awake(&queues), 1, "one queries");
        place.granted(false);
        // It was notified of a release, so it notifies nobody else.
    }
    assert_empty(&queues);
}

#[test]
fn waiters_that_share_enter_together() {
    let queues = Queues::new(true);
    let mut first = refused(&queues, PATIENT);
    let mut second = join(&queues, PATIENT);
    let mut third = join(&queues, PATIENT);
    release(&queues);
    for place in [&mut first, &mut second] {
        assert_eq!(place.wait(None), RELEASED);
        place.granted(true);
    }
    // It does not share what it is granted.
    assert_eq!(third.wait(None), RELEASED);
    let fourth = join(&queues, PATIENT);
    third.granted(false);
    assert_eq!(awake(&queues), 0);
    drop(fourth);
    assert_empty(&queues);
}

#[test]
fn newcomer_queries_at_once_where_all_others_query() {
    let queues = queues();
    let mut places: Vec<_> = (0..4)
        .map(|_| {
            let mut place = queues.place(NAME);
            place.join("", 3, PATIENT);
            place
        })
        .collect();
    let at_once: Vec<bool> = places.iter().map(Place::may_query_at_once).collect();
    assert_eq!(at_once, [true, true, true, false], "three may");
    places.remove(0).granted(false);
    let mut last = places.pop().expect("the last one");
    assert_eq!(last.wait(None), RELEASED, "more may be free");
}

#[test]
fn release_that_another_one_was_told_of_calls_no_second_one() {
    let queues = queues();
    let mut first = refused(&queues, PATIENT);
    let mut second = join(&queues, PATIENT);
    assert_eq!(first.wait(Some(Instant::now())), None);
    queues.notify_released(NAME, 1, None);
    first.refused(None);
    assert_eq!(first.wait(Some(Instant::now())), None);
    assert_eq!(second.wait(None), RELEASED);
}

#[test]
fn releases_are_yielded_when_each_waiter_is_served_at_once() {
    let queues = queues();
    let told: Vec<bool> = (0..RELEASES_PER_YIELD)
        .map(|_| {
            // The queue is empty, and removed, between two of them.
            let mut only = refused(&queues, PATIENT);
            queues.notify_released(NAME, 1, None);
            let told = in_line(&queues, |line| line.yield_until.is_none());
            assert_eq!(only.wait(None), RELEASED);
            only.granted(false);
            assert_empty(&queues);
            told
        })
        .collect();
    assert_eq!(told, [true, true, false]);
}

#[test]
fn release_is_handed_over_by_a_waiter_without_a_connection() {
    let queues = queues();
    let mut first = refused(&queues, PATIENT);
    let mut second = join(&queues, PATIENT);
    queues.notify_released(NAME, 1, None);
    assert_eq!(first.wait(None), RELEASED);
    first.had_no_connection();
    assert_eq!(second.wait(None), RELEASED);
    // Alone it queries once more, after a pause: what was released is still free.
    drop(first);
    second.had_no_connection();
    assert_eq!(second.wait(Some(Instant::now())), None);
    second.had_no_connection();
    assert_eq!(second.wait(None), RELEASED);
}

#[test]
fn release_is_handed_over_at_once_to_a_waiter_with_a_connection() {
    let queues = queues();
    let mut first = refused(&queues, PATIENT);
    let mut others: Vec<_> = (0..20).map(|_| join(&queues, PATIENT)).collect();
    let mut last = join(&queues, CONNECTED);
    queues.notify_released(NAME, 1, None);
    assert_eq!(first.wait(None), RELEASED);
    first.had_no_connection();
    assert_eq!(last.wait(None), RELEASED);
    last.granted(false);
    // A query has reached the database: one more looks whether there is more.
    assert_eq!(first.wait(None), RELEASED);
    first.refused(Some(HOUR));
    assert_eq!(others[0].wait(Some(Instant::now())), None);
}

/// What a waiter could not use is used by those that get a connection.
#[test]
fn each_release_without_a_connection_reaches_a_waiter() {
    let queues = queues();
    let mut places = vec![refused(&queues, PATIENT)];
    places.extend((0..2).map(|_| join(&queues, PATIENT)));
    queues.notify_released(NAME, 2, None);
    for place in &mut places[..2] {
        assert_eq!(place.wait(None), RELEASED);
        place.had_no_connection();
    }
    let mut last = places.pop().expect("the third waiter");
    assert_eq!(last.wait(None), RELEASED);
    last.granted(false);
    let mut first = places.remove(0);
    assert_eq!(first.wait(None), RELEASED);
    first.granted(false);
    assert_eq!(places[0].wait(Some(Instant::now())), None);
}

/// All wait for a connection when there is a release.
#[test]
fn release_that_nobody_was_told_of_is_kept_by_a_waiter_without_a_connection() {
    let queues = queues();
    let mut first = refused(&queues, PATIENT);
    let mut second = join(&queues, PATIENT);
    for place in [&mut first, &mut second] {
        assert_eq!(place.wait(Some(Instant::now())), None);
    }
    queues.notify_released(NAME, 1, None);
    first.had_no_connection();
    assert_eq!(first.wait(None), RELEASED);
}

#[test]
fn waiter_with_a_connection_uses_it_every_few_seconds() {
    let queues = queues();
    let patient = Options {
        connected: true,
        longest_pause: HOUR,
    };
    let mut first = refused(&queues, PATIENT);
    first.refused(Some(HOUR));
    let mut second = join(&queues, patient);
    let started = Instant::now();
    for _ in 0..2 {
        assert_eq!(second.wait(Some(started + LIMIT)), None);
        second.refused(Some(HOUR));
    }
    assert!(started.elapsed() < LIMIT);
}

/// The thread of the alarm may be missing: in a process that was forked.
#[test]
fn time_is_kept_by_any_waiter_that_wakes() {
    let queues = queues();
    let mut first = refused(&queues, PATIENT);
    first.refused(Some(HOUR));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            first.wait(Some(Instant::now() + LIMIT));
            is_over.store(true, Ordering::SeqCst);
        });
        until(|| asleep(&queues) == 1);
        queues.lock().names.get_mut(NAME).expect("a name").lines[0].yield_until =
            Some(Instant::now());
        let mut second = join(&queues, PATIENT);
        assert_eq!(second.wait(Some(Instant::now())), None);
    });
    assert!(is_over.into_inner());
}

fn query_first(queues: &Test, max_concurrent: usize) -> Option<Place> {
    let mut place = queues.place(NAME);
    block_on(place.query_first(max_concurrent, None)).then_some(place)
}

#[test]
fn targets_have_separate_queues() {
    let queues = queues();
    let mut first = refused(&queues, PATIENT);
    let mut second = join_target(&queues, "other", PATIENT);
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
    first.join("", 2, PATIENT);
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
    first.join("", 1, PATIENT);
    release(&queues);
    assert_eq!(first.wait(None), RELEASED);
    assert_eq!(second.wait(Some(Instant::now())), None);
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
    first.join("", 2, PATIENT);
    release(&queues);
    drop(first);
    second.refused(None);
    second.join("", 2, PATIENT);
    assert_eq!(second.wait(None), RELEASED);
}

#[test]
fn concurrent_single_queries_are_limited() {
    let queues = queues();
    let once = |limit| {
        let mut place = queues.place(NAME);
        block_on(place.query_first(1, Some(Instant::now() + limit)));
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
    drop(alone);
    assert_empty(&queues);
}

/// It neither waits behind those that wait, nor has them query when it was refused.
#[test]
fn single_query_disturbs_nobody_that_waits() {
    let queues = queues();
    let mut waiter = refused(&queues, PATIENT);
    let mut once = queues.place(NAME);
    block_on(once.query_first(1, Some(Instant::now())));
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
