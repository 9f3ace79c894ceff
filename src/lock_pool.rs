//! Waits for object locks and slots without a connection, over an r2d2 pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use diesel::r2d2::{ConnectionManager, Pool, R2D2Connection};

use crate::ObjectId;
use crate::activity::Activity;
use crate::pooled::Connections;
use crate::queue::Queues;
use crate::stop::StopToken;

mod objects;
mod slots;

/// Acquires object locks, and slots of transactions, with connections of a pool, and holds no connection while it waits.
///
/// Feature `r2d2`. For services in which many requests may want the same lock or slot: a request that waits on
/// [`with_object_lock`](crate::ObjectLockExt::with_object_lock) or [`with_slot`](crate::SemaphoreExt::with_slot) of a
/// connection occupies that connection, and as many waiters as the pool has connections stop the whole service. Create one
/// `LockPool` beside the pool when the application starts, and clone it where it is needed: clones share their queues.
///
/// # Waiting for object locks
///
/// Requests for the same objects wait in a queue of the process, first come, first served. The first one asks the
/// database, without waiting there: after pauses of 10 to 100 ms, and when a holder of this `LockPool` releases the lock.
/// It borrows a connection for each attempt. While an attempt takes longer than a second, the next request makes one too.
/// So 1,000 requests that wait for 10 objects mostly use no connection, and for a few milliseconds at a time up to 10. Now
/// and then a released lock is left to other processes for up to 100 ms, at most 5 % of the time. On SQLite, where one
/// transaction excludes all others, all requests wait in one queue.
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
/// Waiters for a slot of one semaphore form one queue of the process, first come, first served, whether they wait on a
/// `LockPool`, on a connection or on a [`SlotRenewer`](crate::SlotRenewer). The first one asks the database, after pauses
/// of 10 to 100 ms. When a slot is released in this process, the next waiter asks at once, except that from time to time a
/// released slot is left to other processes for up to 100 ms. A slot that is released by another process is acquired up to
/// 100 ms later.
///
/// A request that finds no other waiter asks at once. At most as many of these ask at the same time as the semaphore has
/// permits, and at most half as many as the pool has connections. While an attempt takes longer than a second, the next waiter makes
/// one too.
///
/// On SQLite any other writer counts as a holder of all slots. A slot waiter is not woken when an object lock is released.
///
/// # Time limit
///
/// A request for object locks that sets no [`Wait`](crate::Wait) waits at most as long as the pool waits for a connection
/// ([`connection_timeout`](diesel::r2d2::Builder::connection_timeout), 30 s by default), not forever.
///
/// An attempt for which the pool gives no connection within its time-out counts as refused: the wait continues until its own
/// limit. Only for an attempt before which it has not waited it is an error ([`Error::Pool`](crate::Error::Pool)).
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
    shared: Arc<Shared<C>>,
    stop: Option<StopToken>,
}

struct Shared<C: R2D2Connection + 'static> {
    /// The calls that wait, or whose transactions are open.
    activity: Activity,
    connections: Connections<C>,
    /// The requests that wait for object locks, by the objects.
    queues: Arc<Queues<Vec<ObjectId>, ()>>,
    /// How many requests wait for a slot. Their queues belong to the process.
    slot_waiters: AtomicUsize,
}

impl<C: R2D2Connection + 'static> LockPool<C> {
    /// Creates a handle that uses the connections of `pool`. Sends nothing to the database.
    pub fn new(pool: Pool<ConnectionManager<C>>) -> Self {
        let shared = Shared {
            activity: Activity::default(),
            connections: Connections::new(pool),
            queues: Arc::new(Queues::exclusive()),
            slot_waiters: AtomicUsize::new(0),
        };
        Self {
            shared: Arc::new(shared),
            stop: None,
        }
    }

    pub(crate) fn activity(&self) -> &Activity {
        &self.shared.activity
    }

    /// Returns the pool.
    pub fn pool(&self) -> &Pool<ConnectionManager<C>> {
        self.shared.connections.pool()
    }

    /// Returns a handle to the same queues whose waits end when `stop` is stopped. The token replaces that of this handle: to
    /// keep both, pass a [child](StopToken::child) of the old one.
    #[must_use]
    #[doc(alias("cancel", "CancellationToken", "abort"))]
    pub fn stopped_by(&self, stop: &StopToken) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            stop: Some(stop.clone()),
        }
    }

    /// Returns how many requests of this `LockPool` and its clones wait for a lock or a slot, or make an attempt.
    pub fn waiting(&self) -> usize {
        self.shared.queues.waiting() + self.shared.slot_waiters.load(Ordering::SeqCst)
    }
}

impl<C: R2D2Connection + 'static> Clone for LockPool<C> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
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
