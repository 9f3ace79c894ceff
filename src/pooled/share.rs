//! How many connections of a pool requests may borrow at the same time: one is left to other users of the pool.
//!
//! The pool's own queue is shared with these users. When thousands of requests stand in it, a health check waits behind them.
//! So they wait here, and dropping one leaves nothing in the pool's queue. A request that stays in the queue of bb8 when it is
//! dropped keeps its permit until it has left that.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

use crate::stop::{Registration, StopToken};
use crate::timer::{Event, Polled, Timer};

/// From this number of connections on, one is left to others.
const SMALLEST_SHARED_POOL: usize = 4;

/// The number of connections of a pool of this size that requests may borrow at the same time. Any number of a pool without
/// connections: deadpool sets its size to 0 when it is closed, and tells it to each request.
fn share_of(pool_size: usize) -> usize {
    match pool_size {
        0 => usize::MAX,
        1..SMALLEST_SHARED_POOL => pool_size,
        _ => pool_size - 1,
    }
}

/// The requests that borrow or wait. Not tokio's semaphore: threads wait too, and a pool may be resized.
#[derive(Default)]
pub(super) struct Share(Mutex<State>);

#[derive(Default)]
struct State {
    /// The largest number of borrowed connections.
    limit: usize,
    /// The number of permits.
    borrowed: usize,
    /// The number of the next waiter.
    next: u64,
    /// In the order in which they came.
    waiters: BTreeMap<u64, Waiter>,
}

enum Waiter {
    Waiting(Option<Waker>),
    /// A permit was handed over to it.
    Granted,
}

/// The right to borrow a connection, until it is dropped.
pub(super) struct Permit(Arc<Share>);

impl Share {
    /// Waits for a permit, first come, first served. Returns `None` when the time is up, or after a stop.
    pub(super) async fn acquire<T: Timer>(
        self: &Arc<Self>,
        pool_size: usize,
        deadline: Option<Instant>,
        stop: Option<&StopToken>,
    ) -> Option<Permit> {
        let number = {
            let mut state = self.lock();
            state.limit = share_of(pool_size);
            if state.borrowed < state.limit && state.waiters.is_empty() {
                state.borrowed += 1;
                return Some(Permit(Arc::clone(self)));
            }
            let number = state.next;
            state.next += 1;
            state.waiters.insert(number, Waiter::Waiting(None));
            number
        };
        let turn = Turn {
            share: self,
            number,
            deadline,
            stop,
            registration: None,
        };
        // The pool may have become larger.
        self.hand_over();
        T::wait(turn).await
    }

    /// Hands free permits over to the first waiters.
    fn hand_over(&self) {
        let mut wakers = Vec::new();
        let mut state = self.lock();
        while state.borrowed < state.limit {
            let mut waiters = state.waiters.values_mut();
            let Some((waiter, waker)) = waiters.find_map(|waiter| match waiter {
                Waiter::Waiting(waker) => {
                    let waker = waker.take();
                    Some((waiter, waker))
                }
                Waiter::Granted => None,
            }) else {
                break;
            };
            *waiter = Waiter::Granted;
            wakers.extend(waker);
            state.borrowed += 1;
        }
        // Without the lock: a waker may run anything.
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn release(&self) {
        self.lock().borrowed -= 1;
        self.hand_over();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// The turn of a waiter.
struct Turn<'a> {
    share: &'a Arc<Share>,
    number: u64,
    deadline: Option<Instant>,
    stop: Option<&'a StopToken>,
    /// Wakes the waiter at a stop, by this waker.
    registration: Option<(Waker, Registration)>,
}

impl Turn<'_> {
    /// Returns whether the wait is stopped. If not, a stop wakes the waiter.
    fn is_stopped(&mut self, waker: &Waker) -> bool {
        let Some(stop) = self.stop else {
            return false;
        };
        let registered = self.registration.as_ref();
        if stop.is_stopped() || registered.is_some_and(|(last, _)| last.will_wake(waker)) {
            return stop.is_stopped();
        }
        let called = waker.clone();
        // Called at once if the token is stopped by now.
        let registration = stop.on_stop(move || called.wake_by_ref());
        self.registration = Some((waker.clone(), registration));
        stop.is_stopped()
    }
}

impl Event for Turn<'_> {
    type Value = Option<Permit>;

    fn poll(&mut self, waker: &Waker) -> Polled<Option<Permit>> {
        let is_over =
            self.is_stopped(waker) || self.deadline.is_some_and(|time| Instant::now() >= time);
        let mut state = self.share.lock();
        let replaced = match state.waiters.get_mut(&self.number) {
            Some(Waiter::Granted) => {
                state.waiters.remove(&self.number);
                return Polled::Ready(Some(Permit(Arc::clone(self.share))));
            }
            Some(Waiter::Waiting(last)) if !is_over => last.replace(waker.clone()),
            Some(Waiter::Waiting(_)) | None => return Polled::Ready(None),
        };
        // Without the lock: a waker may own anything.
        drop(state);
        drop(replaced);
        Polled::Pending {
            until: self.deadline,
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let waiter = self.share.lock().waiters.remove(&self.number);
        // It has not used the permit that was handed over to it.
        if let Some(Waiter::Granted) = waiter {
            self.share.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake};
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::poll::poll_once;
    use crate::timer::thread::ThreadTimer;

    fn try_acquire(share: &Arc<Share>, size: usize) -> Option<Permit> {
        poll_once(share.acquire::<ThreadTimer>(size, Some(Instant::now()), None))
    }

    #[test]
    fn one_of_four_connections_is_left_to_others() {
        for (size, share) in [(0, usize::MAX), (1, 1), (2, 2), (3, 3), (4, 3), (16, 15)] {
            assert_eq!(share_of(size), share, "of {size}");
        }
    }

    #[test]
    fn permits_are_limited_and_return() {
        let share = Arc::default();
        let mut held: Vec<_> = (0..3).filter_map(|_| try_acquire(&share, 4)).collect();
        assert_eq!(held.len(), 3);
        assert!(try_acquire(&share, 4).is_none());
        assert!(share.lock().waiters.is_empty(), "it has left");
        held.pop();
        held.extend(try_acquire(&share, 4));
        assert_eq!(held.len(), 3);
        held.clear();
        assert_eq!(share.lock().borrowed, 0);
    }

    #[test]
    fn larger_pool_has_more_permits() {
        let share = Arc::default();
        let held: Vec<_> = (0..5).map_while(|_| try_acquire(&share, 4)).collect();
        assert_eq!(held.len(), 3);
        let more: Vec<_> = (0..5).map_while(|_| try_acquire(&share, 6)).collect();
        assert_eq!(more.len(), 2);
    }

    #[test]
    fn stop_ends_a_wait() {
        let share = Arc::default();
        let _held = try_acquire(&share, 1).expect("free");
        let stop = StopToken::new();
        thread::scope(|scope| {
            let waiter =
                scope.spawn(|| poll_once(share.acquire::<ThreadTimer>(1, None, Some(&stop))));
            while share.lock().waiters.is_empty() {
                thread::yield_now();
            }
            stop.stop();
            assert!(waiter.join().expect("no panic").is_none());
        });
    }

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Waits as a task does that its executor polls.
    enum Polls {}

    impl Timer for Polls {
        const MAY_STALL: bool = true;

        async fn pause(_: Duration) {}

        async fn wait<E: Event>(mut event: E) -> E::Value {
            std::future::poll_fn(|context| match event.poll(context.waker()) {
                Polled::Ready(value) => Poll::Ready(value),
                Polled::Pending { .. } => Poll::Pending,
            })
            .await
        }

        fn spawn(_: &str, _: impl Future<Output = ()> + Send + 'static) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn waiters_are_served_in_order_and_a_dropped_one_passes_its_permit_on() {
        let share = Arc::default();
        let held = try_acquire(&share, 1).expect("free");
        let counts: [Arc<Wakes>; 3] = Default::default();
        let wakers = counts
            .each_ref()
            .map(|count| Waker::from(Arc::clone(count)));
        let count = |waiter: usize| counts[waiter].0.load(Ordering::SeqCst);
        let acquire = || share.acquire::<Polls>(1, None, None);
        let mut first = Box::pin(acquire());
        let (mut second, mut third) = (pin!(acquire()), pin!(acquire()));
        let [one, two, three] = wakers.each_ref().map(Context::from_waker);
        let (mut one, mut two, mut three) = (one, two, three);
        assert!(first.as_mut().poll(&mut one).is_pending());
        assert!(second.as_mut().poll(&mut two).is_pending());
        assert!(third.as_mut().poll(&mut three).is_pending());
        drop(held);
        assert_eq!([0, 1, 2].map(count), [1, 0, 0]);
        // Granted, and not polled again.
        drop(first);
        assert_eq!([0, 1, 2].map(count), [1, 1, 0]);
        assert!(third.as_mut().poll(&mut three).is_pending());
        let Poll::Ready(Some(held)) = second.as_mut().poll(&mut two) else {
            panic!("it has the permit");
        };
        drop(held);
        assert_eq!([0, 1, 2].map(count), [1, 1, 1]);
        assert!(third.as_mut().poll(&mut three).is_ready());
        assert_eq!(share.lock().borrowed, 0);
    }

    #[test]
    fn stop_wakes_each_waiter_once() {
        const WAITERS: usize = 1000;
        let share = Arc::default();
        let _held = try_acquire(&share, 1).expect("free");
        let stop = StopToken::new();
        let calls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&calls);
        let _registration = stop.on_stop(move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        let woken = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let acquire = || Box::pin(share.acquire::<Polls>(1, None, Some(&stop)));
        let mut waiters: Vec<_> = (0..WAITERS).map(|_| acquire()).collect();
        for waiter in &mut waiters {
            // The second one changes nothing.
            assert!(waiter.as_mut().poll(&mut context).is_pending());
            assert!(waiter.as_mut().poll(&mut context).is_pending());
        }
        stop.stop();
        for waiter in &mut waiters {
            assert!(matches!(
                waiter.as_mut().poll(&mut context),
                Poll::Ready(None)
            ));
        }
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        assert_eq!(woken.0.load(Ordering::SeqCst), WAITERS);
    }

    #[test]
    fn threads_never_borrow_more() {
        let share: Arc<Share> = Arc::default();
        let borrowed = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let held = poll_once(share.acquire::<ThreadTimer>(4, None, None));
                        assert!(borrowed.fetch_add(1, Ordering::SeqCst) < 3);
                        borrowed.fetch_sub(1, Ordering::SeqCst);
                        drop(held.expect("no limit"));
                    }
                });
            }
        });
        let state = share.lock();
        assert!(state.waiters.is_empty() && state.borrowed == 0);
    }
}
