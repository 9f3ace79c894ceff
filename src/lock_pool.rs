//! Waits for object locks without a connection, over an r2d2 pool.

use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::r2d2::{ConnectionManager, Pool, PooledConnection, R2D2Connection};

use crate::object_lock::acquire::Request;
use crate::object_lock::backend::LockOutcome;
use crate::object_lock::events;
use crate::object_lock::run::begin;
use crate::queue::{Queues, Turn};
use crate::transaction::run::{commit_or_rollback_then, roll_back};
use crate::{Error, LockRequest, ObjectId, ObjectLockExt, Wait};

mod stop;

pub use stop::{StopOnDrop, StopToken};

/// Acquires object locks with connections of a pool, and holds no connection while it waits.
///
/// Feature `r2d2`. For services in which many requests may want the same lock: a request that waits on
/// [`with_object_lock`](ObjectLockExt::with_object_lock) of a connection occupies that connection, and as many waiters
/// as the pool has connections stop the whole service. Create one `LockPool` beside the pool when the application
/// starts, and clone it where it is needed: clones share their queues.
///
/// # Waiting
///
/// Requests for the same objects wait in a queue of the process, first come, first served. The first one asks the
/// database, without waiting there: after pauses of 10 to 100 ms, and when a holder of this `LockPool` releases the lock.
/// It borrows a connection for each attempt. While an attempt takes longer than a second, the next request makes one too.
/// So 1,000 requests that wait for 10 objects mostly use no connection, and for a few milliseconds at a time up to 10. At
/// most a twentieth of the time a released lock is left to other processes for up to 100 ms. On SQLite, where one
/// transaction excludes all others, all requests wait in one queue.
///
/// Requests for different sets of objects wait in different queues, also if the sets overlap. Only a request for one
/// object is woken by the release of a set.
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
/// # Time limit
///
/// A request that sets no [`Wait`] waits at most as long as the pool waits for a connection
/// ([`connection_timeout`](diesel::r2d2::Builder::connection_timeout), 30 s by default), not forever.
///
/// # Stop
///
/// [`stopped_by`](Self::stopped_by) returns a handle whose waits end when a [`StopToken`] is stopped: when the client
/// of a request hangs up, or the process is to end. A request that can be stopped asks the pool for a connection every
/// 25 ms, and then is the last in the pool's own queue; the pool's event handler counts each of these as a time-out.
///
/// # In an open transaction
///
/// A connection of the pool whose transaction is open (`begin_test_transaction`) acquires the locks in a savepoint, as
/// [`ObjectLockExt::with_object_lock`] does.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use diesel::prelude::*;
/// use diesel::r2d2::{ConnectionManager, Pool};
/// use diesel_locks::prelude::*;
/// use diesel_locks::{LockPool, StopToken};
/// use std::time::Duration;
///
/// # let directory = tempfile::tempdir()?;
/// # let url = directory.path().join("app.db").display().to_string();
/// let pool = Pool::new(ConnectionManager::<SqliteConnection>::new(url))?;
/// # diesel_locks::migrate(&mut *pool.get()?)?;
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
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sqlite"))]
/// # fn main() {}
/// ```
pub struct LockPool<C: R2D2Connection + 'static> {
    shared: Arc<Shared<C>>,
    stop: Option<StopToken>,
}

struct Shared<C: R2D2Connection + 'static> {
    pool: Pool<ConnectionManager<C>>,
    /// The requests that wait, by the objects that they lock.
    queues: Arc<Queues<Vec<ObjectId>, ()>>,
}

impl<C: ObjectLockExt + R2D2Connection + 'static> LockPool<C> {
    /// Creates a handle that uses the connections of `pool`. Sends nothing to the database.
    pub fn new(pool: Pool<ConnectionManager<C>>) -> Self {
        let queues = Arc::new(Queues::exclusive());
        Self {
            shared: Arc::new(Shared { pool, queues }),
            stop: None,
        }
    }

    /// Returns the pool.
    pub fn pool(&self) -> &Pool<ConnectionManager<C>> {
        &self.shared.pool
    }

    /// Returns a handle to the same queues whose waits end when `stop` is stopped.
    #[must_use]
    pub fn stopped_by(&self, stop: &StopToken) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            stop: Some(stop.clone()),
        }
    }

    /// Returns how many requests wait, or make an attempt.
    pub fn waiting(&self) -> usize {
        self.shared.queues.waiting()
    }

    /// Locks one or several objects with a connection of the pool, calls `f` in the transaction that holds the locks,
    /// and commits it. Waits without a connection while another transaction holds one of the locks.
    ///
    /// `f`, the transaction and its errors are as with
    /// [`ObjectLockExt::with_object_lock`](ObjectLockExt::with_object_lock) outside a transaction. `f` gets the connection
    /// that holds the locks; a call of this method in `f` takes another connection, and may wait for the locks of `f`
    /// until its time is up.
    ///
    /// `f` is not called for a request that has been stopped. A stop while `f` runs has no effect.
    ///
    /// # Errors
    ///
    /// Those of [`ObjectLockExt::with_object_lock`](ObjectLockExt::with_object_lock), and before `f`:
    ///
    /// - [`Error::LockTimeout`] when the time is up;
    /// - [`Error::Stopped`] within 50 ms of a stop, and the time of one attempt if one is running;
    /// - [`Error::Pool`] when the pool has no connection for the first attempt within its time-out, or within the time of
    ///   the request (at least 200 ms) if that is shorter.
    pub fn with_object_lock<T, E, F>(&self, lock: impl Into<LockRequest>, f: F) -> Result<T, E>
    where
        F: FnOnce(&mut C) -> Result<T, E>,
        E: From<Error>,
    {
        let mut lock = lock.into();
        let limit = self.pool().connection_timeout().min(Wait::LONGEST);
        lock.wait.get_or_insert(Wait::AtMost(limit));
        let request = Request::new(lock)?;
        let key = C::queue_key(&request);
        // Dropped after the connection, so that the next request finds it in the pool.
        let mut notify = NotifyOnDrop {
            queues: &self.shared.queues,
            key: &key,
            acquired: false,
        };
        let mut conn = self.begin(&request, &key)?;
        notify.acquired = true;
        if self.is_stopped() {
            roll_back(&mut *conn);
            return Err(stopped(&request).into());
        }
        let acquired = Instant::now();
        commit_or_rollback_then(&mut *conn, f, || {
            events::record_released(&request, acquired.elapsed());
        })
    }

    /// Waits for the locks, and returns the connection whose transaction holds them.
    fn begin(
        &self,
        request: &Request,
        key: &[ObjectId],
    ) -> Result<PooledConnection<ConnectionManager<C>>, Error> {
        let acquired = self.wait(request, key);
        let outcome = acquired.as_ref().map(|_| LockOutcome::Acquired);
        events::record(request, outcome);
        acquired
    }

    fn wait(
        &self,
        request: &Request,
        key: &[ObjectId],
    ) -> Result<PooledConnection<ConnectionManager<C>>, Error> {
        let queues = &self.shared.queues;
        let deadline = request.remaining().map(|left| Instant::now() + left);
        let mut ticket = if request.wait == Wait::No {
            queues.independent(key.to_vec())
        } else {
            queues.join(key.to_vec(), 1, |()| true)
        };
        let _registration = self
            .stop
            .as_ref()
            .zip(ticket.number())
            .map(|(stop, number)| {
                let (queues, key) = (Arc::clone(queues), key.to_vec());
                stop.on_stop(move || queues.wake(key.as_slice(), number))
            });
        let attempt = request.attempt();
        let mut refused = false;
        loop {
            let turn = ticket.wait_unless(deadline, || self.is_stopped());
            if self.is_stopped() {
                return Err(stopped(request));
            }
            match turn {
                Turn::Identify => {
                    ticket.set_target(Some(()));
                    continue;
                }
                // It has waited for its turn until the time was up.
                Turn::Query { notified: None } if request.has_waited_its_time() => {
                    return Err(request.timed_out(None));
                }
                Turn::Query { .. } => {}
            }
            let mut conn = match self.connection(request) {
                Err(Error::Pool(_)) if refused && request.has_waited_its_time() => {
                    return Err(request.timed_out(None));
                }
                conn => conn?,
            };
            match begin(&mut *conn, &attempt) {
                Ok(LockOutcome::Acquired) => {
                    ticket.finish();
                    return Ok(conn);
                }
                // A limit of the session, or a deadlock with another attempt, has ended the attempt and not the wait.
                Ok(LockOutcome::Unavailable) | Err(Error::LockTimeout { .. }) => {}
                Err(error) => return Err(error),
            }
            drop(conn);
            if request.wait == Wait::No {
                return Err(Error::Unavailable {
                    resource: request.resource(),
                });
            }
            if request.remaining().is_some_and(|left| left.is_zero()) {
                return Err(request.timed_out(None));
            }
            if ticket.needs_target() {
                ticket.set_target(Some(()));
            }
            ticket.record_refusal();
            refused = true;
        }
    }

    /// Borrows a connection of the pool.
    fn connection(
        &self,
        request: &Request,
    ) -> Result<PooledConnection<ConnectionManager<C>>, Error> {
        let started = Instant::now();
        let pool = self.pool();
        let limit = match request.wait {
            Wait::AtMost(limit) => limit.saturating_sub(request.elapsed()).max(SHORTEST_BORROW),
            Wait::Forever | Wait::No => Duration::MAX,
        };
        let limit = pool.connection_timeout().min(limit);
        loop {
            let left = limit.saturating_sub(started.elapsed());
            let step = match &self.stop {
                Some(_) => left.min(STOP_INTERVAL),
                None => left,
            };
            match pool.get_timeout(step) {
                Ok(conn) => return Ok(conn),
                Err(error) if left <= step => return Err(error.into()),
                Err(_) if self.is_stopped() => return Err(stopped(request)),
                Err(_) => {}
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(StopToken::is_stopped)
    }
}

/// How often a request that waits for a connection of the pool looks whether it was stopped. r2d2 can't be woken.
const STOP_INTERVAL: Duration = Duration::from_millis(25);

/// How long a request waits for a connection at least, so that a free lock is acquired with any time limit: the pool may
/// have to open a connection.
const SHORTEST_BORROW: Duration = Duration::from_millis(200);

fn stopped(request: &Request) -> Error {
    Error::Stopped {
        resource: request.resource(),
        waited: request.elapsed(),
    }
}

/// Notifies the next request when the transaction has ended, whatever its outcome.
struct NotifyOnDrop<'a> {
    queues: &'a Queues<Vec<ObjectId>, ()>,
    key: &'a [ObjectId],
    acquired: bool,
}

impl Drop for NotifyOnDrop<'_> {
    fn drop(&mut self) {
        if self.acquired {
            self.queues.notify_released(self.key, 1, None);
            // Requests for one of these objects wait in a queue of their own.
            if self.key.len() > 1 {
                for id in self.key {
                    self.queues
                        .notify_released(std::slice::from_ref(id), 1, None);
                }
            }
        }
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
