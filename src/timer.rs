//! How a wait passes the time: with its thread, or as a task that others run beside.
//!
//! What is waited for is an [`Event`], which does not know who waits. A connection that blocks waits with its thread, so that
//! its futures are ready when they are polled for the first time.

use std::task::Waker;
use std::time::{Duration, Instant};

#[cfg(any(
    feature = "async-postgres",
    feature = "async-mysql",
    feature = "async-sqlite"
))]
pub(crate) mod task;
pub(crate) mod thread;

/// Pauses and waits. [`HasEngine`](crate::engine::HasEngine) tells which one a connection has.
pub trait Timer {
    /// Whether a wait that is woken may not be polled for a while, because the application holds its future and polls another.
    const MAY_STALL: bool;

    /// Pauses for this time.
    fn pause(time: Duration) -> impl Future<Output = ()> + Send;

    /// Waits for the event. Polls it once at the beginning, when its waker is woken, and at the time that it has returned.
    fn wait<E: Event>(event: E) -> impl Future<Output = E::Value> + Send;
}

/// What is waited for. It is dropped when the wait has ended or is given up.
pub trait Event: Send {
    type Value;

    /// Returns whether the event has come. If not, it wakes the waker of the last call, once, when it is to be polled again.
    fn poll(&mut self, waker: &Waker) -> Polled<Self::Value>;
}

/// Whether an event has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Polled<T> {
    Ready(T),
    Pending {
        /// When it is to be polled again, if it is not woken before.
        until: Option<Instant>,
    },
}
