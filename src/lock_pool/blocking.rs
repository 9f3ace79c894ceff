//! [`LockPool`], over an r2d2 pool.

use std::sync::Arc;

use diesel::r2d2::{ConnectionManager, Pool, R2D2Connection};

use super::objects::{self, ObjectWait};
use super::shared::Shared;
use super::slots;
use crate::activity::Activity;
use crate::lender::blocking::R2d2Pool;
use crate::poll;
use crate::stop::StopToken;
use crate::{Error, LockRequest, ObjectLockExt, Semaphore, SemaphoreExt, Wait};

/// Acquires object locks, and slots of transactions, with connections of a pool, and holds no connection while it waits.
///
/// Feature `r2d2`. For services in which many requests may want the same lock or slot: a request that waits on
/// [`with_object_lock`](crate::ObjectLockExt::with_object_lock) or [`with_slot`](crate::SemaphoreExt::with_slot) of a
/// connection occupies that connection, and as many waiters as the pool has connections stop the whole service. Create one
/// `LockPool` beside the pool when the application starts, and clone it where it is needed: clones share their queues.
///
/// # Waiting for object locks
///
/// Requests for the same objects wait in a queue of the process, in the order in which they came. The first one asks the
/// database, without waiting there: after pauses of 10 to 100 ms, and when a holder of this `LockPool` releases the lock.
/// It borrows a connection for each attempt. If the lock is released during an attempt, or if an attempt takes longer than
/// 1 s, the next request also makes an attempt. It may acquire the lock first. A request with [`Wait::No`](crate::Wait::No)
/// joins no queue. So 1,000 requests that wait for 10 objects mostly use no connection, and for a few milliseconds at a time
/// up to 10. Now and then a released lock is left to other processes for up to 100 ms, at most 5 % of the time. On SQLite,
/// where one transaction excludes all others, all requests wait in one queue.
///
/// Requests for different sets of objects wait in different queues, also if the sets overlap. The
/// release of a set wakes requests for the same set and for one of its objects; the others poll.
///
/// A lock that is held by another process, or by a connection that was used without this `LockPool`, is acquired up to
/// 100 ms after its release; sessions that wait in the database get it earlier. The order of requests holds within the
/// process, not between processes. Where few requests wait, and the time from a release to the next grant counts more
/// than connections, wait in the database.
///
/// A request for several objects is granted when all of them are free at the time of an attempt: it holds none of them
/// while it waits, so that it can't deadlock. While others lock these objects without a pause, it may wait until its time
/// is up. Where that happens, lock one object that stands for all, or wait in the database.
///
/// # Waiting for slots
///
/// Waiters for a slot of one semaphore form one queue of the process, in the order in which they came, whether they wait on
/// a `LockPool`, on a connection or on a [`SlotRenewer`](crate::SlotRenewer). The first one asks the database, after pauses
/// of 10 to 100 ms. When a slot is released in this process, the next waiter whose attempt is not running makes an attempt
/// at once. It may acquire the slot before a waiter whose attempt is running. From time to time a released slot is left to
/// other processes for up to 100 ms. A slot that is released by another process is acquired up to 100 ms later.
///
/// A request that finds no waiter makes an attempt at once. The number of such attempts at the same time is at most the
/// number of permits, and at most half of the pool's size. If an attempt takes longer than 1 s, the next waiter also makes
/// an attempt.
///
/// On SQLite any other writer counts as a holder of all slots. A slot waiter is not woken when an object lock is released.
///
/// # Connections for others
///
/// A `LockPool` borrows all connections of its pool but one at the same time; all if the pool has fewer than four. So queries
/// that use the pool directly, such as a health check, do not wait behind requests for locks, however many these are. Requests
/// wait for a connection in a queue of the `LockPool`, first come, first served, and not in that of the pool. To run eight
/// transactions with locks at the same time, give the pool nine connections. The last connection runs no closure also if the
/// application does not use it: then requests wait, and may time out, although a connection is free.
///
/// # Time limit
///
/// A request for object locks that sets no [`Wait`](crate::Wait) waits at most as long as the pool waits for a connection
/// ([`connection_timeout`](diesel::r2d2::Builder::connection_timeout), 30 s by default), not forever.
///
/// If the first attempt is made at once, without a wait in the queue, and gets no connection, the request returns
/// [`Error::Pool`](crate::Error::Pool). The limit is the pool's time-out, or the remaining time of the request (at least
/// 200 ms) if that is shorter. Any other attempt that gets no connection counts as refused: the wait continues until its own
/// limit.
///
/// A request that waits in the queue does not depend on the attempts of others: if none was answered since it came, it makes its own
/// when half of its time has passed. A connection that does not answer delays only the request that uses it, until the
/// connection itself times out: a thread can't give up a statement.
///
/// # Stop
///
/// [`stopped_by`](Self::stopped_by) returns a handle whose waits end when a [`StopToken`] is stopped: when the client
/// of a request hangs up, or the process is to end. A request that can be stopped asks the pool for a connection every
/// 25 ms, and then is the last in the pool's own queue; the pool's event handler counts each of these as a time-out.
///
/// # In an open transaction
///
/// A connection of the pool whose transaction is open (`begin_test_transaction`) acquires locks and slots in a savepoint,
/// as the methods of a connection do.
///
/// ```
/// use diesel::prelude::*;
/// use diesel_locks::prelude::*;
/// use diesel_locks::{LockPool, StopToken};
/// use std::time::Duration;
///
/// # mod sqlite { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sqlite/mod.rs")); }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let pool = sqlite::pool(&directory.path().join("app.db").display().to_string())?;
/// # diesel_locks::migrate(&mut pool.get()?)?;
/// let locks = LockPool::new(pool); // once, when the application starts
/// let shutdown = StopToken::new();
///
/// // In a handler:
/// let request = LockRequest::new(ObjectId::new("Account", "4711")).wait(Wait::AtMost(Duration::from_secs(2)));
/// locks.stopped_by(&shutdown).with_object_lock(request, |conn| {
///     // read, compare, write
///     diesel::select(diesel::dsl::sql::<diesel::sql_types::Integer>("1")).execute(conn)?;
///     Ok::<_, diesel_locks::Error>(())
/// })?;
///
/// // At most five requests at a time, on all servers:
/// const REPORTS: Semaphore = Semaphore::from_static("reports", 5);
/// let wait = Wait::AtMost(Duration::from_secs(2));
/// let rows = locks.stopped_by(&shutdown).with_slot(&REPORTS, wait, |conn| {
///     diesel::select(diesel::dsl::sql::<diesel::sql_types::Integer>("7"))
///         .get_result::<i32>(conn)
///         .map_err(diesel_locks::Error::from)
/// })?;
/// assert_eq!(rows, 7);
/// # Ok(())
/// # }
/// ```
#[doc(alias("queue", "bulkhead", "waiters", "async"))]
pub struct LockPool<C: R2D2Connection + 'static> {
    shared: Arc<Shared<R2d2Pool<C>>>,
    /// The calls that wait, or whose transactions are open.
    activity: Activity,
    stop: Option<StopToken>,
}

impl<C: R2D2Connection + 'static> LockPool<C> {
    /// Creates a handle that uses the connections of `pool`. Sends nothing to the database.
    pub fn new(pool: Pool<ConnectionManager<C>>) -> Self {
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
    pub fn pool(&self) -> &Pool<ConnectionManager<C>> {
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

    /// Returns how many requests of this `LockPool` and its clones wait for a lock or a slot, or make an attempt.
    pub fn waiting(&self) -> usize {
        self.shared.waiting()
    }
}

impl<C: ObjectLockExt + R2D2Connection + 'static> LockPool<C> {
    /// Locks one object, or [several](LockRequest::all), with a connection of the pool, calls `f` in the transaction that
    /// holds the locks, and commits it. Waits without a connection while another transaction holds one of the locks.
    ///
    /// `f`, the transaction and its errors are as with
    /// [`ObjectLockExt::with_object_lock`](crate::ObjectLockExt::with_object_lock) outside a transaction. `f` gets the connection
    /// that holds the locks; a call of this method in `f` takes another connection, and may wait for the locks of `f`
    /// until its time is up.
    ///
    /// `f` is not called for a request that has been stopped. A stop while `f` runs has no effect.
    ///
    /// # Errors
    ///
    /// Those of [`ObjectLockExt::with_object_lock`](crate::ObjectLockExt::with_object_lock), and before `f`:
    ///
    /// - [`Error::LockTimeout`] when the time is up;
    /// - [`Error::Stopped`] within 50 ms of a stop, and the time of one attempt if one is running;
    /// - [`Error::Pool`] if the first attempt, made without a wait in the queue, gets no connection. The limit is the pool's
    ///   time-out, or the remaining time of the request (at least 200 ms) if that is shorter.
    pub fn with_object_lock<T, E, F>(&self, request: impl Into<LockRequest>, f: F) -> Result<T, E>
    where
        F: FnOnce(&mut C) -> Result<T, E>,
        E: From<Error>,
    {
        let _active = self.activity.begin();
        let wait = ObjectWait::new(&self.shared, self.stop.as_ref(), request.into())?;
        let mut held = C::block_on(objects::begin(&self.shared, &wait))?;
        C::block_on(held.run(poll::blocking(&mut Some(f))))
    }
}

impl<C: SemaphoreExt + R2D2Connection + 'static> LockPool<C> {
    /// Begins a transaction that holds a slot with a connection of the pool, calls `f` in it, and commits. Waits without a
    /// connection while no slot is free.
    ///
    /// `f`, the transaction and its errors are as with [`SemaphoreExt::with_slot`] outside a transaction. `f` gets the
    /// connection that holds the slot; a call of this method in `f` takes another connection, and may wait for the slot of
    /// `f` until its time is up.
    ///
    /// `f` is not called for a request that has been stopped. A stop while `f` runs has no effect.
    ///
    /// # Errors
    ///
    /// Those of [`SemaphoreExt::with_slot`], and before `f`:
    ///
    /// - [`Error::LockTimeout`] when the time is up;
    /// - [`Error::Stopped`] within 50 ms of a stop, and the time of one attempt if one is running;
    /// - [`Error::Pool`] if the first attempt, made without a wait in the queue, gets no connection. The limit is the pool's
    ///   time-out, or the remaining time of `wait` (at least 200 ms) if that is shorter.
    ///
    /// ```
    /// use diesel_locks::LockPool;
    /// use diesel_locks::prelude::*;
    /// use std::time::Duration;
    ///
    /// # mod sqlite { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sqlite/mod.rs")); }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let pool = sqlite::pool(&directory.path().join("app.db").display().to_string())?;
    /// # diesel_locks::migrate(&mut pool.get()?)?;
    /// # let locks = LockPool::new(pool);
    /// /// At most five transactions at a time recompute statistics.
    /// const STATISTICS: Semaphore = Semaphore::from_static("statistics", 5);
    ///
    /// let wait = Wait::AtMost(Duration::from_secs(2));
    /// match locks.with_slot(&STATISTICS, wait, |_conn| Ok::<_, diesel_locks::Error>("recomputed")) {
    ///     Ok(done) => println!("{done}"),
    ///     Err(error) if error.is_busy() => println!("try again later"), // 503
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_slot<T, E, F>(&self, semaphore: &Semaphore, wait: Wait, f: F) -> Result<T, E>
    where
        F: FnOnce(&mut C) -> Result<T, E>,
        E: From<Error>,
    {
        let _active = self.activity.begin();
        let stop = self.stop.as_ref();
        let mut held = C::block_on(slots::begin(&self.shared, stop, semaphore, wait))?;
        C::block_on(held.run(poll::blocking(&mut Some(f))))
    }

    /// Begins a transaction that holds a slot with a connection of the pool, calls `f` in it, and commits. Returns `None`,
    /// and does not call `f`, when no slot is free.
    ///
    /// Does not wait for a slot, but for a connection of the pool, up to its time-out. Otherwise like
    /// [`SemaphoreExt::try_with_slot`] outside a transaction.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] when the pool has no connection within its time-out; [`Error::Stopped`] after a stop, as in
    /// [`with_slot`](Self::with_slot); those of [`SemaphoreExt::try_with_slot`].
    pub fn try_with_slot<T, E, F>(&self, semaphore: &Semaphore, f: F) -> Result<Option<T>, E>
    where
        F: FnOnce(&mut C) -> Result<T, E>,
        E: From<Error>,
    {
        let _active = self.activity.begin();
        let held = slots::try_begin(&self.shared, self.stop.as_ref(), semaphore);
        let Some(mut held) = C::block_on(held)? else {
            return Ok(None);
        };
        C::block_on(held.run(poll::blocking(&mut Some(f)))).map(Some)
    }
}

impl<C: R2D2Connection + 'static> Clone for LockPool<C> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            activity: self.activity.clone(),
            stop: self.stop.clone(),
        }
    }
}

impl<C: R2D2Connection + 'static> std::fmt::Debug for LockPool<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockPool")
            .field("stop", &self.stop)
            .finish_non_exhaustive()
    }
}
