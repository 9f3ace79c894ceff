//! Ends what a process does with locks and slots, within a deadline.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::activity::{Activity, await_all_idle};
use crate::lender::Lender;
use crate::semaphore::renewer::weak::WeakRenewer;
use crate::timer::Timer;
use crate::{Slot, StopToken};

#[cfg(feature = "_async_pool")]
pub(crate) mod asynchronous;
#[cfg(feature = "r2d2")]
pub(crate) mod blocking;

/// What had not ended at the deadline of `Shutdown::shut_down`, or of `AsyncShutdown::shut_down`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "what was cut off may have written a part of its data"]
pub struct Unfinished {
    /// The slots that were held at the deadline, and were released then. Their closures may still run: they do so beside
    /// the next holders until the process ends.
    pub slots: Vec<Slot>,
    /// The calls and guards of renewers that had not ended: those of `slots`, guards that are lost, waits that no stop
    /// ends, and slots that could not be released in time. The renewer retries the release of such a slot for a minute at
    /// most, while the process lives. A slot that is not released then is held until its lease ends.
    pub guards: usize,
    /// The calls of lock pools that had not ended. Their transactions end with the process:
    /// the database rolls them back.
    pub transactions: usize,
}

impl Unfinished {
    /// Returns whether everything had ended by itself before the deadline.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.guards == 0 && self.transactions == 0
    }
}

/// The least time that a release at the deadline waits for a connection of the pool.
const SHORTEST_RELEASE: Duration = Duration::from_millis(500);

/// What is registered with a shutdown. `R` is a renewer, whatever the type of its connections.
struct Registry<R: ?Sized> {
    stop: StopToken,
    transactions: Mutex<Vec<Activity>>,
    renewers: Mutex<Vec<Arc<R>>>,
}

/// What is waited for.
trait Registered: Send + Sync {
    fn activity(&self) -> &Activity;

    /// Whether nothing will ever run with it again.
    fn has_ended(&self) -> bool;
}

impl<L: Lender> Registered for WeakRenewer<L> {
    fn activity(&self) -> &Activity {
        self.activity()
    }

    fn has_ended(&self) -> bool {
        self.has_ended()
    }
}

impl<R: Registered + ?Sized> Registry<R> {
    fn stop_token(&self) -> &StopToken {
        &self.stop
    }

    /// Once, however often it is called with clones.
    fn add_renewer(&self, renewer: Arc<R>) {
        let mut renewers = lock(&self.renewers);
        renewers.retain(|known| !known.has_ended());
        let is_known = |known: &Arc<R>| known.activity().is(renewer.activity());
        if !renewers.iter().any(is_known) {
            renewers.push(renewer);
        }
    }

    fn add_transactions(&self, activity: &Activity) {
        let mut transactions = lock(&self.transactions);
        transactions.retain(|known| !known.has_ended());
        if !transactions.iter().any(|known| known.is(activity)) {
            transactions.push(activity.clone());
        }
    }

    /// Stops the token.
    fn stop(&self, limit: Duration) -> Ending<R> {
        let started = Instant::now();
        let longest = Duration::from_secs(365 * 24 * 3600);
        self.stop.stop();
        // Copies: other calls, and closures that register, must not wait for this one.
        Ending {
            started,
            limit,
            end: started + limit.min(longest),
            transactions: lock(&self.transactions).clone(),
            renewers: lock(&self.renewers).clone(),
        }
    }
}

impl<R: ?Sized> Default for Registry<R> {
    fn default() -> Self {
        Self {
            stop: StopToken::default(),
            transactions: Mutex::default(),
            renewers: Mutex::default(),
        }
    }
}

/// A call that waits for what is registered.
struct Ending<R: ?Sized> {
    started: Instant,
    limit: Duration,
    end: Instant,
    transactions: Vec<Activity>,
    renewers: Vec<Arc<R>>,
}

impl<R: Registered + ?Sized> Ending<R> {
    /// Waits until everything has ended, or until the deadline. Returns how much has not.
    async fn await_idle<T: Timer>(&self) -> Unfinished {
        let renewers = self.renewers.iter().map(|it| it.activity().clone());
        let all: Vec<Activity> = self.transactions.iter().cloned().chain(renewers).collect();
        let running = await_all_idle::<T>(&all, self.end).await;
        let (transactions, guards) = running.split_at(self.transactions.len());
        Unfinished {
            slots: Vec::new(),
            guards: guards.iter().sum(),
            transactions: transactions.iter().sum(),
        }
    }

    /// How long the release of what is left waits for a connection.
    fn time_to_release(&self) -> Duration {
        let left = self.end.saturating_duration_since(Instant::now());
        left.max(SHORTEST_RELEASE)
    }

    fn record(&self, left: &Unfinished) {
        if left.is_empty() {
            let waited = self.started.elapsed();
            tracing::info!(?waited, "all calls, guards and transactions have ended");
            return;
        }
        let (guards, transactions, limit) = (left.guards, left.transactions, self.limit);
        tracing::warn!(guards, transactions, ?limit, "not ended by the deadline");
        for slot in &left.slots {
            let (semaphore, number) = (slot.semaphore(), slot.number());
            tracing::warn!(semaphore, number, "slot released while its closure runs");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
