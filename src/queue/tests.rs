//! Tests of the queues.

#[cfg(feature = "_async")]
mod dropped;
#[cfg(feature = "_async")]
mod futures;
mod pauses;
mod targets;
mod turns;
#[cfg(feature = "_pool")]
mod unreached;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::queue::line::{Line, State};
use crate::queue::{MAX_POLL_INTERVAL, Options, Place, Queues, Released};
use crate::rt::block_on;

type Test = Arc<Queues<&'static str, u8>>;
type TestPlace = Place<&'static str, u8>;

const NAME: &str = "slots";
const LIMIT: Duration = Duration::from_secs(20);
const HOUR: Duration = Duration::from_secs(3600);

const RELEASED: Option<Released> = Some(Released(None));

/// A waiter that has a connection. The queue polls as often as it usually does.
const CONNECTED: Options = Options {
    connected: true,
    longest_pause: MAX_POLL_INTERVAL,
};

/// One that has none.
const SERIAL: Options = Options {
    connected: false,
    longest_pause: MAX_POLL_INTERVAL,
};

/// One that has none, and does not poll.
const PATIENT: Options = Options {
    connected: false,
    longest_pause: HOUR,
};

trait Wait {
    fn wait(&mut self, deadline: Option<Instant>) -> Option<Released>;
}

impl Wait for TestPlace {
    fn wait(&mut self, deadline: Option<Instant>) -> Option<Released> {
        block_on(self.turn(deadline, None))
    }
}

fn queues() -> Test {
    Queues::new(false)
}

fn join_target(queues: &Test, target: u8, options: Options) -> TestPlace {
    let mut place = queues.place(NAME);
    if options.longest_pause == HOUR {
        place.refused(Some(HOUR));
    }
    place.join(target, 1, options);
    place
}

fn join(queues: &Test, options: Options) -> TestPlace {
    join_target(queues, 0, options)
}

/// One whose first query was refused. It is the first, and alone.
fn refused(queues: &Test, options: Options) -> TestPlace {
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
fn in_line<R>(queues: &Test, look: impl FnOnce(&Line<u8>) -> R) -> R {
    let state = queues.lock();
    look(&state.names[NAME].lines[0])
}

fn asleep(queues: &Test) -> usize {
    in_line(queues, |line| {
        let waiters = line.waiters.values();
        let asleep = |waiter: &&_| is_asleep(waiter);
        waiters.filter(asleep).count()
    })
}

fn is_asleep(waiter: &crate::queue::line::Waiter) -> bool {
    waiter.state == State::Sleeping && waiter.waker.is_some()
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
fn wait_on_thread(mut place: TestPlace, name: usize, turns: &Sender<(usize, TestPlace)>) {
    let turns = turns.clone();
    thread::spawn(move || {
        place.wait(None);
        let _ = turns.send((name, place));
    });
}

fn next_turn<T>(turns: &Receiver<T>) -> T {
    turns.recv_timeout(LIMIT).expect("a turn")
}
