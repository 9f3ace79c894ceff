//! Wakes a thread that polls a future.

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::{self, Thread};

/// Returns a waker that unparks this thread.
pub(crate) fn thread_waker() -> Waker {
    Arc::new(Unpark(thread::current())).into()
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}
