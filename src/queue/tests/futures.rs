//! Waits that are futures: whom a release wakes, and what a dropped future leaves.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, Wake, Waker};

use tokio::task::yield_now;

use super::*;
use crate::queue::line::FairShare;
use crate::rt::tests::{Wakes, without_timers};

struct Task<T> {
    future: Pin<Box<dyn Future<Output = T>>>,
    wakes: Arc<Wakes>,
}

impl<T> Task<T> {
    /// It may be polled at once.
    fn new(future: impl Future<Output = T> + 'static) -> Self {
        Self {
            future: Box::pin(future),
            wakes: Arc::new(Wakes(AtomicUsize::new(1))),
        }
    }

    fn poll(&mut self) -> Poll<T> {
        self.wakes.0.store(0, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&self.wakes));
        let future = self.future.as_mut();
        without_timers(|| future.poll(&mut Context::from_waker(&waker)))
    }

    /// Since its last poll.
    fn wakes(&self) -> usize {
        self.wakes.0.load(Ordering::SeqCst)
    }

    fn is_runnable(&self) -> bool {
        self.wakes() > 0
    }
}

type Waiting = Task<(Option<Released>, Place)>;

/// A future that waits for the turn of the place, and has been polled once.
fn waiting(mut place: Place) -> Waiting {
    let mut task = Task::new(async move { (place.turn(None, None).await, place) });
    assert!(task.poll().is_pending());
    task
}

/// One that waits behind a place whose query is running.
fn queue_of(queues: &Test, count: usize) -> (Place, Vec<Waiting>) {
    let mut first = refused(queues, PATIENT);
    assert_eq!(first.wait(Some(Instant::now())), None);
    let tasks = (0..count).map(|_| waiting(join(queues, PATIENT))).collect();
    (first, tasks)
}

/// Whether it has its turn because of a release. Its query then succeeds.
fn is_told(polled: Poll<(Option<Released>, Place)>) -> bool {
    let Poll::Ready((released, mut place)) = polled else {
        return false;
    };
    place.granted(false);
    released == RELEASED
}

#[test]
fn place_keeps_its_call_when_its_wait_is_dropped() {
    let queues = queues();
    let (_first, _) = queue_of(&queues, 0);
    let mut place = join(&queues, PATIENT);
    {
        let counted: Arc<Wakes> = Arc::default();
        let waker = Waker::from(Arc::clone(&counted));
        let mut wait = Box::pin(place.turn(None, None));
        let context = &mut Context::from_waker(&waker);
        assert!(without_timers(|| wait.as_mut().poll(context)).is_pending());
        release(&queues);
        assert_eq!(counted.0.load(Ordering::SeqCst), 1);
    }
    assert_eq!(place.wait(None), RELEASED);
}

#[test]
fn each_release_wakes_one_of_many_futures_once() {
    const WAITERS: usize = 1000;
    let queues = queues();
    let (_first, mut tasks) = queue_of(&queues, WAITERS);
    while !tasks.is_empty() {
        release(&queues);
        assert_eq!(tasks[0].wakes(), 1);
        release(&queues);
        assert_eq!((tasks[0].wakes(), tasks[1].wakes()), (1, 1));
        for mut told in tasks.drain(..2) {
            assert!(is_told(told.poll()));
        }
        assert!(tasks.iter().all(|task| task.wakes() == 0));
    }
}

/// The application polls them once, and then another future.
#[test]
fn futures_that_are_not_polled_delay_others_for_a_moment() {
    let queues = queues();
    let (_first, _) = queue_of(&queues, 0);
    let left_alone: Vec<_> = (0..8).map(|_| waiting(join(&queues, SERIAL))).collect();
    let mut other = join(&queues, SERIAL);
    let started = Instant::now();
    assert_eq!(other.wait(Some(started + LIMIT)), None);
    assert!(started.elapsed() < LIMIT, "each is waited for too long");
    assert!(left_alone.iter().all(|task| task.wakes() == 1));
}

/// A waker of another runtime may drop a future, and with it a place, when it is called.
#[test]
fn wakers_are_called_and_dropped_without_the_lock_of_the_queues() {
    struct Unlocked(Test, AtomicUsize);

    impl Unlocked {
        fn count(&self) {
            if self.0.state.try_lock().is_ok() {
                self.1.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    struct OnDrop(Arc<Unlocked>);

    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.count();
        }
    }

    impl Wake for OnDrop {
        fn wake(self: Arc<Self>) {
            self.0.count();
        }
    }

    let queues = queues();
    let (_first, _) = queue_of(&queues, 0);
    let counted = Arc::new(Unlocked(Arc::clone(&queues), AtomicUsize::new(0)));
    let count = || counted.1.swap(0, Ordering::SeqCst);
    let waker = || Waker::from(Arc::new(OnDrop(Arc::clone(&counted))));
    let mut place = join(&queues, PATIENT);
    let mut wait = Box::pin(place.turn(None, None));
    for _ in 0..2 {
        let waker = waker();
        let context = &mut Context::from_waker(&waker);
        assert!(without_timers(|| wait.as_mut().poll(context)).is_pending());
    }
    assert_eq!(count(), 1, "the first waker is dropped");
    release(&queues);
    assert_eq!(count(), 1, "the second one is called");
    drop(wait);
    place.granted(false);
    assert_eq!(count(), 1, "and dropped with its timer");
    let mut place = join(&queues, PATIENT);
    let mut wait = Box::pin(place.turn(None, None));
    {
        let waker = waker();
        let context = &mut Context::from_waker(&waker);
        assert!(without_timers(|| wait.as_mut().poll(context)).is_pending());
    }
    drop(wait);
    drop(place);
    assert_eq!(count(), 1);
}

/// Clients hang up that came first, more often than the first one polls.
#[test]
fn waiters_that_leave_do_not_restart_a_pause() {
    let queues = queues();
    let (_first, _) = queue_of(&queues, 0);
    let mut waiters = std::collections::VecDeque::from([waiting(join(&queues, CONNECTED))]);
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < LIMIT, "nobody polls");
        waiters.push_back(waiting(join(&queues, CONNECTED)));
        if waiters.iter().any(Task::is_runnable) {
            break;
        }
        waiters.pop_front();
        thread::yield_now();
    }
}

#[derive(Clone)]
struct Slots {
    free: Rc<Cell<usize>>,
    queues: Test,
    max_concurrent: usize,
}

impl Slots {
    fn take(&self) -> Option<Held> {
        self.free.set(self.free.get().checked_sub(1)?);
        Some(Held(self.clone()))
    }

    /// Waits for its turn and queries, as often as it is refused.
    async fn acquire(self) -> Held {
        let mut place = self.queues.place(NAME);
        if !place.query_first(self.max_concurrent, None).await {
            yield_now().await;
            place.refused(Some(HOUR));
            place.join("", self.max_concurrent, PATIENT);
        }
        loop {
            place.turn(None, None).await;
            // The query is on its way, and so is its answer.
            yield_now().await;
            let held = self.take();
            yield_now().await;
            if let Some(held) = held {
                place.granted(false);
                return held;
            }
            place.refused(Some(HOUR));
            if place.is_first() {
                yield_now().await;
                place.join("", self.max_concurrent, PATIENT);
            }
        }
    }
}

struct Held(Slots);

impl Drop for Held {
    fn drop(&mut self) {
        let Slots { free, queues, .. } = &self.0;
        free.set(free.get() + 1);
        queues.notify_released(NAME, 1, None);
    }
}

/// No time passes for the waiters. So when a release is lost, the slot stays free.
#[test]
fn no_release_is_lost_when_futures_are_dropped_at_random() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let queues = queues();
        for share in &mut queues.lock().shares {
            // Nothing is yielded to other processes.
            *share = FairShare::never();
        }
        let slots = Slots {
            free: Rc::new(Cell::new(1)),
            queues: Arc::clone(&queues),
            max_concurrent: random.usize(1..4),
        };
        let mut tasks: Vec<Task<Held>> = Vec::new();
        let mut held = Vec::new();
        for step in 0..1000 {
            match random.u8(0..20) {
                0..4 if tasks.len() < 8 => tasks.push(Task::new(slots.clone().acquire())),
                4..6 if !tasks.is_empty() => drop(tasks.swap_remove(random.usize(0..tasks.len()))),
                6..8 if !held.is_empty() => drop(held.pop()),
                _ => {
                    let runnable = (0..tasks.len()).filter(|task| tasks[*task].is_runnable());
                    let Some(task) = random.choice(runnable.collect::<Vec<_>>()) else {
                        continue;
                    };
                    if let Poll::Ready(slot) = tasks[task].poll() {
                        held.push(slot);
                        drop(tasks.swap_remove(task));
                    }
                }
            }
            let lost = slots.free.get() > 0 && !tasks.is_empty();
            assert!(
                !lost || tasks.iter().any(Task::is_runnable),
                "seed {seed}, step {step}: a slot is free, and nobody queries"
            );
        }
        drop((tasks, held));
        assert_eq!(slots.free.get(), 1);
        assert_empty(&queues);
    }
}
