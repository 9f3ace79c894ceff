//! One waiter.

use std::task::Waker;
use std::time::{Duration, Instant};

use super::wakes::Wakes;

/// The longest pause between two queries of the first waiter, before jitter.
pub(super) const MAX_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A release, with the slot's number if it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Released(pub(crate) Option<u32>);

#[allow(clippy::struct_excessive_bools, reason = "independent of each other")]
pub(super) struct Waiter {
    /// The waiter queries once, and waits only for its turn.
    pub(super) once: bool,
    pub(super) state: State,
    /// Wakes it. None while it is awake.
    waker: Option<Waker>,
    /// Whether it may be woken and not go on for a while.
    pub(super) may_stall: bool,
    /// How long it pauses before it polls.
    pub(super) pause: Duration,
    /// When its last attempt ended, from which its pause is counted.
    pub(super) tried_at: Option<Instant>,
    /// The same while the query of another waiter of its queue is running, if that is longer.
    pub(super) pause_beside_query: Option<Duration>,
    /// The longest pause of the first waiter, which queries for this one too.
    pub(super) longest_pause: Duration,
    /// Whether its last query did not reach the database, or it had no connection. Another one, which may have another pool,
    /// queries before it.
    pub(super) unreached: bool,
    /// Whether it has a connection of its own.
    #[cfg(feature = "_pool")]
    pub(super) keeps_connection: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Sleeping,
    /// Its time to poll has come.
    Due,
    /// A release was handed over to it.
    Notified(Released),
    Querying,
}

impl Waiter {
    pub(super) fn new(once: bool) -> Self {
        Self {
            once,
            state: State::Sleeping,
            waker: None,
            may_stall: false,
            pause: MAX_POLL_INTERVAL,
            tried_at: None,
            pause_beside_query: None,
            longest_pause: Duration::MAX,
            unreached: false,
            #[cfg(feature = "_pool")]
            keeps_connection: false,
        }
    }

    /// It sleeps from now on, until it is woken.
    pub(super) fn park(&mut self, waker: &Waker) {
        self.waker = Some(waker.clone());
    }

    /// It is awake. Returns its waker.
    pub(super) fn unpark(&mut self) -> Option<Waker> {
        self.waker.take()
    }

    /// Whether it sleeps until it is woken.
    pub(super) fn is_parked(&self) -> bool {
        self.waker.is_some()
    }

    /// Wakes it if it sleeps.
    pub(super) fn wake(&mut self, wakes: &mut Wakes) {
        if let Some(waker) = self.waker.take() {
            wakes.add(waker);
        }
    }
}
