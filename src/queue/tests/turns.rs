//! Whose turn it is.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use super::super::waiter::State;
use super::super::waiters::{Position, RELEASES_PER_YIELD};
use super::super::{Released, Turn};
use super::{
    LIMIT, Wait, next_turn, notify_first, queued_behind, queues, refused, until, wait_on_thread,
    waiters,
};

#[test]
fn first_come_first_served() {
    let queues = queues();
    // In the queue, it alone polls.
    let first = refused(queues, 0);
    let tickets: Vec<_> = (0..8).map(|_| queued_behind(queues)).collect();
    assert_eq!(waiters(queues), 9);
    drop(first);
    for mut ticket in tickets {
        notify_first(queues);
        let notified = Some(Released(None));
        assert_eq!(ticket.wait(None), Turn::Query { notified });
        let others = queues.lock().names["slots"].by_target[0]
            .waiters
            .values()
            .filter(|waiter| waiter.state != State::Sleeping)
            .count();
        assert_eq!(others, 1, "one queries");
        ticket.finish();
    }
    assert!(queues.lock().names.is_empty());
}

#[test]
fn query_without_response_does_not_block_others() {
    let queues = queues();
    let (sender, turns) = channel();
    let mut first = refused(queues, 0);
    wait_on_thread(queued_behind(queues), 1, &sender);
    wait_on_thread(queued_behind(queues), 2, &sender);
    // Its query does not return, nor does that of the next.
    assert_eq!(first.wait(None), Turn::Query { notified: None });
    // The thread of the second may go on later than that of the third.
    let (one, second) = next_turn(&turns);
    let (other, third) = next_turn(&turns);
    assert_eq!(one + other, 3);
    drop((first, second, third));
    assert!(queues.lock().names.is_empty());
}

#[test]
fn release_during_query_is_not_missed() {
    let queues = queues();
    let mut ticket = queues.join("slots", 1, |_| true);
    assert_eq!(ticket.wait(None), Turn::Query { notified: None });
    queues.notify_released("slots", 1, None);
    ticket.set_target(Some(0));
    ticket.record_refusal();
    assert_eq!(
        ticket.wait(None),
        Turn::Query {
            notified: Some(Released(None))
        }
    );
    queues.notify_released("slots", 1, Some(7));
    ticket.record_refusal();
    assert_eq!(
        ticket.wait(None),
        Turn::Query {
            notified: Some(Released(None))
        }
    );
    ticket.record_refusal();
    // No release since then: it polls when its time has come.
    assert_eq!(ticket.wait(None), Turn::Query { notified: None });
}

#[test]
fn release_before_the_refusal_is_recorded_is_not_missed() {
    let queues = queues();
    let mut ticket = queues.join("slots", 1, |_| true);
    assert_eq!(ticket.wait(None), Turn::Query { notified: None });
    ticket.set_target(Some(0));
    queues.notify_released("slots", 1, None);
    ticket.record_refusal();
    assert!(matches!(
        ticket.wait(None),
        Turn::Query { notified: Some(_) }
    ));
}

#[test]
fn release_that_a_dropped_waiter_has_not_used_is_not_missed_by_another_first_query() {
    let queues = queues();
    let mut first = queues.join("slots", 2, |_| true);
    let mut second = queues.join("slots", 2, |_| true);
    for ticket in [&mut first, &mut second] {
        assert_eq!(ticket.wait(None), Turn::Query { notified: None });
    }
    queues.notify_released("slots", 1, None);
    first.set_target(Some(0));
    drop(first);
    second.set_target(Some(0));
    second.record_refusal();
    assert!(matches!(
        second.wait(None),
        Turn::Query { notified: Some(_) }
    ));
}

#[test]
fn panic_during_query_notifies_next_waiter() {
    let queues = queues();
    let (sender, turns) = channel();
    let mut first = refused(queues, 0);
    let second = queued_behind(queues);
    queues.notify_released("slots", 1, Some(3));
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        assert_eq!(
            first.wait(None),
            Turn::Query {
                notified: Some(Released(Some(3)))
            }
        );
        panic!("during the query");
    }));
    assert!(panicked.is_err());
    wait_on_thread(second, 2, &sender);
    let (_, ticket) = next_turn(&turns);
    assert!(ticket.notified);
}

#[test]
fn deadline_is_kept_behind_others() {
    let queues = queues();
    let _first = refused(queues, 0);
    let mut second = queued_behind(queues);
    let end = Instant::now() + Duration::from_millis(5);
    assert_eq!(second.wait(Some(end)), Turn::Query { notified: None });
    assert!(Instant::now() >= end);
}

#[test]
fn concurrent_first_queries_are_limited() {
    let queues = queues();
    let (sender, turns) = channel();
    let mut first = queues.join("slots", 1, |_| true);
    assert_eq!(first.wait(None), Turn::Query { notified: None });
    wait_on_thread(queues.join_once("slots", 1), 1, &sender);
    assert_eq!(waiters(queues), 1);
    drop(first);
    let (_, ticket) = next_turn(&turns);
    assert!(ticket.notified);
    drop(ticket);
    assert!(queues.lock().names.is_empty());
}

#[test]
fn notified_waiters_count_as_first_queries() {
    let queues = queues();
    let mut first = queues.join("slots", 1, |_| true);
    assert_eq!(first.wait(None), Turn::Query { notified: None });
    let second = queues.join_once("slots", 1);
    drop(first);
    // The second has been notified to query.
    let third = queues.join_once("slots", 1);
    assert!(matches!(second.position, Position::Queued { .. }));
    assert!(matches!(third.position, Position::Queued { .. }));
    drop((second, third));
    assert!(queues.lock().names.is_empty());
}

#[test]
fn some_releases_are_yielded() {
    let queues = queues();
    let mut first = refused(queues, 0);
    let notified: Vec<bool> = (0..RELEASES_PER_YIELD)
        .map(|_| {
            queues.notify_released("slots", 1, None);
            let notified = queues.lock().names["slots"].by_target[0]
                .yield_until
                .is_none();
            let Turn::Query { .. } = first.wait(None) else {
                panic!("the target is known");
            };
            first.record_refusal();
            notified
        })
        .collect();
    assert_eq!(notified, [true, true, false]);
}

#[test]
fn releases_are_yielded_when_each_waiter_is_served_at_once() {
    let queues = queues();
    let notified: Vec<bool> = (0..RELEASES_PER_YIELD)
        .map(|_| {
            // The queue is empty, and removed, between two of them.
            let mut only = refused(queues, 0);
            queues.notify_released("slots", 1, None);
            let notified = queues.lock().names["slots"].by_target[0]
                .yield_until
                .is_none();
            let Turn::Query { .. } = only.wait(None) else {
                panic!("the target is known");
            };
            only.finish();
            assert!(queues.lock().names.is_empty());
            notified
        })
        .collect();
    assert_eq!(notified, [true, true, false]);
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
                    let mut ticket = queues.join("slots", 2, |_| true);
                    loop {
                        match ticket.wait(None) {
                            Turn::Identify => ticket.set_target(Some(0)),
                            Turn::Query { .. } if take() => break,
                            Turn::Query { .. } => {
                                if ticket.needs_target() {
                                    ticket.set_target(Some(0));
                                }
                                ticket.record_refusal();
                            }
                        }
                    }
                    ticket.finish();
                    thread::yield_now();
                    free.fetch_add(1, Ordering::SeqCst);
                    queues.notify_released("slots", 1, None);
                }
            });
        }
    });
    assert_eq!(free.into_inner(), 2);
    until(|| queues.lock().names.is_empty());
    assert_eq!(queues.tickets.load(Ordering::SeqCst), 0);
}

#[test]
fn release_wakes_only_the_waiter_that_queries() {
    const WAITERS: usize = 16;
    const RELEASES: usize = 12;
    const MAX_WAKES: i64 = 18;
    let queues = queues();
    let (sender, turns) = channel();
    let passes: &AtomicI64 = Box::leak(Box::default());
    for waiter in 0..WAITERS {
        let mut ticket = if waiter == 0 {
            refused(queues, 0)
        } else {
            queued_behind(queues)
        };
        ticket.set_pause(Some(LIMIT * 10));
        let mut ticket = ticket.polling_within(LIMIT * 10);
        let sender = sender.clone();
        thread::spawn(move || {
            // Asked each time when the thread wakes.
            ticket.wait_unless(|| {
                passes.fetch_add(1, Ordering::SeqCst);
                false
            });
            let _ = sender.send(ticket);
        });
    }
    let sleeping = |count: usize| {
        let all = queues.lock();
        let waiters = all.names["slots"].by_target[0].waiters.values();
        waiters.filter(|waiter| waiter.is_parked()).count() == count
    };
    until(|| sleeping(WAITERS));
    let before = passes.load(Ordering::SeqCst);
    let mut tickets = Vec::new();
    for release in 1..=RELEASES {
        notify_first(queues);
        tickets.push(next_turn(&turns));
        until(|| sleeping(WAITERS - release));
    }
    let woken = passes.load(Ordering::SeqCst) - before;
    // One more when the waiter that watches the time has its turn; threads may also wake for no reason.
    assert!(woken <= MAX_WAKES, "{woken} for {RELEASES} releases");
}

#[cfg(feature = "_pool")]
#[test]
fn release_is_handed_over_by_a_waiter_without_a_connection() {
    let queues = queues();
    let mut first = refused(queues, 0);
    let mut second = queued_behind(queues);
    let notified = Turn::Query {
        notified: Some(Released(None)),
    };
    queues.notify_released("slots", 1, None);
    assert_eq!(first.wait(None), notified);
    first.record_no_query();
    assert_eq!(second.wait(None), notified);
    // Alone it queries once more, after a pause: what was released is still free.
    drop(first);
    second.record_no_query();
    let now = Some(Instant::now());
    assert_eq!(second.wait(now), Turn::Query { notified: None });
    second.record_no_query();
    assert_eq!(second.wait(None), notified);
}

#[cfg(feature = "_pool")]
#[test]
fn release_is_handed_over_at_once_to_a_waiter_with_a_connection() {
    use super::super::waiter::Waiter;

    let queues = queues();
    let mut first = refused(queues, 0);
    let mut others: Vec<_> = (0..20).map(|_| queued_behind(queues)).collect();
    let (turns, turn) = channel();
    let last = queued_behind(queues).keeping_connection();
    wait_on_thread(last, 0, &turns);
    until(|| {
        let all = queues.lock();
        let mut waiters = all.names["slots"].by_target[0].waiters.values();
        waiters.any(Waiter::is_parked)
    });
    queues.notify_released("slots", 1, None);
    let notified = Turn::Query {
        notified: Some(Released(None)),
    };
    assert_eq!(first.wait(None), notified);
    first.record_no_query();
    let (_, last) = next_turn(&turn);
    assert!(last.notified);
    // A query has reached the database: the others are not called one after the other.
    last.finish();
    let now = Some(Instant::now());
    assert_eq!(others[0].wait(now), Turn::Query { notified: None });
}

/// What a waiter could not use is used by those that get a connection.
#[cfg(feature = "_pool")]
#[test]
fn each_release_without_a_connection_reaches_a_waiter() {
    let queues = queues();
    let mut tickets = vec![refused(queues, 0)];
    tickets.extend((0..2).map(|_| queued_behind(queues)));
    queues.notify_released("slots", 2, None);
    let notified = Turn::Query {
        notified: Some(Released(None)),
    };
    for ticket in &mut tickets[..2] {
        assert_eq!(ticket.wait(None), notified);
        ticket.record_no_query();
    }
    let mut last = tickets.pop().expect("the third waiter");
    assert_eq!(last.wait(None), notified);
    last.finish();
    let mut first = tickets.remove(0);
    assert_eq!(first.wait(None), notified);
    first.finish();
    let now = Some(Instant::now());
    assert_eq!(tickets[0].wait(now), Turn::Query { notified: None });
}

#[test]
fn waiter_with_a_connection_uses_it_every_few_seconds() {
    let queues = queues();
    let mut first = refused(queues, 0);
    let mut second = queued_behind(queues).keeping_connection();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                assert_eq!(first.wait(None), Turn::Query { notified: None });
                first.record_refusal();
            }
        });
        for _ in 0..2 {
            assert_eq!(second.wait(None), Turn::Identify);
            second.set_target(Some(0));
        }
        assert_eq!(second.wait(None), Turn::Identify);
        is_over.store(true, Ordering::SeqCst);
    });
    // All others query too: the release is not missed.
    first.wait(None);
    queues.notify_released("slots", 1, None);
    second.set_target(Some(0));
    let notified = Some(Released(None));
    assert_eq!(second.wait(None), Turn::Query { notified });
    drop((first, second));
    assert!(queues.lock().names.is_empty());
}
