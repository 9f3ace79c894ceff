//! For the tests of an application, without sleeping. Enable the feature `testing` in `[dev-dependencies]`.

#![allow(
    clippy::missing_errors_doc,
    reason = "the page of `Error` lists those of acquisitions, which are most of them"
)]

use std::fmt;
use std::time::Duration;

use uuid::Uuid;

pub use crate::acts::failures::{Failure, Failures};

use crate::acts::cancel_guard::{CancelGuard, unless_dropped};
use crate::acts::failures::Of;
use crate::acts::object_lock::begin_outermost;
use crate::acts::slot_attempts::{NO_WAIT, acquire};
use crate::acts::transaction::{assert_open_if_in_transaction, outside};
use crate::acts::{slot, slot_queue};
use crate::api::setup::AsEngine;
use crate::engine::ending::roll_back;
use crate::engine::{Engine, HasEngine};
use crate::error::NameKind;
#[cfg(feature = "_pool")]
use crate::jobs::guard::renew_all_soon;
use crate::link::depth::depth;
use crate::values::lease::micros;
use crate::values::lock_request::Request;
use crate::{Error, LeaseOptions, LockRequest, Semaphore, Slot, Wait};

/// Moves the times of a semaphore's held slots earlier, as if that time had passed on the database's clock without a renewal. Returns
/// how many are moved.
///
/// ```
/// use diesel::prelude::*;
/// use diesel_locks::prelude::*;
/// use diesel_locks::testing;
/// use std::time::Duration;
///
/// # let mut conn = SqliteConnection::establish(":memory:")?;
/// # diesel_locks::migrate(&mut conn)?;
/// let (report, minute) = (Semaphore::new("report", 1), Duration::from_secs(60));
/// let slot = conn.acquire_slot(&report, LeaseOptions::new(minute), Wait::No)?;
/// assert_eq!(testing::expire_leases(&mut conn, &report, minute)?, 1);
/// let other = conn.acquire_slot(&report, LeaseOptions::new(minute), Wait::No)?;
/// assert!(conn.release_slot(slot).is_err_and(|error| error.is_slot_lost()));
/// # conn.release_slot(other)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// `by` has the limits of a lease ([`Error::InvalidLease`]).
///
/// Waiters and renewers of this process send their next query at once: the guard of an expired lease is lost within milliseconds, any
/// other lease is a full one again. Those of other processes send it when it is due. What uses the local clock does not change:
/// [`Slot::remaining`], `progress_within`, `max_hold`.
///
/// [Minimum hold times](LeaseOptions::hold_at_least) end earlier too. They record the ticks of a `TimerJob`, so that another node may
/// run the last one again.
pub fn expire_leases<C: AsEngine<false>>(
    conn: &mut C,
    semaphore: impl AsRef<str>,
    by: Duration,
) -> Result<usize, Error> {
    let mut engine = C::Engine::engine(conn.as_engine())?;
    C::Engine::block_on(expire(&mut *engine, semaphore.as_ref(), by))
}

/// [`expire_leases`] on a connection of diesel-async.
#[cfg(feature = "_async")]
pub fn expire_leases_async<C: AsEngine<true>>(
    conn: &mut C,
    semaphore: impl AsRef<str>,
    by: Duration,
) -> impl Future<Output = Result<usize, Error>> + Send {
    let (conn, name) = (conn.as_engine(), semaphore.as_ref().to_owned());
    async move {
        let mut engine = C::Engine::engine(conn)?;
        unless_dropped!(&mut *engine, |engine| expire(engine, &name, by))
    }
}

async fn expire(engine: &mut dyn Engine, name: &str, by: Duration) -> Result<usize, Error> {
    NameKind::Semaphore.check(name)?;
    assert_open_if_in_transaction(engine).await?;
    let held = engine.expire(name, micros(by)?).await?;
    slot_queue::notify_released(name, held, None);
    #[cfg(feature = "_pool")]
    renew_all_soon(name);
    Ok(held)
}

/// Holds object locks or slots until [`release`](Self::release) or a drop. With `ASYNC`, on a connection of diesel-async, a drop closes
/// the connection, and does not wait.
#[must_use = "dropping it releases what it holds"]
pub struct OtherHolder<C: AsEngine<ASYNC>, const ASYNC: bool = false> {
    /// `None` after the release. Its transaction is open if it holds object locks.
    conn: Option<C>,
    /// With one token for all.
    slots: Vec<Slot>,
}

/// Holds object locks as another process would, in an open transaction of this connection.
///
/// ```
/// use diesel::prelude::*;
/// use diesel_locks::prelude::*;
/// use diesel_locks::testing;
///
/// # mod sqlite { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sqlite/mod.rs")); }
/// # let (pool, _directory) = sqlite::database();
/// # let mut conn = pool.get()?;
/// let order = ObjectId::new("Order", 4711);
/// let other = testing::hold_object_lock(pool.get()?, LockRequest::shared(&order))?;
/// assert_eq!(conn.try_with_object_lock(&order, |_conn| QueryResult::Ok(42))?, None);
/// other.release()?;
/// assert_eq!(conn.try_with_object_lock(&order, |_conn| QueryResult::Ok(42))?, Some(42));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`Error::Unavailable`] if one is held, unless the request waits. On SQLite no other connection can write meanwhile.
pub fn hold_object_lock<C: AsEngine<false>>(
    conn: C,
    request: impl Into<LockRequest>,
) -> Result<OtherHolder<C>, Error> {
    C::Engine::block_on(lock(conn, request.into()))
}

/// [`hold_object_lock`] on a connection of diesel-async.
#[cfg(feature = "_async")]
pub fn hold_object_lock_async<C: AsEngine<true> + Send>(
    conn: C,
    request: impl Into<LockRequest>,
) -> impl Future<Output = Result<OtherHolder<C, true>, Error>> + Send {
    lock(conn, request.into())
}

async fn lock<C: AsEngine<ASYNC>, const ASYNC: bool>(
    mut conn: C,
    request: LockRequest,
) -> Result<OtherHolder<C, ASYNC>, Error> {
    let request = Request::new(request.or_wait(Wait::No))?;
    let mut engine = C::Engine::engine(conn.as_engine())?;
    outside(&mut *engine, "hold_object_lock", OWN_TRANSACTION)?;
    let begun = unless_dropped!(&mut *engine, |engine| begin_outermost(engine, &request));
    drop(engine);
    if !begun?.is_acquired() {
        return Err(request.unavailable());
    }
    Ok(OtherHolder {
        conn: Some(conn),
        slots: Vec::new(),
    })
}

const OWN_TRANSACTION: &str =
    "it releases what it holds by the end of its own transaction or lease";

/// Holds slots of a semaphore (`None`: all that are free) as another process would, with a lease of an hour.
///
/// ```
/// use diesel::prelude::*;
/// use diesel_locks::prelude::*;
/// use diesel_locks::testing;
///
/// # mod sqlite { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sqlite/mod.rs")); }
/// # let (pool, _directory) = sqlite::database();
/// # let mut conn = pool.get()?;
/// let exports = Semaphore::new("exports", 5);
/// let other = testing::hold_slots(pool.get()?, &exports, None)?;
/// assert!(conn.try_with_slot(&exports, |_conn| QueryResult::Ok(()))?.is_none());
/// drop(other);
/// assert!(conn.try_with_slot(&exports, |_conn| QueryResult::Ok(()))?.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`Error::Unavailable`], and none is held, if fewer are free.
pub fn hold_slots<C: AsEngine<false>>(
    conn: C,
    semaphore: &Semaphore,
    count: impl Into<Option<u32>>,
) -> Result<OtherHolder<C>, Error> {
    C::Engine::block_on(lease(conn, semaphore, count.into()))
}

/// [`hold_slots`] on a connection of diesel-async.
#[cfg(feature = "_async")]
pub fn hold_slots_async<C: AsEngine<true> + Send>(
    conn: C,
    semaphore: &Semaphore,
    count: impl Into<Option<u32>>,
) -> impl Future<Output = Result<OtherHolder<C, true>, Error>> + Send {
    lease(conn, semaphore, count.into())
}

async fn lease<C: AsEngine<ASYNC>, const ASYNC: bool>(
    conn: C,
    semaphore: &Semaphore,
    count: Option<u32>,
) -> Result<OtherHolder<C, ASYNC>, Error> {
    const HOUR: Duration = Duration::from_secs(3600);
    let lease = LeaseOptions::new(HOUR).holder("diesel_locks::testing");
    let token = Uuid::new_v4();
    let mut holder = OtherHolder {
        conn: Some(conn),
        slots: Vec::new(),
    };
    let OtherHolder { conn, slots } = &mut holder;
    let mut engine = C::Engine::engine(conn.as_mut().expect(HELD).as_engine())?;
    outside(&mut *engine, "hold_slots", OWN_TRANSACTION)?;
    while count.is_none_or(|count| u32::try_from(slots.len()).is_ok_and(|held| held < count)) {
        match acquire(&mut *engine, semaphore, &lease, token, NO_WAIT).await? {
            Some(slot) => slots.push(slot),
            None if count.is_none() && !slots.is_empty() => break,
            None => {
                end(&mut *engine, slots).await?;
                drop(engine);
                // Nothing is left for a drop to release.
                holder.conn = None;
                return Err(Error::Unavailable {
                    resource: semaphore.slot_resource(),
                });
            }
        }
    }
    drop(engine);
    Ok(holder)
}

const HELD: &str = "a connection until the release";

impl<C: AsEngine<false>> OtherHolder<C> {
    /// Ends the transaction, or releases the slots that are still held. Returns the connection.
    pub fn release(self) -> Result<C, Error> {
        C::Engine::block_on(released(self))
    }
}

#[cfg(feature = "_async")]
impl<C: AsEngine<true> + Send> OtherHolder<C, true> {
    /// Releases as that of a blocking connection.
    pub fn release(self) -> impl Future<Output = Result<C, Error>> + Send {
        released(self)
    }
}

async fn released<C: AsEngine<ASYNC>, const ASYNC: bool>(
    mut holder: OtherHolder<C, ASYNC>,
) -> Result<C, Error> {
    let OtherHolder { conn, slots } = &mut holder;
    let mut engine = C::Engine::engine(conn.as_mut().expect(HELD).as_engine())?;
    end(&mut *engine, slots).await?;
    drop(engine);
    Ok(holder.conn.take().expect(HELD))
}

async fn end(engine: &mut dyn Engine, slots: &[Slot]) -> Result<(), Error> {
    if depth(engine.status())? > 0 {
        roll_back(engine).await;
        depth(engine.status())?;
    }
    for slot in slots {
        match slot::release(engine, slot).await {
            Err(error) if !error.is_slot_lost() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

impl<C: AsEngine<ASYNC>, const ASYNC: bool> Drop for OtherHolder<C, ASYNC> {
    fn drop(&mut self) {
        let Some(mut conn) = self.conn.take() else {
            return;
        };
        let Ok(mut engine) = C::Engine::engine(conn.as_engine()) else {
            return;
        };
        let engine = &mut *engine;
        if !ASYNC {
            if let Err(error) = C::Engine::block_on(end(engine, &self.slots)) {
                tracing::warn!(%error, "not released");
            }
        } else if let Ok(mut dropped) = CancelGuard::after_begin(engine) {
            if let Some(slot) = self.slots.first() {
                dropped.release_slots_of(&slot.semaphore, vec![slot.token]);
            }
            drop(dropped);
        }
    }
}

impl<C: AsEngine<ASYNC>, const ASYNC: bool> fmt::Debug for OtherHolder<C, ASYNC> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtherHolder")
            .field("slots", &self.slots)
            .finish_non_exhaustive()
    }
}

/// Has the next attempts of this process to lock an object fail, on any database and without a statement.
///
/// ```
/// use diesel::prelude::*;
/// use diesel_locks::prelude::*;
/// use diesel_locks::testing::{self, Failure};
/// use diesel_locks::{Error, RetryPolicy};
///
/// # let mut conn = SqliteConnection::establish(":memory:")?;
/// # diesel_locks::migrate(&mut conn)?;
/// let failures = testing::fail_object_lock("Order:4711", Failure::Deadlock, 2);
/// let order = LockRequest::new("Order:4711").retry(RetryPolicy::max_attempts(3));
/// conn.run_transaction(order, |_conn| Ok::<_, Error>(()))?;
/// assert_eq!(failures.left(), 0); // the third attempt has locked it
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A [`RetryPolicy`](crate::RetryPolicy) and a wait on a pool make several attempts, a wait on a connection one every 10 ms after
/// [`Failure::Refused`]. Tests that run at the same time need different ids.
pub fn fail_object_lock(
    id: impl Into<crate::ObjectId>,
    failure: Failure,
    attempts: u32,
) -> Failures {
    let id: crate::ObjectId = id.into();
    Failures::choose(Of::Object, id.as_str(), failure, attempts)
}

/// [`fail_object_lock`] for attempts to acquire a slot of a semaphore; with [`Failure::SlotLost`] for renewals, which renewers send at
/// once, and which do not change the row.
///
/// ```
/// use diesel::prelude::*;
/// use diesel_locks::prelude::*;
/// use diesel_locks::testing::{self, Failure};
/// use std::time::Duration;
///
/// # let mut conn = SqliteConnection::establish(":memory:")?;
/// # diesel_locks::migrate(&mut conn)?;
/// let (exports, minute) = (Semaphore::new("exports", 5), Duration::from_secs(60));
/// let failures = testing::fail_slot(&exports, Failure::TimedOut, u32::MAX);
/// let late = conn.acquire_slot(&exports, LeaseOptions::new(minute), Wait::Forever);
/// assert!(late.is_err_and(|error| error.is_timeout()));
/// drop(failures); // takes back what is left
/// let mut slot = conn.acquire_slot(&exports, LeaseOptions::new(minute), Wait::Forever)?;
/// let _lost = testing::fail_slot(&exports, Failure::SlotLost, 1);
/// assert!(conn.renew_slot(&mut slot, minute).is_err_and(|error| error.is_slot_lost()));
/// # conn.release_slot(slot)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn fail_slot(semaphore: impl AsRef<str>, failure: Failure, attempts: u32) -> Failures {
    let name = semaphore.as_ref();
    let failures = Failures::choose(Of::Semaphore, name, failure, attempts);
    #[cfg(feature = "_pool")]
    if failure == Failure::SlotLost {
        renew_all_soon(name);
    }
    failures
}
