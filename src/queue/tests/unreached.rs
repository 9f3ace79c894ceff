//! Queries that do not reach the database.

use super::*;
use crate::StopToken;
use crate::queue::line::MAX_UNREACHED_PAUSE;

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
    fourth.join(0, 1, PATIENT);
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
