//! Waiters for different targets with one name.

use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Instant;

use super::super::waiters::Position;
use super::super::{Released, Turn};
use super::{Wait, next_turn, queued_behind, queues, refused, wait_on_thread};

#[test]
fn targets_have_separate_queues() {
    let queues = queues();
    let _first = refused(queues, 1);
    // It joins the queue of the only target, and has to identify its own.
    let mut other = queues.join("slots", 1, |_| true);
    assert_eq!(other.wait(None), Turn::Identify);
    other.set_target(Some(2));
    assert!(matches!(other.wait(None), Turn::Query { .. }));
    other.record_refusal();
    // From then on each new waiter identifies its target first.
    let mut third = queues.join("slots", 1, |_| true);
    assert_eq!(third.wait(None), Turn::Identify);
    third.set_target(Some(2));
    // The release may be of either target.
    queues.notify_released("slots", 1, None);
    assert_eq!(
        other.wait(None),
        Turn::Query {
            notified: Some(Released(None))
        }
    );
}

#[test]
fn identification_without_response_does_not_block_others() {
    let queues = queues();
    let (sender, turns) = channel();
    let first = refused(queues, 0);
    let mut second = queues.join("slots", 1, |_| true);
    let mut third = queues.join("slots", 1, |_| true);
    third.set_target(Some(0));
    // It is to identify before its turn, and does not return.
    second.identify_at = Some(Instant::now());
    assert_eq!(second.wait(None), Turn::Identify);
    first.finish();
    wait_on_thread(third, 3, &sender);
    let (turn, third) = next_turn(&turns);
    assert_eq!(turn, 3);
    drop((second, third));
    assert!(queues.lock().names.is_empty());
}

#[test]
fn identification_keeps_the_position() {
    let queues = queues();
    let mut first = refused(queues, 0);
    let mut second = queues.join("slots", 1, |_| true);
    second.identify_at = Some(Instant::now());
    assert_eq!(second.wait(None), Turn::Identify);
    assert_eq!(first.wait(None), Turn::Query { notified: None });
    // A release while all query.
    queues.notify_released("slots", 1, None);
    second.set_target(Some(0));
    assert_eq!(
        second.wait(None),
        Turn::Query {
            notified: Some(Released(None))
        }
    );
}

#[test]
fn only_waiter_of_a_target_queries_at_once() {
    let queues = queues();
    let _first = refused(queues, 1);
    let mut other = queues.join("slots", 1, |_| true);
    assert_eq!(other.wait(None), Turn::Identify);
    other.set_target(Some(2));
    assert_eq!(
        other.wait(None),
        Turn::Query {
            notified: Some(Released(None))
        }
    );
}

#[test]
fn unshared_targets_have_no_queue() {
    let queues = queues();
    let mut first = queues.join("slots", 1, |_| true);
    assert_eq!(first.wait(None), Turn::Query { notified: None });
    let mut second = queues.join("slots", 1, |_| true);
    drop(first);
    assert!(matches!(second.wait(None), Turn::Query { .. }));
    second.set_target(None);
    assert!(matches!(second.position, Position::Independent));
    assert!(queues.lock().names.is_empty());
}

#[test]
fn connection_that_reaches_another_database_moves_its_waiter_only() {
    let queues = queues();
    let mut first = refused(queues, 0);
    let mut second = queued_behind(queues).keeping_connection();
    second.identify_at = Some(Instant::now());
    assert_eq!(second.wait(None), Turn::Identify);
    assert_eq!(first.wait(None), Turn::Query { notified: None });
    // A release while all query is one of the first database.
    queues.notify_released("slots", 1, None);
    second.set_target(Some(1));
    let notified = Some(Released(None));
    assert_eq!(second.wait(None), Turn::Query { notified });
    first.record_refusal();
    assert_eq!(first.wait(None), Turn::Query { notified });
    assert!(!queues.ambiguous.load(Ordering::SeqCst));
    // New waiters join the queue of the first database again when the other one is empty.
    drop(second);
    let third = queues.join("slots", 1, |_| true);
    assert!(matches!(third.position, Position::Queued { .. }));
    drop((first, third));
    assert!(queues.lock().names.is_empty());
}

#[test]
fn waiter_whose_time_is_up_while_it_identifies_queries_once_more() {
    let queues = queues();
    let _first = refused(queues, 0);
    let mut second = queued_behind(queues).keeping_connection();
    second.identify_at = Some(Instant::now());
    assert_eq!(second.wait(None), Turn::Identify);
    second.set_target(Some(0));
    let deadline = Some(Instant::now());
    assert_eq!(second.wait(deadline), Turn::Query { notified: None });
}
