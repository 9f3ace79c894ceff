//! A request for a lock: the objects, how long to wait, the retention of the rows.

use std::time::{Duration, Instant};

use crate::{Error, ObjectId};

/// How long to wait for a lock or a slot that is held.
///
/// If a request sets none, the method decides: see [`LockRequest::wait`].
///
/// Methods that lock or acquire wait, except those with `try_` in their names. These
/// reject a request with another `Wait` than [`Wait::No`]. [Blocking](crate::operation::blocking) lists all methods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias("timeout", "lock_timeout", "NOWAIT", "block", "try_lock"))]
pub enum Wait {
    /// Waits until the lock or a slot is free.
    ///
    /// Limits of the session end the wait for a lock with [`Error::LockTimeout`](crate::Error::LockTimeout): on PostgreSQL
    /// `lock_timeout` and `statement_timeout`, on MySQL and MariaDB `max_execution_time` and `max_statement_time`.
    /// A wait for a slot polls: a limit of the session applies to each query. On SQLite a connection that writes does not end
    /// it, however long that takes.
    ///
    /// `innodb_lock_wait_timeout`, which every session of MySQL and MariaDB has (50 s), ends the wait in an open transaction,
    /// also with [`LockTimeout`](crate::Error::LockTimeout): the transaction may be part of a deadlock that InnoDB does not
    /// detect, through a table that a third session wants to alter, or with `innodb_deadlock_detect = OFF`. It does not end the
    /// wait of a method that begins its own transaction: that has done nothing yet, and begins again.
    ///
    /// In an open transaction no server detects a deadlock in which a wait for a slot takes part, because such a wait polls: two
    /// transactions that each wait for what the other holds do so without end. Use [`Wait::AtMost`] for slots there.
    #[default]
    Forever,
    /// Waits for at most this time, then returns [`Error::LockTimeout`](crate::Error::LockTimeout): for a lock up to 250 ms
    /// later, for a slot after one more query.
    ///
    /// The time is rounded up to milliseconds. A free lock or slot is always acquired, even with a zero time-out. At most
    /// [`Wait::LONGEST`]; more is [`Error::InvalidWait`](crate::Error::InvalidWait). During a wait for a lock it replaces the
    /// limits of the session that [`Wait::Forever`] lists. On SQLite the last attempt to lease a free slot may end later: it
    /// waits for another writer for up to 5 s, or `busy_timeout` if that is longer. Earlier attempts that do so do not end the
    /// wait.
    ///
    /// If the server does not answer at all, the wait ends on a connection of diesel-async 2 s after its limit, as if its future
    /// had been dropped (`operation::dropped_futures`): the connection can't be used any more, and an open transaction is rolled
    /// back. A connection of Diesel itself waits for the answer: set time-outs for its network.
    AtMost(Duration),
    /// Does not wait. Returns [`Error::Unavailable`](crate::Error::Unavailable) if the lock or all slots are held. The
    /// methods with `try_` return `None` or `false` instead.
    No,
}

impl Wait {
    /// The longest duration for [`Wait::AtMost`]: 2,147,483,647 ms, about 24.8 days (PostgreSQL's limit for
    /// `statement_timeout`).
    pub const LONGEST: Duration = Duration::from_millis(i32::MAX.unsigned_abs() as u64);

    pub(crate) fn validate(self) -> Result<(), Error> {
        match self {
            Self::AtMost(requested) if requested > Self::LONGEST => {
                Err(Error::InvalidWait { requested })
            }
            Self::AtMost(_) | Self::Forever | Self::No => Ok(()),
        }
    }

    /// The remaining time of a wait that started then; `None` without a limit.
    pub(crate) fn remaining(self, started: Instant) -> Option<Duration> {
        match self {
            Self::Forever => None,
            Self::AtMost(limit) => Some(limit.saturating_sub(started.elapsed())),
            Self::No => Some(Duration::ZERO),
        }
    }

    /// The error of a wait that started then and has timed out.
    pub(crate) fn timed_out(
        self,
        started: Instant,
        resource: String,
        source: Option<diesel::result::Error>,
    ) -> Error {
        Error::LockTimeout {
            resource,
            waited: started.elapsed(),
            limit: match self {
                Self::AtMost(limit) => Some(limit),
                Self::Forever | Self::No => None,
            },
            source,
        }
    }
}

/// Whether the row of the lock in the table `diesel_locks_objects` is kept after the transaction. The default is
/// [`Retention::Transient`].
///
/// Both kinds of locks on one object exclude each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias("ttl", "keep"))]
pub enum Retention {
    /// Inserts the row and deletes it in the same transaction. No row remains, however the transaction ends. The default.
    ///
    /// For an unbounded set of ids, and for ids that are rarely locked. If the id has a kept row, that row remains.
    #[default]
    Transient,
    /// Keeps the row; later requests only lock it. For a limited number of ids that are often locked.
    ///
    /// Faster than a transient lock, and its cost does not grow while another session holds an old snapshot (PostgreSQL).
    /// [`purge_object_locks`](crate::ObjectLockExt::purge_object_locks) deletes the rows. Do not delete them in any other
    /// way: on PostgreSQL a row can be deleted while its lock is held.
    ///
    /// One request can have [`MAX_KEPT_IDS`](crate::limits::MAX_KEPT_IDS) (1,000) of them. On PostgreSQL each held lock takes
    /// an entry in the server's lock table, which has 6400 entries by default: for many thousands at the same time, in all
    /// transactions together, use `Transient` or raise `max_locks_per_transaction`. The first kept lock of an id changes
    /// `lastval()` of the session, but not `currval` of the application's sequences.
    Kept,
}

/// A request for the lock on an object, or on several: how long to wait, and the retention of the rows.
///
/// A string or an [`ObjectId`], and an array, a slice or a `Vec` of them, convert into a request that sets no wait and keeps
/// no row.
///
/// ```
/// use std::time::Duration;
/// use diesel_locks::{ObjectId, LockRequest, Retention, Wait};
///
/// let bond = ObjectId::new("BondBO", "DK0015966592");
/// let lock = LockRequest::new(&bond)
///     .wait(Wait::AtMost(Duration::from_millis(500)))
///     .retention(Retention::Kept);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a request locks nothing until it is given to a connection"]
#[doc(alias("lock_options", "LockOptions"))]
pub struct LockRequest {
    pub(crate) ids: Vec<ObjectId>,
    /// `None` if the request does not say.
    pub(crate) wait: Option<Wait>,
    pub(crate) retention: Retention,
}

impl LockRequest {
    /// Creates a request for one object.
    pub fn new(id: impl Into<ObjectId>) -> Self {
        Self::all([id])
    }

    /// Creates a request for several objects, which acquires all locks or none. An array, a slice or a `Vec` of ids converts
    /// into the same request.
    ///
    /// The locks are acquired in the byte order of the ids, whatever their order in the request, and duplicates are removed:
    /// transactions that acquire all their locks by one request never deadlock with each other. A request without any id
    /// acquires nothing.
    ///
    /// One request can have any number of ids with [`Retention::Transient`], and
    /// [`MAX_KEPT_IDS`](crate::limits::MAX_KEPT_IDS) with [`Retention::Kept`]; more are
    /// [`Error::TooManyIds`](crate::Error::TooManyIds). On PostgreSQL, ids of a transient request that have a kept row count as
    /// kept. An error about a lock names the first ten ids.
    ///
    /// In an open transaction on MySQL and MariaDB, a request that times out or fails after it has acquired some of the locks
    /// can't release these before the transaction ends. It returns [`Error::PartlyLocked`](crate::Error::PartlyLocked), which
    /// names them. A request that does not wait looks for held objects before it acquires any.
    ///
    /// ```
    /// use diesel::prelude::*;
    /// use diesel_locks::prelude::*;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut conn = SqliteConnection::establish(":memory:")?;
    /// # diesel_locks::migrate(&mut conn)?;
    /// let from = ObjectId::new("Account", 7);
    /// let to = ObjectId::new("Account", 3);
    /// conn.with_object_lock([&from, &to], |_conn| -> QueryResult<()> {
    ///     Ok(()) // move the money
    /// })?;
    /// let open = (1..=9).map(|account| ObjectId::new("Account", account));
    /// conn.with_object_lock(LockRequest::all(open).wait(Wait::No), |_conn| QueryResult::Ok(()))?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("lock_all", "try_lock_all", "multi_lock", "deadlock"))]
    pub fn all(ids: impl IntoIterator<Item = impl Into<ObjectId>>) -> Self {
        Self {
            ids: ids.into_iter().map(Into::into).collect(),
            wait: None,
            retention: Retention::default(),
        }
    }

    /// Sets how long to wait if the lock is held; for several objects, for all of them together.
    ///
    /// If it is not set, methods of a connection wait without limit, a `LockPool` or an `AsyncLockPool` waits as long as its
    /// pool waits for a connection, and methods with `try_` do not wait. Methods with `try_` return
    /// [`Error::ConflictingWait`](crate::Error::ConflictingWait) if it is set to another wait than [`Wait::No`].
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Sets whether the row of the lock is kept. [`Retention::Transient`] if it is not set.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }
}

impl From<&LockRequest> for LockRequest {
    fn from(request: &LockRequest) -> Self {
        request.clone()
    }
}

macro_rules! from_id {
    ($($id:ty),*) => {$(
        impl From<$id> for LockRequest {
            fn from(id: $id) -> Self {
                Self::new(id)
            }
        }
    )*};
}

from_id!(ObjectId, &ObjectId, String, &String, &str);

macro_rules! from_ids {
    ($([$($parameters:tt)*] $ids:ty, $id:ty;)*) => {$(
        impl<$($parameters)*> From<$ids> for LockRequest
        where
            $id: Into<ObjectId>,
        {
            fn from(ids: $ids) -> Self {
                Self::all(ids)
            }
        }
    )*};
}

from_ids!(
    [I, const N: usize] [I; N], I;
    ['a, I, const N: usize] &'a [I; N], &'a I;
    ['a, I] &'a [I], &'a I;
    [I] Vec<I>, I;
    ['a, I] &'a Vec<I>, &'a I;
);
