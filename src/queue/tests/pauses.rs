//! When the first waiter polls, also while queries do not reach the database.

use std::sync::mpsc::channel;

use super::*;
use crate::StopToken;
use crate::queue::line::MAX_UNREACHED_PAUSE;

const PAUSE: Duration = Duration::from_millis(300);

fn waits_until_its_deadline(place: &mut Place) -> bool {
    let end = Instant::now() + PAUSE;
    place.wait(Some(end)).is_none() && Instant::now() >= end
}

#[test]
fn next_waiter_without_a_connection_does_not_poll_while_a_query_runs() {
    // The first query, or another.
    for begin in [join, refused] {
        for exclusive in [false, true] {
            let queues = Queues::new(exclusive);
            let mut first = begin(&queues, SERIAL);
            let mut second = join(&queues, SERIAL);
            // Its query runs until the end of the test.
            assert_eq!(first.wait(None), None);
            assert!(waits_until_its_deadline(&mut second));
            second.refused(None);
            // A release while the query runs goes to the next one.
            queues.notify_released(NAME, 1, None);
            assert_eq!(second.wait(None), RELEASED);
        }
    }
}

#[test]
fn waiter_of_an_exclusive_queue_that_succeeds_lets_nobody_query() {
    let queues = Queues::new(true);
    let mut first = refused(&queues, SERIAL);
    assert_eq!(first.wait(None), None);
    // A release while it queries, which is granted to it. Then another one joins.
    queues.notify_released(NAME, 1, None);
    let mut second = join(&queues, PATIENT);
    first.granted(false);
    assert_eq!(second.wait(Some(Instant::now())), None);
}

#[test]
fn short_queries_of_others_do_not_restart_a_pause() {
    let queues = queues();
    let (sender, turns) = channel();
    let mut first = refused(&queues, SERIAL);
    assert_eq!(first.wait(None), None);
    first.refused(Some(PAUSE));
    wait_on_thread(first, 1, &sender);
    let started = Instant::now();
    // Each comes, queries at its deadline, and leaves, more often than the first one polls.
    while turns.try_recv().is_err() {
        assert!(started.elapsed() < LIMIT, "it never polls");
        let mut other = join(&queues, SERIAL);
        assert_eq!(other.wait(Some(Instant::now())), None);
    }
}

/// One waits for a long time, and another one that comes later not.
#[test]
fn queue_polls_at_the_shortest_interval_of_its_waiters() {
    let queues = queues();
    let (sender, turns) = channel();
    let mut patient = refused(&queues, PATIENT);
    assert_eq!(patient.wait(Some(Instant::now())), None);
    patient.refused(Some(HOUR));
    wait_on_thread(patient, 1, &sender);
    until(|| asleep(&queues) == 1);
    wait_on_thread(join(&queues, SERIAL), 2, &sender);
    let (turn, _patient) = next_turn(&turns);
    assert_eq!(turn, 1, "it polls for both");
    // When the other one has left, it does not.
    let queues = Queues::new(false);
    let mut patient = refused(&queues, PATIENT);
    patient.refused(Some(HOUR));
    drop(join(&queues, SERIAL));
    assert!(waits_until_its_deadline(&mut patient));
}

/// The first one is called by a release, and does not use it: it is not polled, has no answer, or leaves after its query.
#[test]
fn waiter_with_a_long_pause_has_its_turn_when_another_one_does_not_use_a_release() {
    let not_used: [fn(&mut Place); 4] = [
        |_| (),
        |first| assert_eq!(first.wait(None), RELEASED),
        |first| {
            assert_eq!(first.wait(None), RELEASED);
            first.did_not_reach();
        },
        |first| {
            assert_eq!(first.wait(None), RELEASED);
            first.refused(Some(HOUR));
            first.granted(false);
        },
    ];
    for leave in not_used {
        let queues = queues();
        let mut first = refused(&queues, PATIENT);
        let mut second = join(&queues, PATIENT);
        for place in [&mut first, &mut second] {
            assert_eq!(place.wait(Some(Instant::now())), None);
            place.refused(Some(HOUR));
        }
        release(&queues);
        leave(&mut first);
        let started = Instant::now();
        second.wait(Some(started + LIMIT));
        assert!(started.elapsed() < LIMIT, "it had no turn");
    }
}

fn pause(queues: &Test) -> Option<Duration> {
    let retry_at = in_line(queues, |line| line.retry_at);
    retry_at.map(|time| time.saturating_duration_since(Instant::now()))
}

#[test]
fn pauses_of_the_queue_grow_until_a_query_reaches_the_database() {
    let queues = queues();
    let mut first = refused(&queues, SERIAL);
    let mut second = join(&queues, SERIAL);
    assert_eq!(pause(&queues), None);
    let mut longest = Duration::from_millis(100);
    for unreached in 0..10 {
        // Whichever waiter queries.
        let place = if unreached % 2 == 0 {
            &mut first
        } else {
            &mut second
        };
        let before = Instant::now();
        place.did_not_reach();
        let pause = pause(&queues).expect("a pause");
        assert!(
            pause + before.elapsed() >= longest / 2 && pause <= longest,
            "{pause:?}"
        );
        longest = (longest * 2).min(MAX_UNREACHED_PAUSE);
    }
    // One that comes does not wait that long.
    let third = join(&queues, SERIAL);
    assert!(pause(&queues) <= Some(Duration::from_millis(100)));
    drop(third);
    second.refused(None);
    assert_eq!(pause(&queues), None);
}

#[test]
fn limit_stop_and_release_end_the_pause() {
    let have_ended_it = |_| {
        let queues = queues();
        let mut first = refused(&queues, SERIAL);
        for _ in 0..10 {
            first.did_not_reach();
        }
        let started = Instant::now();
        assert_eq!(first.wait(Some(started)), None, "its limit");
        first.did_not_reach();
        let stop = StopToken::new();
        stop.stop();
        assert_eq!(block_on(first.turn(None, Some(&stop))), None, "a stop");
        first.did_not_reach();
        queues.notify_released(NAME, 1, None);
        assert_eq!(first.wait(None), RELEASED);
        started.elapsed() < MAX_UNREACHED_PAUSE / 2
    };
    assert!((0..3).any(have_ended_it), "no pause");
}

#[test]
fn release_is_not_handed_to_and_fro_by_waiters_that_do_not_reach_the_database() {
    let queues = queues();
    let mut first = refused(&queues, SERIAL);
    let mut second = join(&queues, SERIAL);
    release(&queues);
    assert_eq!(first.wait(None), RELEASED);
    first.did_not_reach();
    assert_eq!(second.wait(Some(Instant::now())), None);
    second.did_not_reach();
    assert_eq!(first.wait(Some(Instant::now())), None);
}

/// It may have another pool, or a connection.
#[test]
fn waiter_that_may_reach_the_database_queries_before_those_that_did_not() {
    let queues = queues();
    let mut first = refused(&queues, SERIAL);
    let mut second = join(&queues, SERIAL);
    first.did_not_reach();
    let started = Instant::now();
    assert_eq!(second.wait(Some(started + LIMIT)), None);
    assert!(started.elapsed() < LIMIT, "it had no turn");
    second.refused(None);
    release(&queues);
    assert_eq!(first.wait(None), RELEASED, "first come, first served");
}

#[test]
fn waiter_in_no_queue_pauses_longer_each_time() {
    let queues = queues();
    let mut place = queues.place(NAME);
    for _ in 0..10 {
        place.wait(Some(Instant::now()));
        place.did_not_reach();
    }
    let started = Instant::now();
    place.wait(Some(started + LIMIT));
    assert!(started.elapsed() >= MAX_UNREACHED_PAUSE / 2);
    place.refused(None);
    place.did_not_reach();
    let started = Instant::now();
    place.wait(Some(started + LIMIT));
    assert!(started.elapsed() < MAX_UNREACHED_PAUSE / 2);
}

/// The first one of the queue may get no answer.
#[test]
fn waiter_with_a_limit_queries_in_time_unless_others_are_answered() {
    let queues = queues();
    let mut first = refused(&queues, PATIENT);
    assert_eq!(first.wait(Some(Instant::now())), None);
    let mut second = join(&queues, PATIENT);
    let soon = Duration::from_millis(30);
    second.ask_by(Some(Instant::now() + soon));
    let started = Instant::now();
    assert_eq!(second.wait(Some(started + LIMIT)), None);
    assert!(started.elapsed() >= soon && started.elapsed() < LIMIT);
    assert!(!second.is_answered(), "its query runs");
    second.refused(None);
    assert!(second.is_answered());
    // A query that began before it came tells nothing, nor does one that comes after a turn of its own.
    let mut third = join(&queues, PATIENT);
    let mut fourth = queues.place(NAME);
    assert_eq!(fourth.wait(None), None);
    fourth.join("", 1, PATIENT);
    first.refused(None);
    assert!(!third.is_answered());
    assert_eq!(first.wait(Some(Instant::now())), None);
    first.refused(None);
    assert!(third.is_answered());
    third.ask_by(Some(Instant::now()));
    let started = Instant::now();
    third.wait(Some(started + soon));
    assert!(started.elapsed() >= soon);
}
