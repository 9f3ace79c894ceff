//! Whose turn it is.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::mpsc::channel;

use super::*;
use crate::StopToken;
use crate::queue::fair_share::RELEASES_PER_YIELD;

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
        let awake = in_line(&queues, |line| {
            let states = line.waiters.values().map(|waiter| waiter.state);
            states.filter(|state| *state != State::Sleeping).count()
        });
        assert_eq!(awake, 1, "one queries");
        place.granted();
        // It was notified of a release, so it notifies nobody else.
    }
    assert_empty(&queues);
}

#[test]
fn newcomer_queries_at_once_where_all_others_query() {
    let queues = queues();
    let mut places: Vec<_> = (0..4)
        .map(|_| {
            let mut place = queues.place(NAME);
            place.join(0, 3, PATIENT);
            place
        })
        .collect();
    let at_once: Vec<bool> = places.iter().map(Place::may_query_at_once).collect();
    assert_eq!(at_once, [true, true, true, false], "three may");
    places.remove(0).granted();
    let mut last = places.pop().expect("the last one");
    assert_eq!(last.wait(None), RELEASED, "more may be free");
}

#[test]
fn release_during_query_is_not_missed() {
    let queues = queues();
    let mut place = join(&queues, PATIENT);
    assert_eq!(place.wait(None), None);
    queues.notify_released(NAME, 1, None);
    place.refused(None);
    assert_eq!(place.wait(None), RELEASED);
    queues.notify_released(NAME, 1, Some(7));
    place.refused(None);
    assert_eq!(place.wait(None), RELEASED);
    place.refused(Some(Duration::ZERO));
    assert_eq!(place.wait(None), None, "no release since then");
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
fn panic_during_query_calls_next_waiter() {
    let queues = queues();
    let (sender, turns) = channel();
    let mut first = refused(&queues, PATIENT);
    let second = join(&queues, PATIENT);
    queues.notify_released(NAME, 1, Some(3));
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        assert_eq!(first.wait(None), Some(Released(Some(3))));
        panic!("during the query");
    }));
    assert!(panicked.is_err());
    wait_on_thread(second, 2, &sender);
    let (two, _place) = next_turn(&turns);
    assert_eq!(two, 2);
}

#[test]
fn deadline_is_kept_behind_others() {
    let queues = queues();
    let _first = refused(&queues, PATIENT);
    let mut second = join(&queues, PATIENT);
    let end = Instant::now() + Duration::from_millis(5);
    assert_eq!(second.wait(Some(end)), None);
    assert!(Instant::now() >= end);
}

#[test]
fn stop_ends_the_wait_for_a_turn() {
    let queues = queues();
    let _first = refused(&queues, PATIENT);
    let mut alone = queues.place(NAME);
    alone.wait(None);
    alone.refused(Some(HOUR));
    let stop = StopToken::new();
    thread::scope(|scope| {
        for mut place in [join(&queues, PATIENT), join(&queues, PATIENT), alone] {
            let stop = &stop;
            scope.spawn(move || assert_eq!(block_on(place.turn(None, Some(stop))), None));
        }
        until(|| asleep(&queues) == 2);
        stop.stop();
    });
}

#[test]
fn some_releases_are_yielded() {
    let queues = queues();
    let mut first = refused(&queues, PATIENT);
    let told: Vec<bool> = (0..RELEASES_PER_YIELD)
        .map(|_| {
            queues.notify_released(NAME, 1, None);
            let told = in_line(&queues, |line| line.yield_until.is_none());
            // After the yield, it is called.
            assert_eq!(first.wait(None), RELEASED);
            first.refused(Some(HOUR));
            told
        })
        .collect();
    assert_eq!(told, [true, true, false]);
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
            only.granted();
            assert_empty(&queues);
            told
        })
        .collect();
    assert_eq!(told, [true, true, false]);
}

/// Two slots and many waiters: no slot is granted twice or lost, and all waiters finish.
#[test]
fn all_waiters_are_served() {
    const THREADS: usize = 32;
    const EACH: usize = 50;
    let queues = queues();
    let free = AtomicI64::new(2);
    let take = || {
        free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |free| {
            (free > 0).then_some(free - 1)
        })
        .is_ok()
    };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let mut place = queues.place(NAME);
                    let first = block_on(place.query_first(2));
                    if !first {
                        place.join(0, 2, CONNECTED);
                    }
                    loop {
                        place.wait(None);
                        if take() {
                            break;
                        }
                        place.refused(None);
                        if place.is_first() {
                            place.join(0, 2, CONNECTED);
                        }
                    }
                    place.granted();
                    thread::yield_now();
                    free.fetch_add(1, Ordering::SeqCst);
                    queues.notify_released(NAME, 1, None);
                }
            });
        }
    });
    assert_eq!(free.into_inner(), 2);
    assert_empty(&queues);
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
    last.granted();
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
    last.granted();
    let mut first = places.remove(0);
    assert_eq!(first.wait(None), RELEASED);
    first.granted();
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
