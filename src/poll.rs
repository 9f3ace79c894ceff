//! Futures over connections, blocking ones among them.
//!
//! What this crate does with a connection is written once, as `async` functions. On a connection that blocks, each future is
//! ready when it is polled for the first time, so that [`poll_once`] runs it without a runtime, a thread or an allocation.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;

pub(crate) mod thread_waker;

/// Returns the result of a future over a connection that blocks.
///
/// # Panics
///
/// If the future is not ready, which is an error in this crate.
pub(crate) fn poll_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!(
            "a future over a blocking connection was not ready: this is an error in diesel-locks"
        ),
    }
}

/// Returns the result of the future, or its panic.
pub(crate) async fn caught<T>(future: impl Future<Output = T>) -> thread::Result<T> {
    let mut future = pin!(future);
    poll_fn(
        |context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Err(panic) => Poll::Ready(Err(panic)),
        },
    )
    .await
}

/// A closure that returns a future. Unlike that of `AsyncFnOnce` alone, the future has a name, so that a caller can require
/// that it is `Send`.
#[cfg_attr(
    not(feature = "_async"),
    allow(
        unreachable_pub,
        reason = "in public signatures of the asynchronous methods"
    )
)]
pub trait Work<T, R>: AsyncFnOnce(T) -> R + FnOnce(T) -> <Self as Work<T, R>>::Future {
    /// The future.
    type Future: Future<Output = R>;
}

impl<F, T, R, Fut> Work<T, R> for F
where
    F: AsyncFnOnce(T) -> R + FnOnce(T) -> Fut,
    Fut: Future<Output = R>,
{
    type Future = Fut;
}

/// [`Work`] that may run several times.
#[cfg_attr(
    not(feature = "_async"),
    allow(
        unreachable_pub,
        reason = "in public signatures of the asynchronous methods"
    )
)]
pub trait RepeatedWork<T, R>:
    AsyncFnMut(T) -> R + FnMut(T) -> <Self as RepeatedWork<T, R>>::Future
{
    /// The future.
    type Future: Future<Output = R>;
}

impl<F, T, R, Fut> RepeatedWork<T, R> for F
where
    F: AsyncFnMut(T) -> R + FnMut(T) -> Fut,
    Fut: Future<Output = R>,
{
    type Future = Fut;
}

/// A closure that blocks, as one that returns a future. Borrowed, because each `async` function through which it passes
/// would have room for what it captures.
///
/// # Panics
///
/// In the future, if the closure was called before.
pub(crate) fn blocking<C, R, F: FnOnce(&mut C) -> R>(
    work: &mut Option<F>,
) -> impl for<'r> Work<&'r mut C, R> {
    async move |conn: &mut C| work.take().expect("a closure that was not called")(conn)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::{pending, ready};

    use super::*;

    #[test]
    fn future_that_is_ready_is_run_to_its_end() {
        let steps = Cell::new(0);
        let result = poll_once(async {
            for _ in 0..3 {
                ready(()).await;
                steps.set(steps.get() + 1);
            }
            "done"
        });
        assert_eq!((result, steps.get()), ("done", 3));
    }

    #[test]
    #[should_panic(expected = "was not ready")]
    fn future_that_is_not_ready_panics() {
        poll_once(pending::<()>());
    }

    #[test]
    fn panics_are_caught_in_each_poll() {
        let polls = Cell::new(0);
        let mut future = pin!(caught(poll_fn(|_| {
            polls.set(polls.get() + 1);
            assert!(polls.get() < 2, "second poll");
            Poll::<()>::Pending
        })));
        let mut context = Context::from_waker(Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
        let Poll::Ready(Err(panic)) = future.as_mut().poll(&mut context) else {
            panic!("the panic was not caught");
        };
        assert_eq!(panic.downcast_ref(), Some(&"second poll"));
    }

    #[test]
    fn panics_of_blocking_closures_are_caught() {
        let mut closure = Some(|number: &mut i32| -> i32 { panic!("in the closure, {number}") });
        let work = blocking(&mut closure);
        let mut number = 1;
        let outcome = poll_once(caught(async { work(&mut number).await }));
        assert!(outcome.is_err());
    }
}
