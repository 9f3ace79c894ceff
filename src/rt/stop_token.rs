//! A flag that ends waits.

use std::collections::BTreeMap;
use std::iter;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::rt::{self, Polled, lock};

/// A flag that ends the waits of a `LockPool` or a `SlotRenewer` when it is stopped: because the client of a request has hung
/// up, or the process is to end. Clones are the same token, which stays stopped. A wait that begins then ends at once.
///
/// ```
/// use diesel_locks::StopToken;
///
/// let shutdown = StopToken::new(); // of the process
/// let request = shutdown.child(); // of one request
/// let hang_up = request.stop_on_drop();
///
/// drop(hang_up); // the handler's future was dropped
/// assert!(request.is_stopped() && !shutdown.is_stopped());
/// ```
///
/// An asynchronous handler. When the client hangs up, the framework drops the future, and with it the guard:
///
/// ```
/// use diesel_locks::StopToken;
/// # use diesel_locks::Error;
/// # #[derive(Clone)] struct Service { shutdown: StopToken }
/// # impl Service {
/// #     fn deposit(&self, _: &StopToken, _: i64, _: i64) -> Result<(), Error> { Ok(()) }
/// #     fn status(_: &Error) -> u16 { 503 }
/// # }
/// # mod tokio { pub mod task {
/// #     pub async fn spawn_blocking<T>(work: impl FnOnce() -> T) -> Result<T, std::convert::Infallible> { Ok(work()) }
/// # } }
///
/// /// The HTTP status.
/// async fn deposit(service: Service, account: i64, amount: i64) -> u16 {
///     let client = service.shutdown.child();
///     let _hang_up = client.stop_on_drop(); // a name: `_` alone would drop it at once
///     let client = client.clone();
///     let work = tokio::task::spawn_blocking(move || service.deposit(&client, account, amount));
///     match work.await {
///         Ok(Ok(())) => 204,
///         Ok(Err(error)) => Service::status(&error),
///         Err(_panicked) => 500,
///     }
/// }
/// ```
#[derive(Clone, Default)]
#[doc(alias("CancellationToken", "cancel", "abort", "shutdown", "interrupt"))]
pub struct StopToken(Arc<State>);

#[derive(Default)]
struct State {
    is_stopped: AtomicBool,
    waiters: Mutex<Waiters>,
    parent: Option<StopToken>,
}

#[derive(Default)]
struct Waiters {
    next: u64,
    /// Of those that wait on this token, or on a child of it.
    by_number: BTreeMap<u64, Waker>,
}

impl StopToken {
    /// Creates a token that is not stopped.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a token that is stopped when this one is stopped. Stopping the child does not stop this one.
    #[must_use]
    pub fn child(&self) -> Self {
        Self(Arc::new(State {
            is_stopped: AtomicBool::default(),
            waiters: Mutex::default(),
            parent: Some(self.clone()),
        }))
    }

    /// Stops the token, and wakes all that wait on it. Returns without waiting for them.
    #[doc(alias("cancel"))]
    pub fn stop(&self) {
        if self.0.is_stopped.swap(true, Ordering::SeqCst) {
            return;
        }
        // Without the lock: a waker may run anything.
        let wakers: Vec<Waker> = lock(&self.0.waiters).by_number.values().cloned().collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns whether the token is stopped.
    pub fn is_stopped(&self) -> bool {
        let mut tokens = self.with_ancestors();
        tokens.any(|token| token.0.is_stopped.load(Ordering::SeqCst))
    }

    fn with_ancestors(&self) -> impl Iterator<Item = &Self> {
        iter::successors(Some(self), |&token| token.0.parent.as_ref())
    }

    /// Blocks the thread for `duration`, and returns true; or false as soon as the token is stopped, or if it was before. The
    /// condition of a loop, as [`ActiveSlot::sleep`](crate::ActiveSlot::sleep), which is for tasks too.
    ///
    /// ```
    /// # let shutdown = diesel_locks::StopToken::new();
    /// # let signal = shutdown.clone();
    /// # let mut rounds = 0;
    /// while shutdown.sleep(std::time::Duration::from_millis(10)) {
    ///     // every 10 ms, until the process is to end
    ///     # rounds += 1;
    ///     # if rounds == 2 { signal.stop() }
    /// }
    /// # assert_eq!(rounds, 2);
    /// ```
    #[allow(clippy::must_use_candidate, reason = "a pause that a stop cuts short")]
    #[doc(alias("wait", "cancelled", "tick"))]
    pub fn sleep(&self, duration: Duration) -> bool {
        rt::block_on(self.pause(duration));
        !self.is_stopped()
    }

    /// Waits until the token is stopped; not at all if it is. For `select!` beside the work of a task.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let shutdown = diesel_locks::StopToken::new();
    /// let signal = shutdown.clone();
    /// tokio::spawn(async move { signal.stop() });
    /// shutdown.stopped().await;
    /// assert!(shutdown.is_stopped());
    /// # }
    /// ```
    #[cfg(feature = "_async_pool")]
    #[doc(alias("cancelled", "wait"))]
    pub async fn stopped(&self) {
        self.pause(Duration::MAX).await;
    }

    pub(crate) async fn pause(&self, time: Duration) {
        stop_or_end(Some(self), Instant::now().checked_add(time)).await;
    }

    /// Returns a guard that stops the token when it is dropped. Keep it in the future of an asynchronous handler: it is
    /// dropped when the client hangs up.
    pub fn stop_on_drop(&self) -> StopOnDrop {
        StopOnDrop(self.clone())
    }

    /// Has `waker` woken when this token, and not a parent, is stopped, until the registration is dropped; or at once, if it is
    /// stopped. Once: [`stop`](Self::stop) sets the flag before it takes the lock, so either this sees the flag, or that sees the
    /// waker. The call may overlap with this one, and with the drop of the registration.
    pub(crate) fn on_stop(&self, waker: &Waker) -> Registration {
        let mut waiters = lock(&self.0.waiters);
        let number = waiters.next;
        waiters.next += 1;
        if self.0.is_stopped.load(Ordering::SeqCst) {
            drop(waiters);
            waker.wake_by_ref();
        } else {
            waiters.by_number.insert(number, waker.clone());
        }
        Registration {
            token: self.clone(),
            number,
        }
    }
}

/// Drops the parents that only this child has kept, one after the other: a chain of them may be longer than the stack allows.
impl Drop for State {
    fn drop(&mut self) {
        let mut parent = self.parent.take();
        while let Some(StopToken(state)) = parent {
            parent = Arc::into_inner(state).and_then(|mut state| state.parent.take());
        }
    }
}

impl std::fmt::Debug for StopToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StopToken")
            .field("stopped", &self.is_stopped())
            .finish_non_exhaustive()
    }
}

pub(crate) struct Registration {
    token: StopToken,
    number: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let waker = lock(&self.token.0.waiters).by_number.remove(&self.number);
        // Without the lock: it may own anything.
        drop(waker);
    }
}

pub(crate) struct StopWatch<'a> {
    stop: Option<&'a StopToken>,
    /// Wake the thread or task that waits, by this waker.
    registered: Option<(Waker, Vec<Registration>)>,
}

impl<'a> StopWatch<'a> {
    pub(crate) fn new(stop: Option<&'a StopToken>) -> Self {
        Self {
            stop,
            registered: None,
        }
    }

    /// Returns whether the token is stopped. If not, its stop wakes this waker. To be called without a lock: if the token is
    /// stopped meanwhile, the waker is woken at once, which may do anything.
    pub(crate) fn is_stopped(&mut self, waker: &Waker) -> bool {
        let Some(stop) = self.stop else {
            return false;
        };
        let last = self.registered.as_ref().map(|(last, _)| last);
        if !stop.is_stopped() && !last.is_some_and(|last| last.will_wake(waker)) {
            let tokens = stop.with_ancestors();
            let registrations = tokens.map(|token| token.on_stop(waker)).collect();
            self.registered = Some((waker.clone(), registrations));
        }
        stop.is_stopped()
    }
}

/// Waits until the token is stopped, or until `end`.
pub(crate) async fn stop_or_end(stop: Option<&StopToken>, end: Option<Instant>) {
    let mut stop = StopWatch::new(stop);
    rt::wait(|waker| {
        let has_ended = end.is_some_and(|end| Instant::now() >= end);
        if has_ended || stop.is_stopped(waker) {
            return Polled::Ready(());
        }
        Polled::Pending { until: end }
    })
    .await;
}

/// Stops a [`StopToken`] when it is dropped; see [`StopToken::stop_on_drop`].
#[derive(Debug)]
#[must_use = "dropping the guard stops the token"]
pub struct StopOnDrop(StopToken);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;
    use crate::rt::tests::Wakes;

    fn counted() -> (Arc<Wakes>, Waker) {
        let wakes: Arc<Wakes> = Arc::default();
        (Arc::clone(&wakes), wakes.into())
    }

    #[test]
    fn waker_may_own_a_registration() {
        struct Owner {
            _registration: Registration,
        }

        impl Wake for Owner {
            fn wake(self: Arc<Self>) {}
        }

        let token = StopToken::new();
        let owner = || {
            Waker::from(Arc::new(Owner {
                _registration: token.on_stop(Waker::noop()),
            }))
        };
        drop(token.on_stop(&owner()));
        let _last = token.on_stop(&owner());
        token.stop();
    }

    #[test]
    fn stop_wakes_each_registered_waker_and_no_dropped_one() {
        let token = StopToken::new();
        let (calls, waker) = counted();
        let _kept = token.on_stop(&waker);
        drop(token.on_stop(&waker));
        token.clone().stop();
        assert_eq!(calls.0.load(Ordering::SeqCst), 1);
        token.stop();
        assert_eq!(calls.0.load(Ordering::SeqCst), 1, "stopped before");
        let _late = token.on_stop(&waker);
        assert_eq!(calls.0.load(Ordering::SeqCst), 2, "the new one only");
    }

    #[test]
    fn waker_that_is_registered_during_a_stop_is_woken_once() {
        for _ in 0..1000 {
            let token = StopToken::new();
            let (calls, waker) = counted();
            std::thread::scope(|scope| {
                scope.spawn(|| token.stop());
                let registration = token.on_stop(&waker);
                while calls.0.load(Ordering::SeqCst) == 0 {
                    std::thread::yield_now();
                }
                drop(registration);
            });
            assert_eq!(calls.0.load(Ordering::SeqCst), 1);
        }
    }

    #[test]
    fn child_is_stopped_with_its_parent_and_not_the_other_way_round() {
        let parent = StopToken::new();
        let (first, second) = (parent.child(), parent.child());
        let grandchild = first.child();
        first.stop();
        assert!(grandchild.is_stopped());
        assert!(!parent.is_stopped() && !second.is_stopped());
        parent.stop();
        assert!(second.is_stopped());
        assert!(parent.child().is_stopped());
    }

    #[test]
    fn chain_of_children_may_be_long() {
        const CHILDREN: usize = 100_000;
        let parent = StopToken::new();
        let mut last = parent.child();
        for _ in 0..CHILDREN {
            last = last.child();
        }
        parent.stop();
        assert!(last.is_stopped());
        // Nor does its end overflow the stack.
        drop(last);
    }

    #[test]
    fn sleep_returns_true_after_its_time_and_false_at_a_stop() {
        let token = StopToken::new();
        assert!(token.sleep(Duration::from_millis(1)));
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| token.sleep(Duration::MAX));
            token.stop();
            assert!(!sleeper.join().expect("no panic"));
        });
        assert!(!token.sleep(Duration::ZERO), "stopped before");
    }

    #[test]
    fn stop_ends_the_sleep_of_a_grandchild() {
        let token = StopToken::new();
        let grandchild = token.child().child();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| grandchild.sleep(Duration::MAX));
            while lock(&token.0.waiters).by_number.is_empty() {
                std::thread::yield_now();
            }
            token.stop();
            assert!(!sleeper.join().expect("no panic"));
        });
    }
}
