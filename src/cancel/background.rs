//! A thread on which what dropped futures have left on the server is ended.
//!
//! A destructor can't wait for the server, and the runtime of the future may have been shut down, or, if it has one thread,
//! may not run again. So the work is done by a runtime of this crate, which is started by the first dropped future. Renewers
//! whose runtime has been shut down use it too.

#[cfg(feature = "_async_pool")]
use std::cell::RefCell;
use std::future::pending;
use std::io;
#[cfg(feature = "_async_pool")]
use std::pin::Pin;
use std::sync::LazyLock;
#[cfg(feature = "_async_pool")]
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::Semaphore;
use tokio::time::timeout;

#[cfg(feature = "_async_pool")]
use crate::activity::Activity;

/// Cancel requests are connections of their own: no more than these at a time.
static REQUESTS: Semaphore = Semaphore::const_new(8);

/// A cancel request that takes longer is given up.
const LONGEST_REQUEST: Duration = Duration::from_secs(5);

static RUNTIME: LazyLock<Option<Handle>> = LazyLock::new(|| {
    let started = start();
    if let Err(error) = &started {
        tracing::warn!(
            target: "diesel_locks::cancel",
            %error,
            "no thread to end what dropped futures have left: the server ends it when their connections are closed"
        );
    }
    started.ok()
});

fn start() -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name("diesel-locks-cancel".to_owned())
        .spawn(move || runtime.block_on(pending::<()>()))?;
    Ok(handle)
}

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

/// Runs the work on the thread: it ends what a future has left that is being dropped. `Counted` counts it.
pub(crate) fn end(work: impl Future<Output = ()> + Send + 'static) {
    #[cfg(feature = "_async_pool")]
    let work = {
        let active = COUNTED_BY.with_borrow(|activity| activity.as_ref().map(Activity::begin));
        async move {
            let _active = active;
            work.await;
        }
    };
    spawn(work);
}

/// Runs the work on the thread.
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    if let Some(runtime) = &*RUNTIME {
        runtime.spawn(work);
    }
}

/// Sends a cancel request, in turn with others. Returns `None` when it took too long.
pub(crate) async fn request<T>(request: impl Future<Output = T>) -> Option<T> {
    let _turn = REQUESTS.acquire().await.ok()?;
    timeout(LONGEST_REQUEST, request).await.ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn work_is_done_without_a_runtime_of_the_caller() {
        let (done, is_done) = channel();
        spawn(async move {
            let answer = request(async { 17 }).await;
            done.send(answer).expect("the test waits for it");
        });
        let answer = is_done.recv_timeout(Duration::from_secs(20));
        assert_eq!(answer, Ok(Some(17)));
    }
}
