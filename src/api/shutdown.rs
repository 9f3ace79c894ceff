//! Ends what a process does with locks and slots, within a deadline.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

#[cfg(feature = "_async_pool")]
use futures_util::future::join_all;

#[cfg(feature = "_async_pool")]
use crate::Async;
use crate::jobs::renewer::Renew;
use crate::link::activity::{Activity, await_all_idle};
use crate::rt::{block_on, lock};
use crate::{Blocking, LockPool, Pool, Slot, SlotRenewer, StopToken};

/// Ends the waits of a process, waits for its closures, and releases its slots, when the process is asked to end (SIGTERM).
///
/// ```
/// use diesel_locks::{LockPool, Shutdown, SlotRenewer};
/// use std::time::Duration;
///
/// # mod sqlite { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sqlite/mod.rs")); }
/// # let directory = tempfile::tempdir()?;
/// # let url = directory.path().join("app.db").display().to_string();
/// # let (renewer_pool, pool) = (sqlite::pool(&url)?, sqlite::pool(&url)?);
/// let shutdown = Shutdown::new();
/// let renewer = shutdown.add_renewer(&SlotRenewer::new(renewer_pool));
/// let locks = shutdown.add_lock_pool(&LockPool::new(pool));
/// // The application uses `renewer` and `locks`.
/// # drop((renewer, locks));
///
/// // On SIGTERM:
/// let left = shutdown.shut_down(Duration::from_secs(8)); // less than the time after which the process is killed
/// if !left.is_empty() {
///     eprintln!("cut off: {left:?}");
/// }
/// # assert!(left.is_empty(), "cut off: {left:?}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Create one when the application starts, and pass each [`SlotRenewer`] and [`LockPool`] through it. Call `shut_down` once the
/// application accepts no more requests, and while the runtime of asynchronous pools still runs ([complete
/// services](https://github.com/diesel-locks/diesel-locks/blob/main/docs/web-service.md#with-axum)). Clones are the
/// same value.
///
/// The renewers and lock pools of one `Shutdown` all block (`Shutdown`), or are all asynchronous (`Shutdown<Async>`). An
/// application that has both has two: stop the tokens of both first, then wait for both. The asynchronous calls are
/// `Shutdown::<Async>::new()` and `shutdown.shut_down(limit).await`.
#[derive(Clone)]
#[doc(alias("SIGTERM", "graceful", "drain", "exit"))]
pub struct Shutdown<S = Blocking> {
    registry: Arc<Registry>,
    style: PhantomData<fn() -> S>,
}

impl<S> Shutdown<S> {
    /// Creates a shutdown whose token is not stopped.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the token of the process. `shut_down` stops it. A request has a child of it: [`StopToken::child`].
    pub fn stop_token(&self) -> &StopToken {
        &self.registry.stop
    }

    /// Registers `renewer` and its clones: `shut_down` waits for their guards, and releases them. Returns a
    /// handle that the token [stops](SlotRenewer::stopped_by): use it in place of `renewer`. Does not keep the renewer alive.
    #[must_use]
    pub fn add_renewer<P: Pool<Style = S>>(&self, renewer: &SlotRenewer<P>) -> SlotRenewer<P> {
        let weak = Some(Arc::downgrade(&renewer.handle.0));
        self.registry.add(renewer.activity().clone(), weak);
        renewer.stopped_by(self.stop_token())
    }

    /// Registers `locks` and its clones: `shut_down` waits for their transactions. Returns a handle that the token
    /// [stops](LockPool::stopped_by): use it, and handles for requests made of it, in place of `locks`.
    #[must_use]
    pub fn add_lock_pool<P: Pool<Style = S>>(&self, locks: &LockPool<P>) -> LockPool<P> {
        self.registry.add(locks.activity().clone(), None);
        locks.stopped_by(self.stop_token())
    }
}

impl Shutdown<Blocking> {
    /// Stops the token, waits at most for `limit` until all calls, guards and transactions of the renewers and lock pools have
    /// ended, and then releases the slots that are still held. Returns what had not ended; it is logged by `tracing` too.
    ///
    /// [Waits end](SlotRenewer::stopped_by) with [`Error::Stopped`](crate::Error::Stopped). Closures end by themselves, when they
    /// see that [`ActiveSlot::is_active`](crate::ActiveSlot::is_active) is false or that the token is stopped. What is acquired
    /// with other handles than those returned by this value is waited for, but not refused. Transactions on connections that the
    /// application borrows by itself are not waited for.
    ///
    /// The release of what is left waits for a connection of each pool up to the deadline, at least 0.5 s, one pool after the
    /// other, and not for slots that other sessions have locked. A thread can't give up a statement that the database does not
    /// answer: set the driver's limits for that. A call of `run_as_leader` returns shortly after its closure: join its thread
    /// before `main` returns.
    ///
    /// May be called several times: each call waits again.
    #[doc(alias("SIGTERM", "graceful", "drain"))]
    pub fn shut_down(&self, limit: Duration) -> Unfinished {
        let ending = self.registry.stop(limit);
        let mut left = block_on(ending.await_idle());
        for registered in &ending.registered {
            let cut = registered.cut_all(ending.time_to_release());
            left.slots.extend(block_on(cut));
        }
        ending.record(&left);
        left
    }
}

#[cfg(feature = "_async_pool")]
impl Shutdown<Async> {
    /// As `shut_down` of a blocking `Shutdown`. All renewers release at the same time, no longer than until the deadline, or 0.5 s,
    /// whatever the pools and the database do. If the future is dropped, the token stays stopped, and guards that it has not
    /// released yet stay held: call the method again.
    #[doc(alias("SIGTERM", "graceful", "drain"))]
    pub async fn shut_down(&self, limit: Duration) -> Unfinished {
        let ending = self.registry.stop(limit);
        let mut left = ending.await_idle().await;
        let time = ending.time_to_release();
        let cuts = ending.registered.iter().map(|it| it.cut_all(time));
        left.slots = join_all(cuts).await.concat();
        ending.record(&left);
        left
    }
}

/// What had not ended at the deadline of `Shutdown::shut_down`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "what was cut off may have written a part of its data"]
pub struct Unfinished {
    /// The slots that were held at the deadline, and were released then. Their closures may still run, beside the next holders.
    pub slots: Vec<Slot>,
    /// The calls and guards of renewers that had not ended: those of `slots`, guards that are lost, waits that no stop ends, and
    /// slots that could not be released in time. Such a slot is released later, if the process lives, or free when its lease expires.
    pub guards: usize,
    /// The calls of lock pools that had not ended. The database rolls their transactions back when the process ends.
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

impl<S> Default for Shutdown<S> {
    fn default() -> Self {
        Self {
            registry: Arc::default(),
            style: PhantomData,
        }
    }
}

impl<S> fmt::Debug for Shutdown<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shutdown")
            .field("stop", self.stop_token())
            .finish_non_exhaustive()
    }
}

/// What is registered with a shutdown.
#[derive(Default)]
struct Registry {
    stop: StopToken,
    registered: Mutex<Vec<Registered>>,
}

/// A lock pool or a renewer. Does not keep it alive.
#[derive(Clone)]
struct Registered {
    activity: Activity,
    renewer: Option<Weak<dyn Renew>>,
}

impl Registered {
    /// Whether it can begin no request, and has nothing to release.
    fn has_ended(&self) -> bool {
        match &self.renewer {
            Some(renewer) => renewer.strong_count() == 0,
            None => self.activity.has_ended(),
        }
    }

    async fn cut_all(&self, timeout: Duration) -> Vec<Slot> {
        match self.renewer.as_ref().and_then(Weak::upgrade) {
            Some(renewer) => renewer.cut_all(timeout).await,
            None => Vec::new(),
        }
    }
}

impl Registry {
    /// Once, however often it is called with clones.
    fn add(&self, activity: Activity, renewer: Option<Weak<dyn Renew>>) {
        let mut registered = lock(&self.registered);
        registered.retain(|known| !known.has_ended() && !known.activity.is(&activity));
        registered.push(Registered { activity, renewer });
    }

    /// Stops the token.
    fn stop(&self, limit: Duration) -> Ending {
        let started = Instant::now();
        let longest = Duration::from_secs(365 * 24 * 3600);
        self.stop.stop();
        Ending {
            started,
            limit,
            end: started + limit.min(longest),
            // A copy: other calls, and closures that register, must not wait for this one.
            registered: lock(&self.registered).clone(),
        }
    }
}

/// A call that waits for what is registered.
struct Ending {
    started: Instant,
    limit: Duration,
    end: Instant,
    registered: Vec<Registered>,
}

impl Ending {
    /// Waits until everything has ended, or until the deadline. Returns how much has not.
    async fn await_idle(&self) -> Unfinished {
        let all = self.registered.iter().map(|it| it.activity.clone());
        let running = await_all_idle(&all.collect::<Vec<_>>(), self.end).await;
        let mut left = Unfinished::default();
        for (registered, running) in self.registered.iter().zip(running) {
            match registered.renewer {
                Some(_) => left.guards += running,
                None => left.transactions += running,
            }
        }
        left
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
