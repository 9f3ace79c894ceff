//! Tests of the queues.

#[cfg(feature = "_async")]
mod futures;
#[cfg(feature = "_pool")]
mod pauses;
#[cfg(feature = "_pool")]
mod turns;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::queue::line::{Line, State, Waiter};
use crate::queue::{MAX_POLL_INTERVAL, Options, Place, Queues, Released};
use crate::rt::block_on;

type Test = Arc<Queues>;

pub(crate) const NAME: &str = "slots";
const LIMIT: Duration = Duration::from_secs(20);
const HOUR: Duration = Duration::from_secs(3600);

const RELEASED: Option<Released> = Some(Released(None));

/// A waiter that has a connection. The queue polls as often as it usually does.
const CONNECTED: Options = Options {
    connected: true,
    longest_pause: MAX_POLL_INTERVAL,
};

/// One that has none.
pub(crate) const SERIAL: Options = Options {
    connected: false,
    longest_pause: MAX_POLL_INTERVAL,
};

/// One that has none, and does not poll.
const PATIENT: Options = Options {
    connected: false,
    longest_pause: HOUR,
};

impl Place {
    fn wait(&mut self, deadline: Option<Instant>) -> Option<Released> {
        block_on(self.turn(deadline, None))
    }
}

fn queues() -> Test {
    Queues::new(false)
}

fn join_target(queues: &Test, target: &str, options: Options) -> Place {
    let mut place = queues.place(NAME);
    if options.longest_pause == HOUR {
        place.refused(Some(HOUR));
    }
    place.join(target, 1, options);
    place
}

pub(crate) fn join(queues: &Test, options: Options) -> Place {
    join_target(queues, "", options)
}

/// One whose first query was refused. It is the first, and alone.
pub(crate) fn refused(queues: &Test, options: Options) -> Place {
    let mut place = join(queues, options);
    assert_eq!(place.wait(None), None);
    place.refused((options.longest_pause == HOUR).then_some(HOUR));
    place
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

/// Looks at the only queue.
fn in_line<R>(queues: &Test, look: impl FnOnce(&Line) -> R) -> R {
    let state = queues.lock();
    look(&state.names[NAME].lines[0])
}

fn count(queues: &Test, matches: impl Fn(&Waiter) -> bool) -> usize {
    in_line(queues, |line| {
        let waiters = line.waiters.values();
        waiters.filter(|waiter| matches(waiter)).count()
    })
}

fn asleep(queues: &Test) -> usize {
    count(queues, |waiter| {
        waiter.state == State::Sleeping && waiter.waker.is_some()
    })
}

fn awake(queues: &Test) -> usize {
    count(queues, |waiter| waiter.state != State::Sleeping)
}

fn assert_empty(queues: &Test) {
    assert!(queues.lock().names.is_empty());
    assert_eq!(queues.waiting.load(Ordering::SeqCst), 0);
}

/// Hands a release over to the first sleeping waiter. None is yielded to other processes.
fn release(queues: &Test) {
    queues.change(NAME, |name, _, now, wakes| {
        for line in &mut name.lines {
            line.hand_over(Released(None), now, wakes);
        }
    });
}

/// Waits on a thread, and sends the place when it has its turn.
fn wait_on_thread(mut place: Place, name: usize, turns: &Sender<(usize, Place)>) {
    let turns = turns.clone();
    thread::spawn(move || {
        place.wait(None);
        let _ = turns.send((name, place));
    });
}

fn next_turn<T>(turns: &Receiver<T>) -> T {
    turns.recv_timeout(LIMIT).expect("a turn")
}
