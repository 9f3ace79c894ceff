//! Waits that are futures: whom a release wakes, and what a dropped future leaves.

use std::collections::VecDeque;
use std::future::poll_fn;
#[cfg(feature = "_pool")]
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use super::super::queues::Locked;
use super::super::waiters::Position;
use super::super::{Released, Ticket, Turn};
use super::{LIMIT, Test, Wait, notify_first, queued_behind, queues, refused, until, waiters};
#[cfg(feature = "_pool")]
use crate::timer::thread::ThreadTimer;
use crate::timer::{Event, Polled, Timer};

pub(super) const HOUR: Duration = Duration::from_secs(3600);

type OwnTicket = Ticket<'static, &'static str, u8>;

const NOTIFIED: Turn = Turn::Query {
    notified: Some(Released(None)),
};

/// Waits are polled by the test. The time of an event is not watched.
pub(super) enum ByHand {}

impl Timer for ByHand {
    const MAY_STALL: bool = true;

    async fn pause(_: Duration) {}

    async fn wait<E: Event>(mut event: E) -> E::Value {
        poll_fn(|context| match event.poll(context.waker()) {
            Polled::Ready(value) => Poll::Ready(value),
            Polled::Pending { .. } => Poll::Pending,
        })
        .await
    }

    #[cfg(feature = "_pool")]
    fn spawn(name: &str, work: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        ThreadTimer::spawn(name, work)
    }
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A future, and how often it was woken.
pub(super) struct Task<T> {
    future: Pin<Box<dyn Future<Output = T>>>,
    wakes: Arc<Wakes>,
}

impl<T> Task<T> {
    /// It may be polled at once.
    pub(super) fn new(future: impl Future<Output = T> + 'static) -> Self {
        Self {
            future: Box::pin(future),
            wakes: Arc::new(Wakes(AtomicUsize::new(1))),
        }
    }

    pub(super) fn poll(&mut self) -> Poll<T> {
        self.woken();
        let waker = Waker::from(Arc::clone(&self.wakes));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// How often it was woken since the last call.
    fn woken(&self) -> usize {
        self.wakes.0.swap(0, Ordering::SeqCst)
    }

    /// Whether it was woken since it was polled.
    pub(super) fn is_runnable(&self) -> bool {
        self.wakes.0.load(Ordering::SeqCst) > 0
    }
}

/// A future that waits for the turn of the ticket, and has been polled once.
fn waiting(ticket: OwnTicket) -> Task<(Turn, OwnTicket)> {
    pausing(ticket, HOUR)
}

/// A future that pauses for this time before it polls, and has been polled once.
fn pausing(mut ticket: OwnTicket, pause: Duration) -> Task<(Turn, OwnTicket)> {
    ticket.longest_pause = HOUR;
    ticket.set_pause(Some(pause));
    let mut task = Task::new(async move { (ticket.turn::<ByHand>(None).await, ticket) });
    assert!(task.poll().is_pending());
    task
}

/// One that waits behind a ticket whose query is running.
fn queue_of(queues: &'static Test, count: usize) -> (OwnTicket, Vec<Task<(Turn, OwnTicket)>>) {
    let mut first = refused(queues, 0);
    first.longest_pause = HOUR;
    assert_eq!(
        first.wait(Some(Instant::now())),
        Turn::Query { notified: None }
    );
    let tasks = (0..count).map(|_| waiting(queued_behind(queues))).collect();
    (first, tasks)
}

/// Whether it has its turn by a notification. Its query then succeeds.
fn is_notified(polled: Poll<(Turn, OwnTicket)>) -> bool {
    let Poll::Ready((turn, ticket)) = polled else {
        return false;
    };
    ticket.finish();
    turn == NOTIFIED
}

#[test]
fn notified_future_is_woken_once() {
    let queues = queues();
    let (_first, mut tasks) = queue_of(queues, 2);
    notify_first(queues);
    assert_eq!(tasks[0].woken(), 1);
    notify_first(queues);
    assert_eq!((tasks[0].woken(), tasks[1].woken()), (0, 1));
    assert!(tasks.iter_mut().all(|task| is_notified(task.poll())));
    assert!(tasks.iter().all(|task| task.woken() == 0));
}

#[test]
fn future_that_is_woken_twice_before_it_is_polled_wakes_once() {
    let queues = queues();
    let (_first, tasks) = queue_of(queues, 1);
    for _ in 0..2 {
        let Locked { names, wakes } = &mut queues.lock();
        let queue = names.get_mut("slots").map(|names| &mut names.by_target[0]);
        let waiter = queue.and_then(|queue| queue.waiters.values_mut().last());
        waiter.expect("a waiter").wake(wakes);
    }
    assert_eq!(tasks[0].woken(), 1);
}

#[test]
fn future_that_is_dropped_after_its_notification_hands_it_over() {
    let queues = queues();
    let (_first, mut tasks) = queue_of(queues, 2);
    notify_first(queues);
    drop(tasks.remove(0));
    assert_eq!(tasks[0].woken(), 1);
    assert!(is_notified(tasks[0].poll()));
}

#[test]
fn future_that_is_dropped_in_its_query_hands_its_notification_over() {
    let queues = queues();
    let (_first, mut tasks) = queue_of(queues, 2);
    notify_first(queues);
    let Poll::Ready((_, ticket)) = tasks.remove(0).poll() else {
        panic!("it was notified");
    };
    assert_eq!(tasks[0].woken(), 0);
    drop(ticket);
    assert_eq!(tasks[0].woken(), 1);
    assert!(is_notified(tasks[0].poll()));
}

#[test]
fn release_during_a_query_that_is_dropped_goes_to_a_later_waiter() {
    let queues = queues();
    let (first, _) = queue_of(queues, 0);
    // All query: the release is for the next refusal.
    notify_first(queues);
    let mut later = waiting(queued_behind(queues));
    drop(first);
    assert_eq!(later.woken(), 1);
    assert!(is_notified(later.poll()));
}

#[test]
fn ticket_keeps_its_notification_when_its_wait_is_dropped() {
    let queues = queues();
    let (_first, _) = queue_of(queues, 0);
    let mut ticket = queued_behind(queues);
    {
        let counted: Arc<Wakes> = Arc::default();
        let waker = Waker::from(Arc::clone(&counted));
        let mut wait = Box::pin(ticket.turn::<ByHand>(None));
        let context = &mut Context::from_waker(&waker);
        assert!(wait.as_mut().poll(context).is_pending());
        notify_first(queues);
        assert_eq!(counted.0.load(Ordering::SeqCst), 1);
    }
    assert_eq!(ticket.wait(None), NOTIFIED);
}

#[test]
fn another_waiter_watches_the_time_when_a_wait_is_dropped() {
    let queues = queues();
    let (_first, tasks) = queue_of(queues, 1);
    let mut ticket = queued_behind(queues);
    {
        let mut wait = Box::pin(ticket.turn::<ByHand>(None));
        let context = &mut Context::from_waker(Waker::noop());
        assert!(wait.as_mut().poll(context).is_pending());
        // It watches in place of the first one, which is polled: its ticket has a lower number.
        tasks[0].woken();
    }
    let Position::Queued { number } = ticket.position else {
        panic!("it is in a queue");
    };
    let all = queues.lock();
    let watches = all.names["slots"].by_target[0].watches.iter().flatten();
    let watches: Vec<u64> = watches.map(|watch| watch.number).collect();
    drop(all);
    assert!(watches.len() == 1 && watches[0] < number, "{watches:?}");
    drop(ticket);
    drop(tasks);
    assert_eq!(waiters(queues), 1);
}

#[test]
fn each_release_wakes_one_of_many_futures() {
    const WAITERS: usize = 1000;
    let queues = queues();
    let (_first, mut tasks) = queue_of(queues, WAITERS);
    let mut wakes = 0;
    while !tasks.is_empty() {
        notify_first(queues);
        assert!(is_notified(tasks.remove(0).poll()));
        // Those that watch the time are woken when their turn has come: others have to watch.
        for task in &mut tasks {
            let woken = task.woken();
            if woken > 0 {
                assert!(task.poll().is_pending());
            }
            wakes += woken;
        }
    }
    assert!(wakes <= 4, "{wakes} for {WAITERS} releases");
}

/// The application polls it once, and then another future.
#[test]
fn future_that_is_not_polled_delays_others_for_a_moment() {
    let queues = queues();
    let pause = Some(Duration::from_millis(10));
    let (_first, _) = queue_of(queues, 0);
    let mut left_alone = queued_behind(queues);
    left_alone.set_pause(pause);
    let mut left_alone = Task::new(async move { left_alone.turn::<ByHand>(None).await });
    assert!(left_alone.poll().is_pending());
    let mut other = queued_behind(queues);
    other.set_pause(pause);
    let started = Instant::now();
    let turn = other.wait(Some(started + LIMIT));
    assert_eq!(turn, Turn::Query { notified: None });
    assert!(started.elapsed() < LIMIT, "nobody watched the time");
    assert_eq!(left_alone.woken(), 1);
}

/// Both that watch the time are left alone, whether they came before the other waiter or after it.
#[test]
fn futures_that_are_not_polled_delay_others_for_some_seconds() {
    for (before, after) in [(2, 0), (0, 2), (1, 1), (2, 2)] {
        let queues = queues();
        let pause = Some(Duration::from_millis(10));
        let (_first, _) = queue_of(queues, 0);
        let join = || {
            let mut ticket = queued_behind(queues);
            ticket.set_pause(pause);
            ticket
        };
        let left_alone = || {
            let mut ticket = join();
            let mut task = Task::new(async move { ticket.turn::<ByHand>(None).await });
            assert!(task.poll().is_pending());
            task
        };
        let _before: Vec<_> = (0..before).map(|_| left_alone()).collect();
        let mut other = join();
        let turn = Turn::Query { notified: None };
        let started = Instant::now();
        assert_eq!(other.wait(Some(started + LIMIT)), turn);
        let _after: Vec<_> = (0..after).map(|_| left_alone()).collect();
        other.record_refusal();
        assert_eq!(other.wait(Some(started + LIMIT)), turn);
        assert!(
            started.elapsed() < LIMIT,
            "{before}, {after}: nobody watched the time"
        );
    }
}

/// The thread that watches the time leaves, and the futures that replace it are left alone.
#[test]
fn sleeping_waiter_outlasts_futures_that_replace_its_watcher() {
    let queues = queues();
    let (_first, _) = queue_of(queues, 0);
    let join = |pause| {
        let mut ticket = queued_behind(queues).polling_within(HOUR);
        ticket.set_pause(Some(pause));
        ticket
    };
    let asleep = || {
        let all = queues.lock();
        let waiters = all.names["slots"].by_target[0].waiters.values();
        waiters.filter(|waiter| waiter.is_parked()).count()
    };
    let started = Instant::now();
    let mut watcher = join(HOUR);
    thread::scope(|scope| {
        scope.spawn(move || {
            assert_eq!(watcher.wait(None), NOTIFIED);
            watcher.record_refusal();
        });
        until(|| asleep() == 1);
        let other = scope.spawn(|| {
            let turn = join(Duration::from_millis(10)).wait(Some(started + LIMIT));
            assert_eq!(turn, Turn::Query { notified: None });
        });
        until(|| asleep() == 2);
        let _left_alone = [(); 2].map(|()| {
            let mut ticket = join(HOUR);
            let mut task = Task::new(async move { ticket.turn::<ByHand>(None).await });
            assert!(task.poll().is_pending());
            task
        });
        notify_first(queues);
        other.join().expect("no panic");
        assert!(started.elapsed() < LIMIT, "nobody watched the time");
    });
}

/// A waker of another runtime may drop a future, and with it a ticket, when it is called.
#[test]
fn wakers_are_called_without_the_lock_of_the_queues() {
    struct Unlocked(&'static Test, AtomicUsize);

    impl Wake for Unlocked {
        fn wake(self: Arc<Self>) {
            if self.0.by_name.try_lock().is_ok() {
                self.1.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    let queues = queues();
    let (_first, _) = queue_of(queues, 0);
    let mut ticket = queued_behind(queues);
    let unlocked = Arc::new(Unlocked(queues, AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&unlocked));
    let mut wait = Box::pin(ticket.turn::<ByHand>(None));
    let context = &mut Context::from_waker(&waker);
    assert!(wait.as_mut().poll(context).is_pending());
    notify_first(queues);
    assert_eq!(unlocked.1.load(Ordering::SeqCst), 1);
}

/// Clients hang up that came first, more often than the first one polls.
#[test]
fn waiters_that_leave_do_not_restart_a_pause() {
    let queues = queues();
    // The test is not interrupted for so long.
    let pause = Duration::from_secs(1);
    let started = Instant::now();
    let first = pausing(refused(queues, 0), pause);
    let mut tasks = VecDeque::from([first, pausing(queued_behind(queues), pause)]);
    loop {
        assert!(started.elapsed() < LIMIT, "none polls");
        tasks.pop_front();
        tasks.push_back(pausing(queued_behind(queues), pause));
        if let Poll::Ready((turn, _)) = tasks[0].poll() {
            assert_eq!(turn, Turn::Query { notified: None });
            break;
        }
    }
    assert!(started.elapsed() >= pause);
}
