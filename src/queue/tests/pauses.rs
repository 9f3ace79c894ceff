//! When the first waiter polls.

use std::sync::mpsc::channel;

use super::*;

const PAUSE: Duration = Duration::from_millis(300);

fn waits_until_its_deadline(place: &mut TestPlace) -> bool {
    let end = Instant::now() + PAUSE;
    place.wait(Some(end)).is_none() && Instant::now() >= end
}

#[test]
fn next_waiter_without_a_connection_does_not_poll_while_a_query_runs() {
    for queues in [Queues::new(false), Queues::new(true)] {
        let mut first = refused(&queues, SERIAL);
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

#[test]
fn waiter_of_an_exclusive_queue_that_succeeds_lets_nobody_query() {
    let queues = Queues::new(true);
    let mut first = refused(&queues, SERIAL);
    assert_eq!(first.wait(None), None);
    // A release while it queries, which is granted to it. Then another one joins.
    queues.notify_released(NAME, 1, None);
    let mut second = join(&queues, PATIENT);
    first.granted();
    assert_eq!(second.wait(Some(Instant::now())), None);
}

#[test]
fn waiters_do_not_query_beside_a_long_first_query() {
    let queues = Queues::new(true);
    let mut first = join(&queues, SERIAL);
    assert_eq!(first.wait(None), None);
    let mut second = join(&queues, SERIAL);
    assert!(waits_until_its_deadline(&mut second));
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

#[test]
fn the_first_one_polls_for_all() {
    let queues = queues();
    let (sender, turns) = channel();
    let mut first = refused(&queues, SERIAL);
    let others: Vec<_> = (2..6).map(|_| join(&queues, SERIAL)).collect();
    for _ in 0..3 {
        assert_eq!(first.wait(None), None);
        first.refused(None);
    }
    for (number, place) in others.into_iter().enumerate() {
        wait_on_thread(place, number + 2, &sender);
    }
    assert!(turns.try_recv().is_err(), "no other one has polled");
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

#[test]
fn waiter_in_no_queue_polls_on_its_own() {
    let queues = queues();
    let mut place = queues.place(NAME);
    assert_eq!(place.wait(None), None, "at once");
    place.refused(Some(PAUSE));
    let started = Instant::now();
    assert_eq!(place.wait(None), None);
    assert!(started.elapsed() >= PAUSE);
    drop(place);
    assert_empty(&queues);
}
