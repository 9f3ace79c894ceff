//! How a wait passes the time: with its thread, or as a task that others run beside.
//!
//! What is waited for is an [`Event`], which does not know who waits. A connection that blocks waits with its thread, so that
//! its futures are ready when they are polled for the first time.

#[cfg(feature = "_pool")]
use std::io;
use std::task::Waker;
use std::time::{Duration, Instant};

#[cfg(feature = "_async")]
pub(crate) mod task;
pub(crate) mod thread;

/// How long a task waits for the answer to a statement whose own time limit has passed. A shorter time would lose the connections of
/// a server that is only slow.
pub(crate) const LATEST_ANSWER: Duration = Duration::from_secs(2);

/// Pauses and waits. [`HasEngine`](crate::engine::HasEngine) tells which one a connection has.
pub trait Timer {
    /// Whether a wait that is woken may not be polled for a while, because the application holds its future and polls another.
    const MAY_STALL: bool;

    /// Pauses for this time.
    fn pause(time: Duration) -> impl Future<Output = ()> + Send;

    /// Waits for the event. Polls it once at the beginning, when its waker is woken, and at the time that it has returned.
    fn wait<E: Event>(event: E) -> impl Future<Output = E::Value> + Send;

    /// Waits for the answer of a server. A task drops the work, and returns `None`, when that takes longer than `limit`. A thread
    /// waits on.
    fn answer_within<T: Send>(
        limit: Duration,
        work: impl Future<Output = T> + Send,
    ) -> impl Future<Output = Option<T>> + Send {
        let _ = limit;
        async { Some(work.await) }
    }

    /// Runs work in the background: on a thread with this name, or as a task of the caller's runtime. Drops it if it can't be
    /// started; that runtime drops it when it is shut down.
    #[cfg(feature = "_pool")]
    fn spawn(name: &str, work: impl Future<Output = ()> + Send + 'static) -> io::Result<()>;

    /// As [`spawn`](Self::spawn), but not on a runtime of the application, which may be shut down.
    #[cfg(feature = "_pool")]
    fn spawn_apart(name: &str, work: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        Self::spawn(name, work)
    }
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
