//! A request for a lock: the objects, how long to wait, the retention of the rows.

use std::time::Duration;

use crate::ObjectId;

/// How long to wait for a lock or slot that is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Waits until the lock is released.
    ///
    /// On PostgreSQL the session's `lock_timeout` and `statement_timeout` apply, on MySQL and MariaDB `max_execution_time` and
    /// `max_statement_time`. They end the wait with [`Error::LockTimeout`](crate::Error::LockTimeout).
    /// `innodb_lock_wait_timeout`, which every MySQL session has (50 s), does not end the wait.
    #[default]
    Forever,
    /// Waits for at most this time, then returns [`Error::LockTimeout`](crate::Error::LockTimeout).
    ///
    /// The time is rounded up to milliseconds. A free lock is always acquired, even with a zero time-out. At most
    /// [`Wait::LONGEST`]; more is [`Error::InvalidWait`](crate::Error::InvalidWait). During the wait it replaces the limits of
    /// the session that [`Wait::Forever`] lists.
    AtMost(Duration),
    /// Does not wait. Returns [`Error::Unavailable`](crate::Error::Unavailable) if another transaction holds the lock.
    No,
}

impl Wait {
    /// The longest duration for [`Wait::AtMost`]: 2,147,483,647 ms, about 24.8 days (PostgreSQL's limit for
    /// `statement_timeout`).
    pub const LONGEST: Duration = Duration::from_millis(i32::MAX.unsigned_abs() as u64);
}

/// Whether the row of the lock in the table `diesel_locks_objects` is kept after the transaction.
///
/// Both kinds of locks on one object exclude each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retention {
    /// Inserts the row and deletes it in the same transaction. No row remains, however the transaction ends. For an unbounded
    /// set of ids, and for ids that are rarely locked.
    #[default]
    Transient,
    /// Keeps the row; later requests only lock it. Faster than a transient lock, and its cost does not grow while another
    /// session holds an old snapshot (PostgreSQL). For a limited number of ids that are often locked.
    /// [`purge_object_locks`](crate::ObjectLockExt::purge_object_locks) deletes the rows. Do not delete them in any other way:
    /// on PostgreSQL a row can be deleted while its lock is held.
    ///
    /// On PostgreSQL each held lock takes an entry in the server's lock table, which has 6400 entries by default. For many
    /// thousands at the same time, in all transactions together, use `Transient` or raise `max_locks_per_transaction`. One
    /// request can have [`MAX_KEPT_IDS`](crate::MAX_KEPT_IDS) (1,000) of them, on every engine. The first kept lock of an id
    /// changes `lastval()` of the session, but not `currval` of the application's sequences.
    Kept,
}

/// A request for a lock: the object, how long to wait, and the retention of the row.
///
/// A string or an [`ObjectId`] converts into a request that waits without limit and keeps no row.
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
    /// `None` if the request does not say.
    pub(crate) wait: Option<Wait>,
    pub(crate) retention: Retention,
}

impl LockRequest {
    /// Creates a request for one object.
    pub fn new(id: impl Into<ObjectId>) -> Self {
        Self::all([id])
    }

    /// Creates a request for several objects, which acquires all locks or none; see
    /// [`with_object_locks`](crate::ObjectLockExt::with_object_locks).
    pub fn all(ids: impl IntoIterator<Item = impl Into<ObjectId>>) -> Self {
        Self {
            ids: ids.into_iter().map(Into::into).collect(),
            wait: None,
            retention: Retention::default(),
        }
    }

    /// Sets how long to wait if the lock is held; for several objects, for all of them together.
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Sets whether the row of the lock is kept.
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

/// The argument of [`with_object_locks`](crate::ObjectLockExt::with_object_locks): an iterable of ids (an array, a `Vec`, an
/// iterator), or [`LockRequest::all`] with options.
pub trait IntoLockRequests {
    /// Returns the request.
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
