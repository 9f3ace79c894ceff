//! What an engine implements for object locks.

use crate::Error;
#[cfg(feature = "r2d2")]
use crate::ObjectId;
use crate::inspect::object_lock::HeldObjectLock;
use crate::migrations::run::MigrationBackend;
use crate::object_lock::acquire::Request;

/// The object locks of an engine. Sealed, as [`MigrationBackend`] is.
#[diagnostic::on_unimplemented(
    message = "`diesel-locks` has no engine for `{Self}`",
    label = "not `PgConnection`, `MysqlConnection` or `SqliteConnection`, or the engine's feature is off",
    note = "pass `&mut *conn` for a pooled connection (`PooledConnection`, `Box`, `&mut &mut`)",
    note = "implement `diesel_locks::ConnectionWrapper` for an enum of connections or a struct around one",
    note = "enable the engine's feature of `diesel-locks`: `postgres` for `PgConnection`, `mysql` for `MysqlConnection`, \
            `sqlite` for `SqliteConnection`"
)]
pub trait ObjectLockBackend: MigrationBackend {
    /// Begins a transaction at READ COMMITTED (SQLite: immediate) and acquires the locks in it. Leaves no transaction
    /// open unless the locks are acquired.
    fn begin_with_locks(conn: &mut Self, request: &Request) -> Result<LockOutcome, Error>;

    /// Acquires the locks in the open transaction.
    fn lock_in_transaction(conn: &mut Self, request: &Request) -> Result<LockOutcome, Error>;

    /// The objects of a request by which its process's waiters queue: requests with the same key exclude each other.
    #[cfg(feature = "r2d2")]
    fn queue_key(request: &Request) -> Vec<ObjectId> {
        request.ids.clone()
    }

    /// Deletes persistent rows that are not locked, in short transactions; returns how many were deleted.
    fn purge_unlocked(conn: &mut Self) -> Result<usize, Error>;

    /// Returns the locks that the server shows as held. Waits for nothing and locks nothing.
    fn held_locks(conn: &mut Self) -> Result<Vec<HeldObjectLock>, Error>;
}

/// The outcome of a request that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOutcome {
    /// All locks are acquired.
    Acquired,
    /// Another transaction holds one of them, and the request does not wait.
    Unavailable,
}
