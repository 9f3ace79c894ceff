//! The last step after a future was dropped (the first is `acts::cancel_guard`): what it has left on the server is ended by the
//! [runtime](crate::rt::background) of this crate.

#[cfg(feature = "_async_pool")]
use std::cell::RefCell;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

#[cfg(feature = "_async_pool")]
use crate::link::nonblocking::DroppedBy;
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

/// A future that has an activity count what it leaves when it is dropped, until that has [ended](end). Not an `async fn`, whose
/// future would have room for the one that it gets beside the box in which it puts it.
#[cfg(feature = "_async_pool")]
pub(crate) fn counted<F: Future + Send>(
    activity: &Activity,
    future: F,
) -> impl Future<Output = F::Output> + Send {
    /// Also after a panic of a destructor.
    struct Restore(Option<Activity>);

    impl Drop for Restore {
        fn drop(&mut self) {
            COUNTED_BY.set(self.0.take());
        }
    }

    let activity = activity.clone();
    DroppedBy::new(future, move |future| {
        let _outer = Restore(COUNTED_BY.replace(Some(activity.clone())));
        drop(future);
    })
}

/// Runs the work: it ends what a future has left that is being dropped. [`counted`] counts it.
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
