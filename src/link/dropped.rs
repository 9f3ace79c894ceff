//! Ends what dropped futures have left on the server, by the [runtime](crate::rt::background) of this crate.

#[cfg(feature = "_async_pool")]
use std::cell::RefCell;
#[cfg(feature = "_async_pool")]
use std::pin::Pin;
#[cfg(feature = "_async_pool")]
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

#[cfg(feature = "_async_pool")]
use crate::rt::activity::Activity;
use crate::rt::background;

/// Cancel requests are connections of their own: no more than these at a time.
static REQUESTS: Semaphore = Semaphore::const_new(8);

/// A cancel request that takes longer is given up.
const LONGEST_REQUEST: Duration = Duration::from_secs(5);

#[cfg(feature = "_async_pool")]
thread_local! {
    /// What counts the work of a future that is being dropped on this thread.
    static COUNTED_BY: RefCell<Option<Activity>> = const { RefCell::new(None) };
}

/// A future whose [`end`] is counted by an activity when it is dropped before it is ready.
#[cfg(feature = "_async_pool")]
pub(crate) struct Counted<F> {
    future: Option<Pin<Box<F>>>,
    activity: Activity,
}

#[cfg(feature = "_async_pool")]
impl<F> Counted<F> {
    pub(crate) fn new(activity: &Activity, future: F) -> Self {
        Self {
            future: Some(Box::pin(future)),
            activity: activity.clone(),
        }
    }
}

#[cfg(feature = "_async_pool")]
impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let future = self.future.as_mut().expect("a future that was not ready");
        let polled = future.as_mut().poll(context);
        if polled.is_ready() {
            self.future = None;
        }
        polled
    }
}

#[cfg(feature = "_async_pool")]
impl<F> Drop for Counted<F> {
    fn drop(&mut self) {
        /// Also after a panic of a destructor.
        struct Restore(Option<Activity>);

        impl Drop for Restore {
            fn drop(&mut self) {
                COUNTED_BY.set(self.0.take());
            }
        }

        if let Some(future) = self.future.take() {
            let _outer = Restore(COUNTED_BY.replace(Some(self.activity.clone())));
            drop(future);
        }
    }
}

/// Runs the work: it ends what a future has left that is being dropped. `Counted` counts it.
pub(crate) fn end(work: impl Future<Output = ()> + Send + 'static) {
    #[cfg(feature = "_async_pool")]
    let work = {
        let active = COUNTED_BY.with_borrow(|activity| activity.as_ref().map(Activity::begin));
        async move {
            let _active = active;
            work.await;
        }
    };
    background::spawn(work);
}

/// Sends a cancel request, in turn with others. It has no effect on a session whose statement has not started, so the caller
/// repeats it. Returns `None` when it took too long.
pub(crate) async fn request<T>(request: impl Future<Output = T>) -> Option<T> {
    let _turn = REQUESTS.acquire().await.ok()?;
    timeout(LONGEST_REQUEST, request).await.ok()
}
