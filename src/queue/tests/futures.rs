//! Waits that are futures: whom a release wakes, and what a dropped future leaves.

use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, Wake, Waker};

use super::*;
use crate::rt::tests::without_timers;

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

pub(crate) struct Task<T> {
    future: Pin<Box<dyn Future<Output = T>>>,
    wakes: Arc<Wakes>,
}

impl<T> Task<T> {
    /// It may be polled at once.
    pub(crate) fn new(future: impl Future<Output = T> + 'static) -> Self {
        Self {
            future: Box::pin(future),
            wakes: Arc::new(Wakes(AtomicUsize::new(1))),
        }
    }

    pub(crate) fn poll(&mut self) -> Poll<T> {
        self.woken();
        let waker = Waker::from(Arc::clone(&self.wakes));
        let future = self.future.as_mut();
        without_timers(|| future.poll(&mut Context::from_waker(&waker)))
    }

    fn woken(&self) -> usize {
        self.wakes.0.swap(0, Ordering::SeqCst)
    }

    pub(crate) fn is_runnable(&self) -> bool {
        self.wakes.0.load(Ordering::SeqCst) > 0
    }
}

type Waiting = Task<(Option<Released>, TestPlace)>;

/// A future that waits for the turn of the place, and has been polled once.
fn waiting(mut place: TestPlace) -> Waiting {
    let mut task = Task::new(async move { (place.turn(None, None).await, place) });
    assert!(task.poll().is_pending());
    task
}

/// One that waits behind a place whose query is running.
fn queue_of(queues: &Test, count: usize) -> (TestPlace, Vec<Waiting>) {
    let mut first = refused(queues, PATIENT);
    assert_eq!(first.wait(Some(Instant::now())), None);
    let tasks = (0..count).map(|_| waiting(join(queues, PATIENT))).collect();
    (first, tasks)
}

/// Whether it has its turn because of a release. Its query then succeeds.
fn is_told(polled: Poll<(Option<Released>, TestPlace)>) -> bool {
    let Poll::Ready((released, place)) = polled else {
        return false;
    };
    place.granted();
    released == RELEASED
}

#[test]
fn future_that_is_told_of_a_release_is_woken_once() {
    let queues = queues();
    let (_first, mut tasks) = queue_of(&queues, 2);
    release(&queues);
    assert_eq!(tasks[0].woken(), 1);
    release(&queues);
    assert_eq!((tasks[0].woken(), tasks[1].woken()), (0, 1));
    assert!(tasks.iter_mut().all(|task| is_told(task.poll())));
    assert!(tasks.iter().all(|task| task.woken() == 0));
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
fn each_release_wakes_one_of_many_futures() {
    const WAITERS: usize = 1000;
    let queues = queues();
    let (_first, mut tasks) = queue_of(&queues, WAITERS);
    while !tasks.is_empty() {
        release(&queues);
        assert!(is_told(tasks.remove(0).poll()));
        assert!(tasks.iter().all(|task| task.woken() == 0));
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
    assert!(left_alone.iter().all(|task| task.woken() == 1));
}

/// A release, too.
#[test]
fn future_that_is_told_of_a_release_and_not_polled_delays_others_for_a_moment() {
    let queues = queues();
    let left_alone = {
        let (first, mut tasks) = queue_of(&queues, 1);
        drop(first);
        tasks.remove(0)
    };
    let mut other = join(&queues, SERIAL);
    release(&queues);
    assert_eq!(left_alone.woken(), 1);
    let started = Instant::now();
    assert_eq!(other.wait(Some(started + LIMIT)), None);
    assert!(started.elapsed() < LIMIT);
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
    place.granted();
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
