//! The methods of [`LockPool`]. `pools::object_waits` and `pools::slot_waits` wait, and wake the next waiter.

#[cfg(feature = "r2d2")]
use std::future::ready;
use std::sync::Arc;

#[cfg(feature = "r2d2")]
use diesel::r2d2::R2D2Connection;

#[cfg(feature = "_async_pool")]
use crate::Async;
#[cfg(feature = "_async_pool")]
use crate::acts::cancel_guard::counted;
#[cfg(feature = "r2d2")]
use crate::acts::closures::blocking;
#[cfg(feature = "_async_pool")]
use crate::acts::closures::{RepeatedWork, Work};
use crate::acts::waiting::unless_refused;
use crate::link::activity::Activity;
use crate::pools::object_waits::{self, ObjectWait, Shared};
#[cfg(feature = "r2d2")]
use crate::pools::r2d2::R2d2Pool;
use crate::pools::slot_waits;
use crate::rt::stop_token::StopToken;
use crate::values::lock_request::Request;
use crate::{
    Error, LockRequest, Pool, RequestInfo, Semaphore, TransactionError, TransactionRequest, Wait,
};
#[cfg(feature = "r2d2")]
use crate::{ObjectLockExt, SemaphoreExt};

/// Acquires object locks, and slots of transactions, with connections of a pool, and holds no connection while it waits.
///
/// For services in which many requests may want the same lock or slot: when requests that wait on methods of connections occupy the
/// whole pool, every other request waits. [In a web service] compares both.
///
/// ```
/// use diesel_locks::prelude::*;
/// use diesel_locks::{Error, LockPool, Result, StopToken};
/// use std::time::Duration;
///
/// # mod sqlite { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sqlite/mod.rs")); }
/// # let (pool, _directory) = sqlite::database();
/// let locks = LockPool::new(pool); // once, when the application starts
///
/// // In a handler:
/// let client = StopToken::new(); // stopped when the client hangs up
/// let wait = Wait::AtMost(Duration::from_secs(2));
/// let request = LockRequest::new(ObjectId::new("Account", "4711")).wait(wait);
/// locks.stopped_by(&client).with_object_lock(request, |_conn| -> Result<()> {
///     Ok(()) // read, compare, write
/// })?;
///
/// // At most five reports at a time, on all servers:
/// const REPORTS: Semaphore = Semaphore::from_static("reports", 5);
/// match locks.with_slot(&REPORTS, wait, |_conn| Ok::<_, Error>("report")) {
///     Err(error) if error.is_busy() => println!("try again later"), // 503
///     report => println!("{}", report?),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// On a pool of diesel-async:
///
/// ```
/// # use diesel_locks::prelude::*;
/// # use diesel_locks::{LockPool, Result};
/// # mod sqlite { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sqlite/asynchronous.rs")); }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let pool = sqlite::pool(&directory.path().join("app.db").display().to_string())?;
/// # diesel_locks::migrate_async(&mut pool.get().await?).await?;
/// let locks = LockPool::new(pool);
/// let account = ObjectId::new("Account", "4711");
/// locks.with_object_lock(account, async |_conn| -> Result<()> { Ok(()) }).await?;
/// # Ok(())
/// # }
/// ```
///
/// | feature | `P` | methods | closures |
/// |---|---|---|---|
/// | `r2d2` | r2d2's pool of Diesel's connections | block the thread | `FnOnce(&mut C)` |
/// | `bb8`, `deadpool` | a pool of diesel-async | return futures, which are `Send` | `async`, with a `&mut` of the pool's connection |
///
/// Transactions, closures and their errors are those of the methods of a connection outside a transaction. On a connection that
/// `begin_test_transaction` has left in a transaction they run in a savepoint; `run_transaction` fails there. A closure gets the
/// connection that holds the lock or slot; a call of the `LockPool` in it takes another one, and may wait for what the closure holds
/// until its time is up. A closure is run once: to retry after a deadlock, pass [`LockRequest::retry`] to `run_transaction`, which
/// runs its closure again by a [`RetryPolicy`](crate::RetryPolicy), also after a lost connection. Clones share their queues.
///
/// # Waiting for object locks
///
/// Requests for the same objects wait in a queue of the process, in the order in which they came; those for different sets of
/// objects in different queues, also if the sets overlap; on SQLite all in one. The first of a queue asks the database, without
/// waiting there, after pauses of 10 to 100 ms, and when a holder of this `LockPool` releases the lock. So 1,000 requests that wait
/// for 10 objects use up to 10 connections, for a few milliseconds at a time. While an attempt takes longer than 1 s, the next one
/// also asks, and may overtake. A request with [`Wait::No`] joins no queue.
///
/// A lock that is held by another process, by a connection that was used without this `LockPool`, or with an overlapping set, is
/// acquired up to 100 ms after its release; sessions that wait in the database get it earlier. Now and then a released lock is left
/// to other processes for up to 100 ms, at most 5 % of the time.
///
/// A request for several objects holds none of them while it waits, so that it can't deadlock. While others lock these objects
/// without a pause, it may wait until its time is up: then lock one object that stands for all, or wait on a connection.
///
/// # Waiting for slots
///
/// Waiters for a slot of one semaphore form one queue of the process, whether they wait on a `LockPool`, on a connection or on a
/// [`SlotRenewer`](crate::SlotRenewer). Requests that find no waiter make an attempt at once, as many at the same time as there are
/// permits, and half of the pool's size at most. On SQLite any other writer counts as a holder of all slots.
///
/// # Connections for others
///
/// A `LockPool` borrows at most all connections of its pool but one; of a pool with fewer than four, all. So a query
/// that uses the pool directly, such as a health check, does not wait behind requests for locks. To run eight transactions with
/// locks at the same time, give the pool nine connections.
///
/// # Time limit
///
/// A request for object locks that sets no [`Wait`] waits at most as long as the pool waits for a connection (30 s by default).
///
/// If the first attempt is made at once, without a wait in the queue, and gets no connection within the pool's time-out, or within
/// the remaining time of the request (at least 200 ms), the request returns `Error::Pool` (r2d2) or `Error::AsyncPool`. Any other
/// attempt that gets no connection counts as refused: the wait continues until its own limit, unless the pool is closed.
///
/// A connection that does not answer delays only the request that uses it: each other request makes an attempt of its own when half
/// of its time has passed without an answer to any attempt. A thread waits until the connection itself times out. A future gives it up when the
/// time of the request is up, at the earliest after 500 ms. While deadpool can't open connections, the pauses of each queue grow
/// from 100 ms to 5 s, until the next request for the same joins it.
///
/// # Stops and dropped futures
///
/// Waits of a handle that [`stopped_by`](Self::stopped_by) has returned end when its [`StopToken`] is stopped: when the client of a
/// request hangs up, or the process is to end ([`Shutdown`](crate::Shutdown)). A closure is not called after a stop; a stop while
/// it runs has no effect. On r2d2 such a request asks the pool for a connection every 25 ms, and is then the last in the pool's own
/// queue; the pool's event handler counts each of these as a time-out.
///
/// A future may be dropped at every `.await`: see `operation::dropped_futures`.
///
/// [In a web service]: https://github.com/diesel-locks/diesel-locks/blob/main/docs/web-service.md#wait-without-a-connection
#[derive(Clone)]
#[doc(alias("queue", "bulkhead", "waiters", "async", "bb8", "deadpool"))]
pub struct LockPool<P> {
    shared: Arc<Shared<P>>,
    stop: Option<StopToken>,
}

impl<P: Pool> LockPool<P> {
    /// Creates a handle that uses the connections of `pool`. Sends nothing to the database.
    pub fn new(pool: P) -> Self {
        Self {
            shared: Arc::new(Shared::new(pool)),
            stop: None,
        }
    }

    /// Returns a handle to the same queues whose waits end when `stop` is stopped. The token replaces that of this handle: to
    /// keep both, pass a [child](StopToken::child) of the old one.
    #[must_use]
    #[doc(alias("cancel", "CancellationToken", "abort"))]
    pub fn stopped_by(&self, stop: &StopToken) -> Self {
        Self {
            stop: Some(stop.clone()),
            ..self.clone()
        }
    }
}

impl<P> LockPool<P> {
    pub(crate) fn activity(&self) -> &Activity {
        &self.shared.activity
    }

    /// Returns the pool.
    pub fn pool(&self) -> &P {
        self.shared.connections.pool()
    }

    /// Returns how many of the [requests](Self::requests) wait, make an attempt, or pause before the next one.
    pub fn waiting(&self) -> usize {
        self.shared.activity.waiting()
    }

    /// Lists the requests of this `LockPool` and its clones that have not ended, the oldest first: what each is for, whether it waits,
    /// and for how long. Asks no database, and does not block.
    ///
    /// ```
    /// # use diesel_locks::prelude::*;
    /// # use diesel_locks::{Error, LockPool};
    /// # mod sqlite { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sqlite/mod.rs")); }
    /// # let (pool, _directory) = sqlite::database();
    /// let locks = LockPool::new(pool);
    /// locks.with_object_lock(ObjectId::new("Account", "4711"), |_conn| {
    ///     for request in locks.requests() {
    ///         println!("{request}"); // the object lock "Account:4711": inside for 0 ms, made 1 ms ago
    ///         assert!(request.inside_for.is_some());
    ///     }
    ///     Ok::<_, Error>(())
    /// })?;
    /// assert!(locks.requests().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A request ends when its call returns or panics, or its future is dropped. A future is a request from its first poll on. For the
    /// requests of other processes see [`held_object_locks`](crate::InspectExt::held_object_locks).
    #[doc(alias("waiters", "holders", "debug", "monitoring"))]
    pub fn requests(&self) -> Vec<RequestInfo> {
        self.shared.activity.requests()
    }
}

/// On r2d2's pool: the methods block.
#[cfg(feature = "r2d2")]
impl<C: SemaphoreExt + ObjectLockExt + R2D2Connection + 'static> LockPool<R2d2Pool<C>> {
    /// Locks one object, or [several](LockRequest::all), calls `f` in the transaction that holds the locks, and commits it.
    /// Waits without a connection while another transaction holds one of the locks.
    ///
    /// # Errors
    ///
    /// Those of [`ObjectLockExt::with_object_lock`], and before `f`:
    ///
    /// - [`Error::LockTimeout`] when the time is up;
    /// - [`Error::Stopped`] within 50 ms of a stop, and the time of one attempt if one is running;
    /// - [`Error::Pool`] if the first attempt gets no connection: see [Time limit](Self#time-limit).
    pub fn with_object_lock<T, E, F>(&self, request: impl Into<LockRequest>, f: F) -> Result<T, E>
    where
        F: FnOnce(&mut C) -> Result<T, E>,
        E: From<Error>,
    {
        let wait = ObjectWait::new(&self.shared, self.stop.as_ref(), request.into())?;
        let active = self.shared.activity.begin(Some(wait.subject()));
        let mut held = C::block_on(object_waits::begin(&self.shared, &wait, &active))?;
        C::block_on(held.run(blocking(&mut Some(f))))
    }

    /// Runs `f` in a transaction that holds the lock, or returns `None`, and does not call `f`, when another transaction holds it:
    /// waits only for a connection of the pool, up to its time-out.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] when the pool has no connection within its time-out; [`Error::Stopped`] after a stop; those of
    /// [`ObjectLockExt::try_with_object_lock`].
    pub fn try_with_object_lock<T, E, F>(
        &self,
        request: impl Into<LockRequest>,
        f: F,
    ) -> Result<Option<T>, E>
    where
        F: FnOnce(&mut C) -> Result<T, E>,
        E: From<Error>,
    {
        let request = Request::without_wait(request.into(), "try_with_object_lock")?;
        let wait = ObjectWait::of::<R2d2Pool<C>>(self.stop.as_ref(), request)?;
        let active = self.shared.activity.begin(Some(wait.subject()));
        let held = C::block_on(object_waits::begin(&self.shared, &wait, &active));
        let Some(mut held) = unless_refused(held)? else {
            return Ok(None);
        };
        C::block_on(held.run(blocking(&mut Some(f)))).map(Some)
    }

    /// Runs `f` in a transaction that holds a slot, and commits it. Waits without a connection while no slot is free.
    ///
    /// # Errors
    ///
    /// Those of [`SemaphoreExt::with_slot`], and before `f` as [`with_object_lock`](Self::with_object_lock).
    pub fn with_slot<T, E, F>(
        &self,
        semaphore: &Semaphore,
        wait: impl Into<Wait>,
        f: F,
    ) -> Result<T, E>
    where
        F: FnOnce(&mut C) -> Result<T, E>,
        E: From<Error>,
    {
        let (shared, stop, wait) = (&*self.shared, self.stop.as_ref(), Some(wait.into()));
        let held = slot_waits::begin(shared, stop, semaphore, None, wait);
        let mut held = C::block_on(held)?;
        C::block_on(held.run(blocking(&mut Some(f))))
    }

    /// Runs `f` in a transaction that holds several permits, all or none, and commits it, as [`SemaphoreExt::with_slots`]. Waits
    /// without a connection while too few are free.
    ///
    /// # Errors
    ///
    /// Those of [`SemaphoreExt::with_slots`], and before `f` as [`with_object_lock`](Self::with_object_lock).
    pub fn with_slots<T, E, F>(
        &self,
        semaphore: &Semaphore,
        permits: u32,
        wait: impl Into<Wait>,
        f: F,
    ) -> Result<T, E>
    where
        F: FnOnce(&mut C) -> Result<T, E>,
        E: From<Error>,
    {
        let (shared, stop, wait) = (&*self.shared, self.stop.as_ref(), Some(wait.into()));
        let held = slot_waits::begin(shared, stop, semaphore, Some(permits), wait);
        let mut held = C::block_on(held)?;
        C::block_on(held.run(blocking(&mut Some(f))))
    }

    /// Runs `f` in a transaction that holds a slot, and commits it. Returns `None`, and does not call `f`, when no slot is free:
    /// waits only for a connection of the pool, up to its time-out.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] when the pool has no connection within its time-out; [`Error::Stopped`] after a stop; those of
    /// [`SemaphoreExt::try_with_slot`].
    pub fn try_with_slot<T, E, F>(&self, semaphore: &Semaphore, f: F) -> Result<Option<T>, E>
    where
        F: FnOnce(&mut C) -> Result<T, E>,
        E: From<Error>,
    {
        let held = slot_waits::begin(&*self.shared, self.stop.as_ref(), semaphore, None, None);
        let Some(mut held) = unless_refused(C::block_on(held))? else {
            return Ok(None);
        };
        C::block_on(held.run(blocking(&mut Some(f)))).map(Some)
    }

    /// Runs `f` in a transaction on a connection of the pool, as [`run_transaction`](crate::TransactionExt::run_transaction). With a
    /// [`RetryPolicy`](crate::RetryPolicy) it also runs the transaction again, on another connection, when the connection is lost
    /// before COMMIT, as in a fail-over, or the server has become [read-only](Error::ReadOnly); and, after that, when the pool has
    /// no connection within its time-out. Borrows no connection between two attempts.
    ///
    /// `f` must not commit: neither by COMMIT as text, nor by `CREATE TABLE` on MySQL and MariaDB, nor on a second connection.
    /// After a lost connection this crate does not find that out, and runs `f` again.
    ///
    /// # Errors
    ///
    /// Those of [`run_transaction`](crate::TransactionExt::run_transaction); [`Error::Pool`] when the pool has no connection within
    /// its time-out, or, without locks, within [`max_elapsed`](crate::RetryPolicy::max_elapsed) of the call; [`Error::Stopped`] after
    /// a stop, before an attempt. With [`LockRequest::retry`] also those of `with_object_lock`.
    #[doc(alias("failover", "reconnect"))]
    pub fn run_transaction<T, E, F, Via>(
        &self,
        transaction: impl Into<TransactionRequest>,
        mut f: F,
    ) -> Result<T, E>
    where
        F: FnMut(&mut C) -> Result<T, E>,
        E: TransactionError<Via>,
    {
        let work = |conn: &mut C| ready(f(conn));
        let (shared, stop) = (&*self.shared, self.stop.as_ref());
        C::block_on(object_waits::run_attempts(
            shared,
            stop,
            transaction.into(),
            work,
        ))
    }
}

/// On the pools of diesel-async: the methods return futures, and [`Error::AsyncPool`] in place of `Error::Pool`, at any attempt if
/// the pool is closed.
#[cfg(feature = "_async_pool")]
impl<P: Pool<Style = Async>> LockPool<P> {
    /// Locks objects, runs `f` in the transaction that holds the locks, and commits it: as `with_object_lock` on r2d2's pool. A
    /// stop ends the wait after the attempt that is running, if there is one.
    pub fn with_object_lock<T, E, F>(
        &self,
        request: impl Into<LockRequest>,
        f: F,
    ) -> impl Future<Output = Result<T, E>> + Send
    where
        for<'r> F: Work<&'r mut P::Connection, Result<T, E>, Future: Send> + Send,
        T: Send,
        E: From<Error> + Send,
    {
        let request = request.into();
        counted(&self.shared.activity, async move {
            let wait = ObjectWait::new(&self.shared, self.stop.as_ref(), request)?;
            let active = self.shared.activity.begin(Some(wait.subject()));
            let mut held = object_waits::begin(&self.shared, &wait, &active).await?;
            P::droppable(held.run(f)).await
        })
    }

    /// Runs `f` in a transaction that holds the lock, or returns `None` when another transaction holds it: as `try_with_object_lock`
    /// on r2d2's pool.
    pub fn try_with_object_lock<T, E, F>(
        &self,
        request: impl Into<LockRequest>,
        f: F,
    ) -> impl Future<Output = Result<Option<T>, E>> + Send
    where
        for<'r> F: Work<&'r mut P::Connection, Result<T, E>, Future: Send> + Send,
        T: Send,
        E: From<Error> + Send,
    {
        let request = request.into();
        counted(&self.shared.activity, async move {
            let request = Request::without_wait(request, "try_with_object_lock")?;
            let wait = ObjectWait::of::<P>(self.stop.as_ref(), request)?;
            let active = self.shared.activity.begin(Some(wait.subject()));
            let held = object_waits::begin(&self.shared, &wait, &active).await;
            let Some(mut held) = unless_refused(held)? else {
                return Ok(None);
            };
            let done = P::droppable(held.run(f)).await;
            done.map(Some)
        })
    }

    /// Runs `f` in a transaction that holds a slot, and commits it: as `with_slot` on r2d2's pool.
    pub fn with_slot<T, E, F>(
        &self,
        semaphore: &Semaphore,
        wait: impl Into<Wait>,
        f: F,
    ) -> impl Future<Output = Result<T, E>> + Send
    where
        for<'r> F: Work<&'r mut P::Connection, Result<T, E>, Future: Send> + Send,
        T: Send,
        E: From<Error> + Send,
    {
        let (shared, stop, wait) = (&*self.shared, self.stop.as_ref(), Some(wait.into()));
        let held = slot_waits::begin(shared, stop, semaphore, None, wait);
        counted(&self.shared.activity, async move {
            let mut held = held.await?;
            P::droppable(held.run(f)).await
        })
    }

    /// Runs `f` in a transaction that holds several permits, all or none, and commits it: as `with_slots` on r2d2's pool.
    pub fn with_slots<T, E, F>(
        &self,
        semaphore: &Semaphore,
        permits: u32,
        wait: impl Into<Wait>,
        f: F,
    ) -> impl Future<Output = Result<T, E>> + Send
    where
        for<'r> F: Work<&'r mut P::Connection, Result<T, E>, Future: Send> + Send,
        T: Send,
        E: From<Error> + Send,
    {
        let (shared, stop, wait) = (&*self.shared, self.stop.as_ref(), Some(wait.into()));
        let held = slot_waits::begin(shared, stop, semaphore, Some(permits), wait);
        counted(&self.shared.activity, async move {
            let mut held = held.await?;
            P::droppable(held.run(f)).await
        })
    }

    /// Runs `f` in a transaction that holds a slot, or returns `None` when no slot is free: as `try_with_slot` on r2d2's pool.
    pub fn try_with_slot<T, E, F>(
        &self,
        semaphore: &Semaphore,
        f: F,
    ) -> impl Future<Output = Result<Option<T>, E>> + Send
    where
        for<'r> F: Work<&'r mut P::Connection, Result<T, E>, Future: Send> + Send,
        T: Send,
        E: From<Error> + Send,
    {
        let held = slot_waits::begin(&*self.shared, self.stop.as_ref(), semaphore, None, None);
        counted(&self.shared.activity, async move {
            let Some(mut held) = unless_refused(held.await)? else {
                return Ok(None);
            };
            let done = P::droppable(held.run(f)).await;
            done.map(Some)
        })
    }

    /// Runs `f` in a transaction on a connection of the pool, and again on another one if it is lost: as `run_transaction` on
    /// r2d2's pool.
    pub fn run_transaction<T, E, F, Via>(
        &self,
        transaction: impl Into<TransactionRequest>,
        f: F,
    ) -> impl Future<Output = Result<T, E>> + Send
    where
        for<'r> F: RepeatedWork<&'r mut P::Connection, Result<T, E>, Future: Send> + Send,
        T: Send,
        E: TransactionError<Via> + Send,
    {
        let transaction = transaction.into();
        counted(&self.shared.activity, async move {
            let (shared, stop) = (&*self.shared, self.stop.as_ref());
            P::droppable(object_waits::run_attempts(shared, stop, transaction, f)).await
        })
    }
}

impl<P> std::fmt::Debug for LockPool<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockPool")
            .field("stop", &self.stop)
            .finish_non_exhaustive()
    }
}
