//! The closures of the application, as closures that return a future.

#![cfg_attr(
    not(feature = "_async"),
    allow(
        unreachable_pub,
        reason = "in public signatures of the asynchronous methods"
    )
)]

/// A closure that returns a future. Unlike that of `AsyncFnOnce` alone, the future has a name, so that a caller can require
/// that it is `Send`.
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
