//! Tests of the queues.

use std::sync::mpsc::{Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::queues::Locked;
use super::waiter::Released;

use super::{Queues, Ticket, Turn};
use crate::poll::poll_once;
use crate::timer::thread::ThreadTimer;

mod dropped;
mod futures;
mod pauses;
mod targets;
mod turns;
#[cfg(feature = "_pool")]
mod unreached;

type Test = Queues<&'static str, u8>;

/// Waits with the thread.
trait Wait {
    fn wait(&mut self, deadline: Option<Instant>) -> Turn;

    fn wait_unless(&mut self, stopped: impl Fn() -> bool + Send) -> Turn;
}

impl Wait for Ticket<'_, &'static str, u8> {
    fn wait(&mut self, deadline: Option<Instant>) -> Turn {
        poll_once(self.turn::<ThreadTimer>(deadline))
    }

    fn wait_unless(&mut self, stopped: impl Fn() -> bool + Send) -> Turn {
        poll_once(self.turn_unless::<ThreadTimer>(None, Some(stopped)))
    }
}

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
        .names
        .get("slots")
        .into_iter()
        .flat_map(|queues_of_name| &queues_of_name.by_target);
    queues_of_name.map(|queue| queue.waiters.len()).sum()
}

/// Hands a release over to the first sleeping waiter. None is yielded to other processes.
fn notify_first(queues: &Test) {
    let Locked { names, wakes } = &mut queues.lock();
    let queues_of_name = names.get_mut("slots").expect("queues with waiters");
    queues_of_name.by_target[0].notify_first(Released(None), wakes);
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
