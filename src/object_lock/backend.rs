//! What an engine implements for object locks.

use crate::Error;
#[cfg(feature = "_pool")]
use crate::ObjectId;
use crate::inspect::object_lock::HeldObjectLock;
use crate::object_lock::acquire::Request;

/// The object locks of an engine. Sealed, as [`HasEngine`](crate::engine::HasEngine) is.
pub trait ObjectLockBackend<C> {
    /// Begins a transaction at READ COMMITTED (SQLite: immediate) and acquires the locks in it. Leaves no transaction
    /// open unless the locks are acquired.
    fn begin_with_locks(
        conn: &mut C,
        request: &Request,
    ) -> impl Future<Output = Result<LockOutcome, Error>> + Send;

    /// Acquires the locks in the open transaction.
    fn lock_in_transaction(
        conn: &mut C,
        request: &Request,
    ) -> impl Future<Output = Result<LockOutcome, Error>> + Send;

    /// The objects of a request by which its process's waiters queue: requests with the same key exclude each other.
    #[cfg(feature = "_pool")]
    fn queue_key(request: &Request) -> Vec<ObjectId> {
        request.ids.clone()
    }

    /// Deletes persistent rows that are not locked, in short transactions; returns how many were deleted.
    fn purge_unlocked(conn: &mut C) -> impl Future<Output = Result<usize, Error>> + Send;

    /// Returns the locks that the server shows as held. Waits for nothing and locks nothing.
    fn held_locks(conn: &mut C) -> impl Future<Output = Result<Vec<HeldObjectLock>, Error>> + Send;
}

/// The outcome of a request that does not wait: [`try_lock_object`](crate::ObjectLockExt::try_lock_object).
///
/// A value of its own, so that the compiler warns of `conn.try_lock_object("a")?;`, after which the transaction may not hold
/// the lock.
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
