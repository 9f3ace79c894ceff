//! A request for locks: the objects, which are checked and sorted here, how long to wait, the retention of the rows; and its outcome.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::limits::{MAX_KEPT_IDS, NAMED_IDS};
use crate::{Error, ObjectId, Wait};

/// Whether the row of the lock in the table `diesel_locks_objects` is kept after the transaction. Both kinds of locks on one
/// object exclude each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias("ttl", "keep"))]
pub enum Retention {
    /// The transaction inserts the row and deletes it: for an unbounded set of ids, and for ids that are rarely locked. No row
    /// remains, however the transaction ends, unless the id has a kept one.
    #[default]
    Transient,
    /// The row stays, and later requests only lock it: for a limited number of ids that are often locked. Faster, and the cost
    /// does not grow while another session holds an old snapshot (PostgreSQL).
    ///
    /// Delete the rows by [`purge_object_locks`](crate::ObjectLockExt::purge_object_locks) only: on PostgreSQL a row can be deleted
    /// while its lock is held. The first kept lock of an id changes `lastval()` of the session.
    ///
    /// A request can have [`MAX_KEPT_IDS`](crate::limits::MAX_KEPT_IDS) of them. On PostgreSQL each held lock takes an entry in the
    /// server's lock table (6400 by default), which all transactions share: `max_locks_per_transaction` sets its size.
    Kept,
}

/// A request for the lock on an object, or on several. Strings and [`ObjectId`]s, also in an array, a slice or a `Vec`, convert
/// into a request for exclusive locks that sets neither a wait nor a retention.
///
/// ```
/// use diesel::prelude::*;
/// use diesel_locks::Retention;
/// use diesel_locks::prelude::*;
/// use std::time::Duration;
///
/// # let mut conn = SqliteConnection::establish(":memory:")?;
/// # diesel_locks::migrate(&mut conn)?;
/// let bond = LockRequest::new(ObjectId::new("BondBO", "DK0015966592"))
///     .wait(Duration::from_millis(500))
///     .retention(Retention::Kept);
/// conn.with_object_lock(bond, |_conn| QueryResult::Ok(()))?;
///
/// let (from, to) = (ObjectId::new("Account", 7), ObjectId::new("Account", 3));
/// conn.with_object_lock([&from, &to], |_conn| QueryResult::Ok(()))?;
/// conn.with_object_lock(from.at_most(Duration::from_secs(2)), |_conn| QueryResult::Ok(()))?;
/// let open = (1..=9).map(|account| ObjectId::new("Account", account));
/// conn.with_object_lock(LockRequest::all(open).wait(Wait::No), |_conn| QueryResult::Ok(()))?;
///
/// let of_a_folder = [LockRequest::shared("Folder:1"), "Document:7".into()];
/// conn.with_object_lock(of_a_folder, |_conn| QueryResult::Ok(()))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a request locks nothing until it is given to a connection"]
#[doc(alias("lock_options", "LockOptions"))]
pub struct LockRequest {
    exclusive: Vec<ObjectId>,
    shared: Vec<ObjectId>,
    /// The different ones that are set: more than one only in a request that is made of several.
    waits: Vec<Wait>,
    retentions: Vec<Retention>,
    names_session: bool,
}

impl LockRequest {
    /// Creates a request for one object.
    pub fn new(id: impl Into<ObjectId>) -> Self {
        Self::all([id])
    }

    /// Creates a request for several objects, which acquires all locks or none. A request without any id acquires nothing.
    ///
    /// The locks are acquired in the byte order of the ids, without duplicates: transactions that acquire all their locks by one
    /// request never deadlock with each other. The number of ids has no limit, except with [`Retention::Kept`]; an error about a
    /// lock names the first ten. In an open transaction on MySQL and MariaDB, a request that fails after it has acquired some of
    /// the locks returns [`Error::PartlyLocked`](crate::Error::PartlyLocked).
    #[doc(alias("lock_all", "try_lock_all", "multi_lock", "deadlock"))]
    pub fn all(ids: impl IntoIterator<Item = impl Into<ObjectId>>) -> Self {
        Self {
            exclusive: ids.into_iter().map(Into::into).collect(),
            ..Self::none()
        }
    }

    /// Creates a request for the shared lock of one object: any number of transactions hold it at a time; meanwhile none holds the
    /// exclusive lock, which all other requests are for. An array or a `Vec` of requests is one request for all of their locks.
    ///
    /// The row of a shared lock is kept; [`retention`](Self::retention) is that of the exclusive locks. If a transaction that is
    /// already open creates the row, other sessions wait for the object until its end.
    ///
    /// Readers that overlap do not keep a writer waiting: while it waits, the shared lock is not granted to a request that begins its
    /// transaction, and one that does not wait is refused. A writer on a `LockPool` has this effect after 0.1 s, until
    /// 0.2 s after its last attempt, but not on requests in a transaction that is already open, and on MySQL and MariaDB not if it
    /// requests more than 900 objects, or 80 KB of ids. A closure that requests the lock
    /// once more, on another connection, may wait for a writer that waits for the closure.
    ///
    /// A transaction that has acquired the shared lock first, also in a savepoint that was rolled back, can't acquire the exclusive one,
    /// because two would wait for each other: a transaction of this crate returns [`Error::LockUpgrade`](crate::Error::LockUpgrade), in another one the database may report
    /// a deadlock. A request for both acquires the exclusive lock, and so does one for the shared lock in a transaction of this crate
    /// that has acquired the exclusive one, also in a savepoint that was rolled back.
    ///
    /// On SQLite, and on Galera, the shared lock is exclusive.
    #[doc(alias("read lock", "reader", "rwlock", "for_share"))]
    pub fn shared(id: impl Into<ObjectId>) -> Self {
        Self {
            shared: vec![id.into()],
            ..Self::none()
        }
    }

    fn none() -> Self {
        Self {
            exclusive: Vec::new(),
            shared: Vec::new(),
            waits: Vec::new(),
            retentions: Vec::new(),
            names_session: false,
        }
    }

    fn together(requests: impl IntoIterator<Item = Self>) -> Self {
        let mut all = Self::none();
        for request in requests {
            all.exclusive.extend(request.exclusive);
            all.shared.extend(request.shared);
            all.waits.extend(request.waits);
            all.retentions.extend(request.retentions);
            all.names_session |= request.names_session;
        }
        all.waits.dedup();
        all.retentions.dedup();
        all
    }

    /// Sets how long to wait if the lock is held; for several objects, for all of them together. A [`Duration`] is a limit:
    /// [`Wait::AtMost`].
    ///
    /// If it is not set, methods of a connection wait without limit, and a `LockPool` as long as its pool waits for a connection.
    /// Methods with `try_` do not wait, and return [`Error::ConflictingWait`](crate::Error::ConflictingWait) for another wait than
    /// [`Wait::No`].
    pub fn wait(mut self, wait: impl Into<Wait>) -> Self {
        self.waits = vec![wait.into()];
        self
    }

    /// Sets a wait unless there is one.
    #[cfg(any(feature = "_pool", feature = "testing"))]
    pub(crate) fn or_wait(self, wait: Wait) -> Self {
        if self.waits.is_empty() {
            return self.wait(wait);
        }
        self
    }

    /// Sets whether the row of the lock is kept. [`Retention::Transient`] if it is not set.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retentions = vec![retention];
        self
    }

    /// Shows the ids of transient locks to other sessions on PostgreSQL, which does not show the rows of an open transaction:
    /// [`held_object_locks`](crate::InspectExt::held_object_locks) returns them, and `pg_stat_activity` contains them. Other servers
    /// show them anyway.
    ///
    /// A request that begins its transaction sets the session's `application_name` to `diesel_locks:Account:3|Account:7` until the end
    /// of the transaction, without a round trip. All users of the server can read it. It has at most 63 printable ASCII characters: if
    /// the ids do not fit, or contain another character or `|`, the name is not set.
    #[doc(alias("application_name", "monitoring", "debug"))]
    pub fn name_session(mut self) -> Self {
        self.names_session = true;
        self
    }
}

impl ObjectId {
    /// Creates a request for this object that waits for at most this time: [`LockRequest::new`] with [`Wait::AtMost`].
    pub fn at_most(&self, limit: Duration) -> LockRequest {
        LockRequest::new(self).wait(limit)
    }
}

impl From<&LockRequest> for LockRequest {
    fn from(request: &LockRequest) -> Self {
        request.clone()
    }
}

macro_rules! from {
    ($([$($parameters:tt)*] $ids:ty $(where $id:ty)? => $new:ident;)*) => {$(
        impl<$($parameters)*> From<$ids> for LockRequest
        $(where
            $id: Into<ObjectId>)?
        {
            fn from(ids: $ids) -> Self {
                Self::$new(ids)
            }
        }
    )*};
}

from!(
    [] ObjectId => new;
    [] &ObjectId => new;
    [] String => new;
    [] &String => new;
    [] &str => new;
    [I: Into<ObjectId>, const N: usize] [I; N] => all;
    [I: Into<ObjectId>] Vec<I> => all;
    [const N: usize] [LockRequest; N] => together;
    [] Vec<LockRequest> => together;
    ['a, I, const N: usize] &'a [I; N] where &'a I => all;
    ['a, I] &'a [I] where &'a I => all;
    ['a, I] &'a Vec<I> where &'a I => all;
);

/// The outcome of a request that does not wait: [`try_lock_object`](crate::ObjectLockExt::try_lock_object).
///
/// No `bool`, so that the compiler warns of `conn.try_lock_object("a")?;`, after which the lock may not be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "if another transaction holds the lock, it was not acquired"]
pub enum LockOutcome {
    /// All locks are acquired.
    Acquired,
    /// Another transaction holds one of them. None is acquired.
    Unavailable,
}

impl LockOutcome {
    /// Returns whether the locks are acquired.
    pub fn is_acquired(self) -> bool {
        self == Self::Acquired
    }
}

/// A [`LockRequest`] with valid ids, without duplicates, in the order in which all sessions lock them.
#[derive(Debug)]
pub struct Request {
    pub(crate) ids: Arc<[ObjectId]>,
    /// Those among `ids` whose lock is shared, in the same order.
    pub(crate) shared: Arc<[ObjectId]>,
    pub(crate) retention: Retention,
    pub(crate) wait: Wait,
    #[cfg_attr(
        not(feature = "_postgres"),
        allow(dead_code, reason = "others show ids")
    )]
    pub(crate) names_session: bool,
    pub(crate) started: Instant,
}

impl Request {
    pub(crate) fn new(lock: LockRequest) -> Result<Self, Error> {
        let LockRequest {
            exclusive,
            mut shared,
            waits,
            retentions,
            names_session,
        } = lock;
        let wait = one_of("wait", &waits)?;
        let retention = one_of("retention", &retentions)?;
        let mut ids = exclusive;
        for id in ids.iter().chain(&shared) {
            id.validate()?;
        }
        wait.validate()?;
        // By bytes, whatever the database's collation: every process has the same order.
        ids.sort();
        ids.dedup();
        shared.retain(|id| ids.binary_search(id).is_err());
        shared.sort();
        shared.dedup();
        ids.extend(shared.iter().cloned());
        ids.sort();
        let kept = match retention {
            Retention::Kept => ids.len(),
            Retention::Transient => shared.len(),
        };
        if kept > MAX_KEPT_IDS {
            return Err(Error::TooManyIds {
                ids: kept,
                limit: MAX_KEPT_IDS,
            });
        }
        Ok(Self {
            ids: ids.into(),
            shared: shared.into(),
            retention,
            wait,
            names_session,
            started: Instant::now(),
        })
    }

    /// The request of a method that does not wait.
    pub(crate) fn without_wait(lock: LockRequest, method: &'static str) -> Result<Self, Error> {
        match lock.waits.iter().find(|wait| **wait != Wait::No) {
            None => Self::new(lock.wait(Wait::No)),
            Some(wait) => Err(Error::ConflictingWait {
                method,
                wait: *wait,
            }),
        }
    }

    /// The same request, which does not wait.
    #[cfg(feature = "_pool")]
    pub(crate) fn attempt(&self) -> Self {
        Self {
            ids: Arc::clone(&self.ids),
            shared: Arc::clone(&self.shared),
            wait: Wait::No,
            ..*self
        }
    }

    /// The part of it for one of its shared locks.
    pub(crate) fn for_shared(&self, id: &ObjectId) -> Self {
        Self {
            ids: [id.clone()].into(),
            shared: [id.clone()].into(),
            ..*self
        }
    }

    /// The same request, in which these locks are not shared.
    pub(crate) fn with_exclusive(&self, is_exclusive: impl Fn(&ObjectId) -> bool) -> Self {
        let shared = self.shared.iter().filter(|id| !is_exclusive(id));
        Self {
            ids: Arc::clone(&self.ids),
            shared: shared.cloned().collect(),
            ..*self
        }
    }

    /// Whether the rows of the exclusive locks are kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.retention == Retention::Kept
    }

    pub(crate) fn is_shared(&self, id: &ObjectId) -> bool {
        is_among(&self.shared, id)
    }

    /// Whether the row of this lock is kept.
    #[cfg(any(feature = "_mysql", feature = "_sqlite"))]
    pub(crate) fn keeps(&self, id: &ObjectId) -> bool {
        self.is_kept() || self.is_shared(id)
    }

    /// The objects, and whether their locks are shared.
    pub(crate) fn modes(&self) -> impl Iterator<Item = (&ObjectId, bool)> {
        self.ids.iter().map(|id| (id, self.is_shared(id)))
    }

    /// The objects whose locks are exclusive.
    pub(crate) fn exclusive(&self) -> impl Iterator<Item = &ObjectId> {
        self.ids.iter().filter(|id| !self.is_shared(id))
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// The remaining time to wait; `None` without a limit.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        self.wait.remaining(self.started)
    }

    /// [`remaining`](Self::remaining) in milliseconds, rounded up so that no wait ends early. Zero means that the time is up, and
    /// not "no limit" as on the servers: no statement may wait then, but a free lock is still acquired.
    #[cfg(any(feature = "_postgres", feature = "_mysql"))]
    pub(crate) fn remaining_millis(&self) -> Option<i32> {
        self.remaining().map(|left| {
            let millis = left.as_nanos().div_ceil(1_000_000);
            i32::try_from(millis).unwrap_or(i32::MAX)
        })
    }

    /// Returns whether the time is up: always with [`Wait::No`], never with [`Wait::Forever`].
    #[cfg(any(feature = "_postgres", feature = "_mysql"))]
    pub(crate) fn is_expired(&self) -> bool {
        self.remaining().is_some_and(|left| left.is_zero())
    }

    /// The locks for errors.
    pub(crate) fn resource(&self) -> String {
        locks(&self.ids, &self.shared)
    }

    /// The ids for events.
    pub(crate) fn event_ids(&self) -> String {
        listed(&self.ids, &self.shared, ObjectId::as_str)
    }

    /// The error of a request that does not wait.
    pub(crate) fn unavailable(&self) -> Error {
        Error::Unavailable {
            resource: self.resource(),
        }
    }

    /// The error of a request in an open transaction that may hold the first `acquired` objects until it ends.
    #[cfg(feature = "_mysql")]
    pub(crate) fn partly_locked(&self, acquired: usize, error: Error) -> Error {
        if acquired == 0 || error.is_retryable() || error.is_transaction_aborted() {
            return error;
        }
        Error::PartlyLocked {
            resource: self.resource(),
            acquired: locks(&self.ids[..acquired], &self.shared),
            source: Box::new(error),
        }
    }

    pub(crate) fn timed_out(&self, source: Option<diesel::result::Error>) -> Error {
        self.wait.timed_out(self.started, self.resource(), source)
    }
}

/// The locks of a request, for errors.
pub(crate) fn locks(ids: &[ObjectId], shared: &[ObjectId]) -> String {
    let plural = if ids.len() == 1 { "" } else { "s" };
    let ids = listed(ids, shared, |id| format!("{:?}", id.as_str()));
    format!("the object lock{plural} {ids}")
}

/// The ids; of many, the first ten.
fn listed<'a, S: fmt::Display>(
    ids: &'a [ObjectId],
    shared: &[ObjectId],
    shown: impl Fn(&'a ObjectId) -> S,
) -> String {
    let named = ids.iter().take(NAMED_IDS).map(|id| {
        let shared = if is_among(shared, id) {
            " (shared)"
        } else {
            ""
        };
        format!("{}{shared}", shown(id))
    });
    let named = named.collect::<Vec<_>>().join(", ");
    match ids.len().saturating_sub(NAMED_IDS) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

fn is_among(shared: &[ObjectId], id: &ObjectId) -> bool {
    shared.binary_search(id).is_ok()
}

/// The value that is set, or the default. Fails if several requests that were put together set different ones.
fn one_of<T: Copy + Default + fmt::Debug>(setting: &'static str, set: &[T]) -> Result<T, Error> {
    match set {
        [] => Ok(T::default()),
        [value] => Ok(*value),
        values => Err(Error::ConflictingRequests {
            setting,
            values: format!("{values:?}"),
        }),
    }
}
