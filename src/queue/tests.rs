//! Tests of the queues.

use std::sync::mpsc::{Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::{Queues, Ticket, Turn};

mod pauses;
mod targets;
mod turns;

type Test = Queues<&'static str, u8>;

const LIMIT: Duration = Duration::from_secs(20);

fn queues() -> &'static Test {
    Box::leak(Box::new(Queues::new()))
}

/// A ticket whose first query was refused.
fn refused(queues: &'static Test, target: u8) -> Ticket<'static, &'static str, u8> {
    let mut ticket = queues.join("slots", 1, |_| true);
    ticket.wait(None);
    ticket.set_target(Some(target));
    ticket.record_refusal();
    ticket
}

fn until(condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(
            started.elapsed() < LIMIT,
            "the condition does not become true"
        );
        thread::yield_now();
    }
}

fn waiters(queues: &Test) -> usize {
    let all = queues.lock();
    let queues_of_name = all
        .get("slots")
        .into_iter()
        .flat_map(|queues_of_name| &queues_of_name.by_target);
    queues_of_name.map(|queue| queue.waiters.len()).sum()
}

/// Waits on a thread, and sends the ticket when it has its turn.
fn wait_on_thread(
    mut ticket: Ticket<'static, &'static str, u8>,
    name: usize,
    turns: &Sender<(usize, Ticket<'static, &'static str, u8>)>,
) {
    let turns = turns.clone();
    thread::spawn(move || {
        while ticket.wait(None) == Turn::Identify {
            ticket.set_target(Some(0));
        }
        let _ = turns.send((name, ticket));
    });
}

fn next_turn<T>(turns: &Receiver<T>) -> T {
    turns.recv_timeout(LIMIT).expect("a turn")
}

/// The second of the queue, which has not queried yet.
fn queued_behind(queues: &'static Test) -> Ticket<'static, &'static str, u8> {
    let mut ticket = queues.join("slots", 1, |_| true);
    ticket.set_target(Some(0));
    ticket
}
