//! A flag that ends waits.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::rt;
use crate::rt::{Event, Polled};

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
    stopped: AtomicBool,
    callbacks: Mutex<Callbacks>,
    /// Removes a child from its parent.
    parent: Option<Registration>,
}

#[derive(Default)]
struct Callbacks {
    next: u64,
    by_number: BTreeMap<u64, Callback>,
}

#[derive(Clone)]
enum Callback {
    Wake(Arc<dyn Fn() + Send + Sync>),
    /// Not a call of its stop: a chain of children may be longer than the stack allows.
    Stop(Weak<State>),
}

impl StopToken {
    /// Creates a token that is not stopped.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a token that is stopped when this one is stopped. Stopping the child does not stop this one.
    #[must_use]
    pub fn child(&self) -> Self {
        let child = Arc::new_cyclic(|child| State {
            stopped: AtomicBool::default(),
            callbacks: Mutex::default(),
            parent: Some(self.register(Callback::Stop(Weak::clone(child)))),
        });
        // The parent may have been stopped before the child was complete.
        if self.is_stopped() {
            child.stop();
        }
        Self(child)
    }

    /// Stops the token, and wakes all that wait on it. Returns without waiting for them.
    #[doc(alias("cancel"))]
    pub fn stop(&self) {
        self.0.stop();
    }

    /// Returns whether the token is stopped.
    pub fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::SeqCst)
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
        rt::wait(StopOrEnd {
            stop: StopWatch::new(Some(self)),
            end: Instant::now().checked_add(time),
        })
        .await;
    }

    /// Returns a guard that stops the token when it is dropped. Keep it in the future of an asynchronous handler: it is
    /// dropped when the client hangs up.
    pub fn stop_on_drop(&self) -> StopOnDrop {
        StopOnDrop(self.clone())
    }

    /// Has `wake` called when the token is stopped, until the registration is dropped; or at once, if it is stopped. Once:
    /// [`stop`](Self::stop) sets the flag before it takes the lock, so either this sees the flag, or that sees the callback.
    /// The call may overlap with this one, and with the drop of the registration.
    pub(crate) fn on_stop(&self, wake: impl Fn() + Send + Sync + 'static) -> Registration {
        self.register(Callback::Wake(Arc::new(wake)))
    }

    fn register(&self, callback: Callback) -> Registration {
        let mut callbacks = self.0.lock();
        let number = callbacks.next;
        callbacks.next += 1;
        if self.is_stopped() {
            drop(callbacks);
            // Not those of others: each of them was called, or is about to be. A child that is not complete yet stops itself.
            if let Callback::Wake(wake) = callback {
                wake();
            }
        } else {
            callbacks.by_number.insert(number, callback);
        }
        Registration {
            token: Arc::clone(&self.0),
            number,
        }
    }
}

impl State {
    fn stop(&self) {
        let mut children = Vec::new();
        self.stop_alone(&mut children);
        while let Some(child) = children.pop() {
            child.stop_alone(&mut children);
        }
    }

    fn stop_alone(&self, children: &mut Vec<Arc<Self>>) {
        let was_stopped = self.stopped.swap(true, Ordering::SeqCst);
        if was_stopped {
            return;
        }
        // Without the lock: a callback may drop the last clone of a child, which removes itself.
        let callbacks: Vec<_> = self.lock().by_number.values().cloned().collect();
        for callback in callbacks {
            match callback {
                Callback::Wake(wake) => wake(),
                Callback::Stop(child) => children.extend(child.upgrade()),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Callbacks> {
        self.callbacks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops the parents that only this child has kept, one after the other: a chain of them may be longer than the stack allows.
impl Drop for State {
    fn drop(&mut self) {
        let mut parent = self.parent.take();
        while let Some(registration) = parent {
            let token = Arc::clone(&registration.token);
            drop(registration);
            parent = Arc::into_inner(token).and_then(|mut token| token.parent.take());
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
    token: Arc<State>,
    number: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let callback = self.token.lock().by_number.remove(&self.number);
        // Without the lock: it may own the last clone of a child, which removes itself.
        drop(callback);
    }
}

pub(crate) struct StopWatch<'a> {
    stop: Option<&'a StopToken>,
    /// Wakes the thread or task that waits, by this waker.
    registration: Option<(Waker, Registration)>,
}

impl<'a> StopWatch<'a> {
    pub(crate) fn new(stop: Option<&'a StopToken>) -> Self {
        Self {
            stop,
            registration: None,
        }
    }

    /// Returns whether the token is stopped. If not, its stop wakes this waker. To be called without a lock: if the token is
    /// stopped meanwhile, the waker is woken at once, which may do anything.
    pub(crate) fn is_stopped(&mut self, waker: &Waker) -> bool {
        let Some(stop) = self.stop else {
            return false;
        };
        let registered = self.registration.as_ref();
        if !stop.is_stopped() && !registered.is_some_and(|(last, _)| last.will_wake(waker)) {
            let woken = waker.clone();
            let registration = stop.on_stop(move || woken.wake_by_ref());
            self.registration = Some((waker.clone(), registration));
        }
        stop.is_stopped()
    }
}

pub(crate) struct StopOrEnd<'a> {
    pub(crate) stop: StopWatch<'a>,
    pub(crate) end: Option<Instant>,
}

impl Event for StopOrEnd<'_> {
    type Value = ();

    fn poll(&mut self, waker: &Waker) -> Polled<()> {
        let has_ended = self.end.is_some_and(|end| Instant::now() >= end);
        if has_ended || self.stop.is_stopped(waker) {
            return Polled::Ready(());
        }
        Polled::Pending { until: self.end }
    }
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::StopToken;

    #[test]
    fn callback_may_own_the_last_clone_of_a_child() {
        let token = StopToken::new();
        let child = token.child();
        let registration = token.on_stop(move || child.stop());
        drop(registration);
        token.stop();
    }

    #[test]
    fn stop_calls_each_registered_callback_and_no_dropped_one() {
        let token = StopToken::new();
        let calls = Arc::new(AtomicUsize::new(0));
        let count = |calls: &Arc<AtomicUsize>| {
            let calls = Arc::clone(calls);
            move || {
                calls.fetch_add(1, Ordering::SeqCst);
            }
        };
        let _kept = token.on_stop(count(&calls));
        drop(token.on_stop(count(&calls)));
        token.clone().stop();
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        token.stop();
        assert_eq!(calls.load(Ordering::SeqCst), 1, "stopped before");
        let _late = token.on_stop(count(&calls));
        assert_eq!(calls.load(Ordering::SeqCst), 2, "the new one only");
    }

    #[test]
    fn callback_that_is_registered_during_a_stop_is_called_once() {
        for _ in 0..1000 {
            let token = StopToken::new();
            let calls = Arc::new(AtomicUsize::new(0));
            std::thread::scope(|scope| {
                scope.spawn(|| token.stop());
                let count = Arc::clone(&calls);
                let registration = token.on_stop(move || {
                    count.fetch_add(1, Ordering::SeqCst);
                });
                while calls.load(Ordering::SeqCst) == 0 {
                    std::thread::yield_now();
                }
                drop(registration);
            });
            assert_eq!(calls.load(Ordering::SeqCst), 1);
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
        drop(last);
        assert!(parent.0.lock().by_number.is_empty());
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
}
