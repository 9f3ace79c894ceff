//! What an engine implements for object locks.

#[cfg(feature = "_async")]
use diesel::{
    deserialize::FromSqlRow,
    expression::QueryMetadata,
    query_builder::{Query, QueryFragment, QueryId},
};

use crate::Error;
#[cfg(feature = "_pool")]
use crate::ObjectId;
use crate::inspect::object_lock::HeldObjectLock;
#[cfg(feature = "_async")]
use crate::link::Link;
use crate::object_lock::acquire::Request;
#[cfg(feature = "_async")]
use crate::transaction::run::roll_back;

/// The object locks of an engine. Sealed, as [`HasEngine`](crate::engine::HasEngine) is.
pub trait ObjectLockBackend<C> {
    /// Begins a transaction at READ COMMITTED (SQLite: immediate) and acquires the locks in it. Leaves no transaction
    /// open unless the locks are acquired.
    fn begin_with_locks(
        conn: &mut C,
        request: &Request,
    ) -> impl Future<Output = Result<LockOutcome, Error>> + Send;

    /// [`begin_with_locks`](Self::begin_with_locks), and runs the first query in the transaction. Returns its rows, or `None`
    /// if the locks are not acquired. On any error no transaction is open.
    #[cfg(feature = "_async")]
    fn begin_with_locks_and_load<Q, T>(
        conn: &mut C,
        request: &Request,
        query: &Q,
    ) -> impl Future<Output = Result<Option<Vec<T>>, Error>> + Send
    where
        C: Link,
        Q: Query + QueryFragment<C::Backend> + QueryId + Send + Sync,
        C::Backend: QueryMetadata<Q::SqlType>,
        T: FromSqlRow<Q::SqlType, C::Backend> + Send,
    {
        async move {
            if Self::begin_with_locks(conn, request).await? == LockOutcome::Unavailable {
                return Ok(None);
            }
            match conn.load(query).await {
                Ok(rows) => Ok(Some(rows)),
                Err(error) => {
                    roll_back(conn).await;
                    Err(error.into())
                }
            }
        }
    }

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

/// The outcome of a request that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOutcome {
    /// All locks are acquired.
    Acquired,
    /// Another transaction holds one of them, and the request does not wait.
    Unavailable,
}
