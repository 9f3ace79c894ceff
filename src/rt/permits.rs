//! Permits: at most a number of holders at a time, first come, first served. Not tokio's semaphore: threads wait too, and the
//! limit may change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Instant;

use crate::rt::stop_token::{StopToken, StopWatch};
use crate::rt::{self, Polled, lock};

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

/// Public as an argument of the sealed trait `Pool`.
#[allow(unreachable_pub, reason = "without the features of pools")]
pub struct Permit(Arc<Permits>);

impl Permits {
    /// Waits for one of `limit` permits. Returns `None` when the time is up, or after a stop.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        limit: usize,
        deadline: Option<Instant>,
        stop: Option<&StopToken>,
    ) -> Option<Permit> {
        let number = {
            let mut state = lock(&self.0);
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
        let mut stop = StopWatch::new(stop);
        let _turn = Turn(self, number);
        // The limit may have become larger.
        self.hand_over();
        rt::wait(|waker| {
            let is_over =
                stop.is_stopped(waker) || deadline.is_some_and(|time| Instant::now() >= time);
            let mut state = lock(&self.0);
            let replaced = match state.waiters.get_mut(&number) {
                Some(Waiter::Granted) => {
                    state.waiters.remove(&number);
                    return Polled::Ready(Some(Permit(Arc::clone(self))));
                }
                Some(Waiter::Waiting(last)) if !is_over => last.replace(waker.clone()),
                Some(Waiter::Waiting(_)) | None => return Polled::Ready(None),
            };
            // Without the lock: a waker may own anything.
            drop(state);
            drop(replaced);
            Polled::Pending { until: deadline }
        })
        .await
    }

    fn hand_over(&self) {
        let mut wakers = Vec::new();
        let mut state = lock(&self.0);
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
        lock(&self.0).held -= 1;
        self.hand_over();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// The turn of the waiter with this number, who leaves when it is dropped.
struct Turn<'a>(&'a Permits, u64);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let waiter = lock(&self.0.0).waiters.remove(&self.1);
        // It has not used the permit that was handed over to it.
        if let Some(Waiter::Granted) = waiter {
            self.0.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::Ordering;
    use std::task::{Context, Poll};

    use super::*;
    use crate::rt::block_on;
    use crate::rt::tests::Wakes;

    fn try_acquire(permits: &Arc<Permits>, limit: usize) -> Option<Permit> {
        block_on(permits.acquire(limit, Some(Instant::now()), None))
    }

    #[test]
    fn permits_are_limited_and_return() {
        let permits = Arc::default();
        let mut held: Vec<_> = (0..5).map_while(|_| try_acquire(&permits, 3)).collect();
        assert_eq!(held.len(), 3);
        assert!(lock(&permits.0).waiters.is_empty(), "the fourth has left");
        held.pop();
        held.extend(try_acquire(&permits, 3));
        assert_eq!(held.len(), 3);
        held.extend((0..5).map_while(|_| try_acquire(&permits, 5)));
        assert_eq!(held.len(), 5, "the limit has grown");
        held.clear();
        assert_eq!(lock(&permits.0).held, 0);
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
        assert_eq!(lock(&permits.0).held, 0);
    }

    #[cfg(feature = "_async")]
    #[test]
    fn stop_wakes_each_waiter_once() {
        const WAITERS: usize = 1000;
        let permits = Arc::default();
        let _held = try_acquire(&permits, 1).expect("free");
        let stop = StopToken::new();
        let calls: Arc<Wakes> = Arc::default();
        let other = Waker::from(Arc::clone(&calls));
        let _registration = stop.on_stop(&other);
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
        assert_eq!(calls.0.load(Ordering::SeqCst), 1);
        assert_eq!(woken.0.load(Ordering::SeqCst), WAITERS);
    }
}
