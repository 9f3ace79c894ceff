//! Wakes waiters when the queues are unlocked.

use std::task::Waker;

/// Wakes the waiters when it is dropped. Not under the lock: a waker of another runtime may drop a future that has a ticket.
#[derive(Default)]
pub(super) struct Wakes {
    wakers: Vec<Waker>,
    unused: Option<Waker>,
}

impl Wakes {
    pub(super) fn add(&mut self, waker: Waker) {
        self.wakers.push(waker);
    }

    /// Has a waker dropped.
    pub(super) fn discard(&mut self, waker: Option<Waker>) {
        self.unused = waker;
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        for waker in self.wakers.drain(..) {
            waker.wake();
        }
        drop(self.unused.take());
    }
}
