//! [`AsyncLockPool`], over a pool of diesel-async.

use std::sync::Arc;

use super::objects::{self, ObjectWait};
use super::shared::Shared;
use super::slots;
use crate::activity::Activity;
use crate::cancel::counted;
use crate::link::Link;
use crate::poll::Work;
use crate::stop::StopToken;
use crate::{AsyncPool, Error, LockRequest, Semaphore, Wait};

/// Acquires object locks, and slots of transactions, with connections of a pool of diesel-async, and holds no connection
/// while it waits.
///
/// Feature `bb8` or `deadpool`. What `LockPool` is for r2d2. For services in which many requests may want the same lock or
/// slot: a request that waits on [`with_object_lock`](crate::AsyncObjectLockExt::with_object_lock) or
/// [`with_slot`](crate::AsyncSemaphoreExt::with_slot) of a connection occupies that connection, and as many waiters as the
/// pool has connections stop the whole service. Create one `AsyncLockPool` beside the pool when the application starts, and
/// clone it where it is needed: clones share their queues.
///
/// Methods return futures that are `Send`. Closures are `async`, and get a `&mut` of the pool's connection, as the closures
/// of [`AsyncObjectLockExt`](crate::AsyncObjectLockExt) do.
///
/// # Waiting for object locks
///
/// Requests for the same objects wait in a queue of the process, in the order in which they came. The first one asks the
/// database, without waiting there: after pauses of 10 to 100 ms, and when a holder of this `AsyncLockPool` releases the
/// lock. It borrows a connection for each attempt. If the lock is released during an attempt, or if an attempt takes longer
/// than 1 s, the next request also makes an attempt. It may acquire the lock first. A request with [`Wait::No`] joins no
/// queue. So 1,000 requests that wait for 10 objects mostly use no connection, and for a few milliseconds at a time up to 10.
/// Now and then a released lock is left to other processes for up to 100 ms, at most 5 % of the time. On SQLite, where one
/// transaction excludes all others, all requests wait in one queue.
///
/// Requests for different sets of objects wait in different queues, also if the sets overlap. The
/// release of a set wakes requests for the same set and for one of its objects; the others poll.
///
/// A lock that is held by another process, or by a connection that was used without this `AsyncLockPool`, is acquired up to
/// 100 ms after its release; sessions that wait in the database get it earlier. That includes requests of another
/// `AsyncLockPool` or `LockPool` of the same process, which has queues of its own. The order of requests holds within an
/// `AsyncLockPool` and its clones.
///
/// A request for several objects is granted when all of them are free at the time of an attempt: it holds none of them
/// while it waits, so that it can't deadlock. While others lock these objects without a pause, it may wait until its time
/// is up. Where that happens, lock one object that stands for all, or wait in the database.
///
/// # Waiting for slots
///
/// Waiters for a slot of one semaphore form one queue of the process, in the order in which they came, whether they wait on
/// an `AsyncLockPool`, a `LockPool`, a `SlotRenewer` or a connection, blocking or not. The first one asks the database, after
/// pauses of 10 to 100 ms. When a slot is released in this process, the next waiter whose attempt is not running makes an
/// attempt at once. It may acquire the slot before a waiter whose attempt is running. From time to time a released slot is
/// left to other processes for up to 100 ms. A slot that is released by another process is acquired up to 100 ms later.
///
/// A request that finds no waiter makes an attempt at once. The number of such attempts at the same time is at most the
/// number of permits, and at most half of the pool's size. If an attempt takes longer than 1 s, the next waiter also makes
/// an attempt.
///
/// On SQLite any other writer counts as a holder of all slots. A slot waiter is not woken when an object lock is released.
///
/// # Connections for others
///
/// A `AsyncLockPool` borrows all connections of its pool but one at the same time; all if the pool has fewer than four. So queries
/// that use the pool directly, such as a health check, do not wait behind requests for locks, however many these are. Requests
/// wait for a connection in a queue of the `AsyncLockPool`, first come, first served, and not in that of the pool. To run eight
/// transactions with locks at the same time, give the pool nine connections. The last connection runs no closure also if the
/// application does not use it: then requests wait, and may time out, although a connection is free.
///
/// # Time limit
///
/// A request for object locks that sets no [`Wait`] waits at most as long as the pool waits for a connection (see
/// [`AsyncPool`]), not forever.
///
/// If the first attempt is made at once, without a wait in the queue, and gets no connection, the request returns
/// [`Error::AsyncPool`]. The limit is the pool's time-out, or the remaining time of the request (at least 200 ms) if that is
/// shorter. Any other attempt that gets no connection counts as refused: the wait continues until its own limit, unless the
/// pool is closed.
///
/// A request that waits in the queue does not depend on the attempts of others: if none was answered since it came, it makes its own
/// when half of its time has passed. A connection that does not answer is given up when the time of its request is up, at
/// the earliest after 500 ms, and is not returned to the pool.
///
/// While deadpool can't open connections, because the database is restarted for example, the pauses of each queue grow from
/// 100 ms to 5 s. So a wait may end up to 5 s after the database is back, or up to 100 ms after the next request for the same joins
/// its queue. bb8 retries by itself within its time-out.
///
/// # Dropped futures and stops
///
/// A future may be dropped at every `.await`: while it waits, at an attempt, in the closure, at COMMIT. What was not
/// committed is rolled back in the background, and a connection that was in use is not returned to the pool: see
/// [Dropped futures](crate::operation::dropped_futures). The next request in the queue asks at once, and, if the rollback has
/// not ended by then, again up to 100 ms later. A future that is dropped while it waits in the queue, before its first attempt
/// or between two, has no connection and no transaction: there is nothing to end.
///
/// [`stopped_by`](Self::stopped_by) returns a handle whose waits end with [`Error::Stopped`] when a [`StopToken`] is stopped:
/// when the process is to end, for example. A stop while the closure runs has no effect.
/// [`AsyncShutdown`](crate::AsyncShutdown) ends all waits, and waits for the transactions.
///
/// # What it does not have
///
/// There is no `try_with_object_lock`: use [`Wait::No`]. A closure is run once, and
/// [`run_transaction`](crate::AsyncTransactionExt::run_transaction) in it returns [`Error::AlreadyInTransaction`]: to retry
/// after a deadlock, call the method again while [`Error::is_retryable`] is true.
///
/// # In an open transaction
///
/// A connection of the pool whose transaction is open (`begin_test_transaction`) acquires locks and slots in a savepoint,
/// as the methods of a connection do.
///
/// ```
/// # mod sqlite { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sqlite/asynchronous.rs")); }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use diesel::prelude::*;
/// use diesel_async::RunQueryDsl;
/// use diesel_locks::prelude::*;
/// use diesel_locks::{AsyncLockPool, StopToken};
/// use std::time::Duration;
///
/// diesel::table! { accounts (id) { id -> Integer, balance -> Integer } }
///
/// # let directory = tempfile::tempdir()?;
/// # let pool = sqlite::pool(&directory.path().join("app.db").display().to_string())?;
/// # diesel_locks::migrate_async(&mut pool.get().await?).await?;
/// # diesel::sql_query("CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)")
/// #     .execute(&mut pool.get().await?).await?;
/// # diesel::sql_query("INSERT INTO accounts VALUES (4711, 10)").execute(&mut pool.get().await?).await?;
/// // Once, when the application starts, with a pool of deadpool or bb8:
/// let locks = AsyncLockPool::new(pool);
/// let shutdown = StopToken::new();
///
/// // In a handler, which the framework may drop:
/// let request = LockRequest::new(ObjectId::new("Account", "4711")).wait(Wait::AtMost(Duration::from_secs(2)));
/// let locks = locks.stopped_by(&shutdown);
/// let withdrawn = locks.with_object_lock(request, async |conn| -> diesel_locks::Result<bool> {
///     let account = accounts::table.find(4711);
///     let balance: i32 = account.select(accounts::balance).first(conn).await?;
///     if balance < 7 {
///         return Ok(false);
///     }
///     diesel::update(account).set(accounts::balance.eq(balance - 7)).execute(conn).await?;
///     Ok(true)
/// })
/// .await?;
/// assert!(withdrawn);
///
/// // At most five requests at a time, on all servers:
/// const REPORTS: Semaphore = Semaphore::from_static("reports", 5);
/// let wait = Wait::AtMost(Duration::from_secs(2));
/// let balance = locks.with_slot(&REPORTS, wait, async |conn| -> diesel_locks::Result<i32> {
///     Ok(accounts::table.find(4711).select(accounts::balance).first(conn).await?)
/// })
/// .await?;
/// assert_eq!(balance, 3);
/// # Ok(())
/// # }
/// ```
#[doc(alias("queue", "bulkhead", "waiters", "bb8", "deadpool"))]
pub struct AsyncLockPool<P: AsyncPool> {
    shared: Arc<Shared<P>>,
    /// The calls that wait, or whose transactions are open.
    activity: Activity,
    stop: Option<StopToken>,
}

impl<P: AsyncPool> AsyncLockPool<P> {
    /// Creates a handle that uses the connections of `pool`. Sends nothing to the database.
    pub fn new(pool: P) -> Self {
        Self {
            shared: Arc::new(Shared::new(pool)),
            activity: Activity::default(),
            stop: None,
        }
    }

    pub(crate) fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Returns the pool.
    pub fn pool(&self) -> &P {
        self.shared.pool()
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

    /// Returns how many requests of this `AsyncLockPool` and its clones wait for a lock or a slot, or make an attempt.
    pub fn waiting(&self) -> usize {
        self.shared.waiting()
    }

    /// Locks one object, or [several](LockRequest::all), with a connection of the pool, runs `f` in the transaction that
    /// holds the locks, and commits it. Waits without a connection while another transaction holds one of the locks.
    ///
    /// `f`, the transaction and its errors are as with
    /// [`AsyncObjectLockExt::with_object_lock`](crate::AsyncObjectLockExt::with_object_lock) outside a transaction. `f` gets
    /// the connection that holds the locks; a call of this method in `f` takes another connection, and may wait for the
    /// locks of `f` until its time is up.
    ///
    /// `f` is not run for a request that has been stopped. A stop while `f` runs has no effect.
    ///
    /// # Errors
    ///
    /// Those of [`AsyncObjectLockExt::with_object_lock`](crate::AsyncObjectLockExt::with_object_lock), and before `f`:
    ///
    /// - [`Error::LockTimeout`] when the time is up;
    /// - [`Error::Stopped`] at a stop, after the attempt that is running if there is one;
    /// - [`Error::AsyncPool`] if the first attempt, made without a wait in the queue, gets no connection. The limit is the
    ///   pool's time-out, or the remaining time of the request (at least 200 ms) if that is shorter. Also if the pool is
    ///   closed, at any attempt.
    pub fn with_object_lock<'c, 'f, T, E, F>(
        &'c self,
        request: impl Into<LockRequest>,
        f: F,
    ) -> impl Future<Output = Result<T, E>> + Send + 'c
    where
        for<'r> F: AsyncFnOnce(&'r mut P::Connection) -> Result<T, E>
            + Work<&'r mut P::Connection, Result<T, E>, Future: Send>
            + Send
            + 'f,
        T: Send + 'f,
        E: From<Error> + Send + 'f,
        'f: 'c,
    {
        let request = request.into();
        counted(&self.activity, async move {
            let _active = self.activity.begin();
            let wait = ObjectWait::new(&self.shared, self.stop.as_ref(), request)?;
            let mut held = objects::begin(&self.shared, &wait).await?;
            <P::Connection as Link>::droppable(held.run(f)).await
        })
    }

    /// Begins a transaction that holds a slot with a connection of the pool, runs `f` in it, and commits. Waits without a
    /// connection while no slot is free.
    ///
    /// `f`, the transaction and its errors are as with
    /// [`AsyncSemaphoreExt::with_slot`](crate::AsyncSemaphoreExt::with_slot) outside a transaction. `f` gets the connection
    /// that holds the slot; a call of this method in `f` takes another connection, and may wait for the slot of `f` until
    /// its time is up.
    ///
    /// `f` is not run for a request that has been stopped. A stop while `f` runs has no effect.
    ///
    /// # Errors
    ///
    /// Those of [`AsyncSemaphoreExt::with_slot`](crate::AsyncSemaphoreExt::with_slot), and before `f`:
    ///
    /// - [`Error::LockTimeout`] when the time is up;
    /// - [`Error::Stopped`] at a stop, after the attempt that is running if there is one;
    /// - [`Error::AsyncPool`] if the first attempt, made without a wait in the queue, gets no connection. The limit is the
    ///   pool's time-out, or the remaining time of `wait` (at least 200 ms) if that is shorter. Also if the pool is closed, at
    ///   any attempt.
    pub fn with_slot<'c, 'f, T, E, F>(
        &'c self,
        semaphore: &'c Semaphore,
        wait: Wait,
        f: F,
    ) -> impl Future<Output = Result<T, E>> + Send + 'c
    where
        for<'r> F: AsyncFnOnce(&'r mut P::Connection) -> Result<T, E>
            + Work<&'r mut P::Connection, Result<T, E>, Future: Send>
            + Send
            + 'f,
        T: Send + 'f,
        E: From<Error> + Send + 'f,
        'f: 'c,
    {
        let held = slots::begin(&*self.shared, self.stop.as_ref(), semaphore, wait);
        counted(&self.activity, async move {
            let _active = self.activity.begin();
            let mut held = held.await?;
            <P::Connection as Link>::droppable(held.run(f)).await
        })
    }

    /// Begins a transaction that holds a slot with a connection of the pool, runs `f` in it, and commits. Returns `None`,
    /// and does not run `f`, when no slot is free.
    ///
    /// Does not wait for a slot, but for a connection of the pool, up to its time-out. Otherwise as
    /// [`AsyncSemaphoreExt::try_with_slot`](crate::AsyncSemaphoreExt::try_with_slot) outside a transaction.
    ///
    /// # Errors
    ///
    /// [`Error::AsyncPool`] when the pool has no connection within its time-out; [`Error::Stopped`] after a stop, as in
    /// [`with_slot`](Self::with_slot); those of
    /// [`AsyncSemaphoreExt::try_with_slot`](crate::AsyncSemaphoreExt::try_with_slot).
    pub fn try_with_slot<'c, 'f, T, E, F>(
        &'c self,
        semaphore: &'c Semaphore,
        f: F,
    ) -> impl Future<Output = Result<Option<T>, E>> + Send + 'c
    where
        for<'r> F: AsyncFnOnce(&'r mut P::Connection) -> Result<T, E>
            + Work<&'r mut P::Connection, Result<T, E>, Future: Send>
            + Send
            + 'f,
        T: Send + 'f,
        E: From<Error> + Send + 'f,
        'f: 'c,
    {
        let held = slots::try_begin(&*self.shared, self.stop.as_ref(), semaphore);
        counted(&self.activity, async move {
            let _active = self.activity.begin();
            let Some(mut held) = held.await? else {
                return Ok(None);
            };
            let done = <P::Connection as Link>::droppable(held.run(f)).await;
            done.map(Some)
        })
    }
}

impl<P: AsyncPool> Clone for AsyncLockPool<P> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            activity: self.activity.clone(),
            stop: self.stop.clone(),
        }
    }
}

impl<P: AsyncPool> std::fmt::Debug for AsyncLockPool<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AsyncLockPool")
            .field("stop", &self.stop)
            .finish_non_exhaustive()
    }
}
