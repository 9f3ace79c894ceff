//! What is asked for: which objects, how long to wait, what becomes of the rows.

use std::time::Duration;

use crate::ObjectId;

/// How long to wait for a lock that another transaction holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Until the lock is free.
    ///
    /// On PostgreSQL the session's own `lock_timeout` and `statement_timeout` still apply, on MySQL and
    /// MariaDB `max_execution_time` and `max_statement_time`; they end the wait with
    /// [`Error::LockTimeout`](crate::Error::LockTimeout). `innodb_lock_wait_timeout`, which every MySQL
    /// session has (50 s), does not.
    #[default]
    Forever,
    /// At most so long, then [`Error::LockTimeout`](crate::Error::LockTimeout).
    ///
    /// Counted in whole milliseconds, fractions rounded up; zero asks once. What is free is had, however
    /// short the time: who runs out of it asks once more without waiting. At most [`Wait::LONGEST`]; more
    /// is [`Error::InvalidWait`](crate::Error::InvalidWait). It replaces the session's own limits, named
    /// above, for the time of the wait.
    AtMost(Duration),
    /// Not at all: [`Error::Unavailable`](crate::Error::Unavailable) at once when another holds it.
    No,
}

impl Wait {
    /// The longest duration for [`Wait::AtMost`]: 2,147,483,647 ms, about 24.8 days
    /// (PostgreSQL's limit for `statement_timeout`).
    pub const LONGEST: Duration = Duration::from_millis(i32::MAX.unsigned_abs() as u64);
}

/// What becomes of the lock's row in the table `diesel_locks_objects` when the transaction ends.
///
/// Both may be used on the same object at the same time, and exclude each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retention {
    /// The row is inserted and deleted again in the transaction: when that ends, however it ends,
    /// nothing is left. For ids without number, or that are locked now and then.
    #[default]
    Transient,
    /// The row stays and is only locked the next time: faster, and its cost does not grow while some
    /// other session holds an old snapshot (PostgreSQL). For hot ids, of which there are not too many;
    /// [`purge_object_locks`](crate::ObjectLockExt::purge_object_locks) removes them, and nothing else
    /// may: on PostgreSQL a row can be deleted while its lock is held.
    ///
    /// On PostgreSQL each takes a place in the server's table of locks while it is held. With the
    /// default settings that has 6400: many thousands at once, in all transactions together, are for
    /// `Transient`, or for a greater `max_locks_per_transaction`. One request can have
    /// [`MAX_KEPT_IDS`](crate::MAX_KEPT_IDS) (1,000) of them, on every engine. The first kept lock of an id changes
    /// `lastval()` of the session, and leaves `currval` of the application's sequences as it was.
    Kept,
}

/// A request for a lock: the object, how long to wait for it, and what becomes of its row.
///
/// Strings and [`ObjectId`]s turn into one that waits for ever and leaves no row.
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
pub struct LockRequest {
    pub(crate) ids: Vec<ObjectId>,
    pub(crate) wait: Wait,
    pub(crate) retention: Retention,
}

impl LockRequest {
    /// A lock on one object.
    pub fn new(id: impl Into<ObjectId>) -> Self {
        Self::all([id])
    }

    /// Locks on several objects, to be had all or none; see
    /// [`with_object_locks`](crate::ObjectLockExt::with_object_locks).
    pub fn all(ids: impl IntoIterator<Item = impl Into<ObjectId>>) -> Self {
        Self {
            ids: ids.into_iter().map(Into::into).collect(),
            wait: Wait::default(),
            retention: Retention::default(),
        }
    }

    /// How long to wait when another holds it. For several objects: for all of them together.
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// What becomes of the lock's row.
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

/// What [`with_object_locks`](crate::ObjectLockExt::with_object_locks) takes: anything that yields ids
/// (an array, a `Vec`, an iterator), or [`LockRequest::all`] with options.
pub trait IntoLockRequests {
    /// The request.
    fn into_lock_request(self) -> LockRequest;
}

impl IntoLockRequests for LockRequest {
    fn into_lock_request(self) -> LockRequest {
        self
    }
}

impl<I> IntoLockRequests for I
where
    I: IntoIterator,
    I::Item: Into<ObjectId>,
{
    fn into_lock_request(self) -> LockRequest {
        LockRequest::all(self)
    }
}
