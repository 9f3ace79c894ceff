//! Permits: at most a number of holders at a time, first come, first served. Not tokio's semaphore: threads wait too, and the
//! limit may change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

use crate::rt;
use crate::rt::stop_token::{StopToken, StopWatch};
use crate::rt::{Event, Polled};

#[derive(Default)]
pub(crate) struct Permits(Mutex<State>);

#[derive(Default)]
struct State {
    limit: usize,
    held: usize,
    next: u64,
    waiters: BTreeMap<u64, Waiter>,
}

enum Waiter {
    Waiting(Option<Waker>),
    /// A permit was handed over to it.
    Granted,
}

pub(crate) struct Permit(Arc<Permits>);

impl Permits {
    /// Waits for one of `limit` permits. Returns `None` when the time is up, or after a stop.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        limit: usize,
        deadline: Option<Instant>,
        stop: Option<&StopToken>,
    ) -> Option<Permit> {
        let number = {
            let mut state = self.lock();
            state.limit = limit;
            if state.held < limit && state.waiters.is_empty() {
                state.held += 1;
                return Some(Permit(Arc::clone(self)));
            }
            let number = state.next;
            state.next += 1;
            state.waiters.insert(number, Waiter::Waiting(None));
            number
        };
        let turn = Turn {
            permits: self,
            number,
            deadline,
            stop: StopWatch::new(stop),
        };
        // The limit may have become larger.
        self.hand_over();
        rt::wait(turn).await
    }

    fn hand_over(&self) {
        let mut wakers = Vec::new();
        let mut state = self.lock();
        while state.held < state.limit {
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
            state.held += 1;
        }
        // Without the lock: a waker may run anything.
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn release(&self) {
        self.lock().held -= 1;
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

struct Turn<'a> {
    permits: &'a Arc<Permits>,
    number: u64,
    deadline: Option<Instant>,
    stop: StopWatch<'a>,
}

impl Event for Turn<'_> {
    type Value = Option<Permit>;

    fn poll(&mut self, waker: &Waker) -> Polled<Option<Permit>> {
        let is_over =
            self.stop.is_stopped(waker) || self.deadline.is_some_and(|time| Instant::now() >= time);
        let mut state = self.permits.lock();
        let replaced = match state.waiters.get_mut(&self.number) {
            Some(Waiter::Granted) => {
                state.waiters.remove(&self.number);
                return Polled::Ready(Some(Permit(Arc::clone(self.permits))));
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
        let waiter = self.permits.lock().waiters.remove(&self.number);
        // It has not used the permit that was handed over to it.
        if let Some(Waiter::Granted) = waiter {
            self.permits.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake};
    use std::thread;

    use super::*;
    use crate::rt::block_on;

    fn try_acquire(permits: &Arc<Permits>, limit: usize) -> Option<Permit> {
        block_on(permits.acquire(limit, Some(Instant::now()), None))
    }

    #[test]
    fn permits_are_limited_and_return() {
        let permits = Arc::default();
        let mut held: Vec<_> = (0..3).filter_map(|_| try_acquire(&permits, 3)).collect();
        assert_eq!(held.len(), 3);
        assert!(try_acquire(&permits, 3).is_none());
        assert!(permits.lock().waiters.is_empty(), "it has left");
        held.pop();
        held.extend(try_acquire(&permits, 3));
        assert_eq!(held.len(), 3);
        held.clear();
        assert_eq!(permits.lock().held, 0);
    }

    #[test]
    fn limit_may_grow() {
        let permits = Arc::default();
        let held: Vec<_> = (0..5).map_while(|_| try_acquire(&permits, 3)).collect();
        assert_eq!(held.len(), 3);
        let more: Vec<_> = (0..5).map_while(|_| try_acquire(&permits, 5)).collect();
        assert_eq!(more.len(), 2);
    }

    #[test]
    fn stop_ends_a_wait() {
        let permits = Arc::default();
        let _held = try_acquire(&permits, 1).expect("free");
        let stop = StopToken::new();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| block_on(permits.acquire(1, None, Some(&stop))));
            while permits.lock().waiters.is_empty() {
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

    #[cfg(feature = "_async")]
    #[test]
    fn waiters_are_served_in_order_and_a_dropped_one_passes_its_permit_on() {
        let permits = Arc::default();
        let held = try_acquire(&permits, 1).expect("free");
        let counts: [Arc<Wakes>; 3] = Default::default();
        let wakers = counts
            .each_ref()
            .map(|count| Waker::from(Arc::clone(count)));
        let count = |waiter: usize| counts[waiter].0.load(Ordering::SeqCst);
        let acquire = || permits.acquire(1, None, None);
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
        assert_eq!(permits.lock().held, 0);
    }

    #[cfg(feature = "_async")]
    #[test]
    fn stop_wakes_each_waiter_once() {
        const WAITERS: usize = 1000;
        let permits = Arc::default();
        let _held = try_acquire(&permits, 1).expect("free");
        let stop = StopToken::new();
        let calls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&calls);
        let _registration = stop.on_stop(move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        let woken = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let acquire = || Box::pin(permits.acquire(1, None, Some(&stop)));
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
    fn threads_never_hold_more() {
        let permits: Arc<Permits> = Arc::default();
        let holders = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let held = block_on(permits.acquire(3, None, None));
                        assert!(holders.fetch_add(1, Ordering::SeqCst) < 3);
                        holders.fetch_sub(1, Ordering::SeqCst);
                        drop(held.expect("no limit"));
                    }
                });
            }
        });
        let state = permits.lock();
        assert!(state.waiters.is_empty() && state.held == 0);
    }
}
