//! The trait `AsyncObjectLockExt`: the methods for object locks on a connection of diesel-async.

use crate::cancel::unless_dropped;
use crate::engine::HasAsyncEngine;
use crate::object_lock::acquire::Request;
use crate::object_lock::backend::{LockOutcome, ObjectLockBackend};
use crate::object_lock::run::{self, run_or_unavailable};
use crate::poll::Work;
use crate::{Error, LockRequest, transaction::depth};

/// The methods of [`ObjectLockExt`](crate::ObjectLockExt) on connections of diesel-async.
///
/// Import it with `use diesel_locks::prelude::*`. What the methods do, when they wait, what they return and their errors are
/// those of the blocking methods of the same names. Each returns a future that is `Send`. Different are:
///
/// - Closures are `async`: `conn.with_object_lock("a", async |conn| { .. }).await?`. A closure in a task that is spawned
///   may capture what is `Send`, also by reference.
/// - A wait blocks the task and not its thread.
/// - A future may be dropped at every `.await`: see [Dropped futures](crate::operation::dropped_futures).
///
/// On a pooled connection (`bb8`, `deadpool`) call the methods as on the connection itself. A generic function takes
/// `&mut *conn`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use diesel::prelude::*;
/// use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
/// use diesel_async::{AsyncConnection, RunQueryDsl};
/// use diesel_locks::prelude::*;
///
/// diesel::table! { documents (id) { id -> Text, version -> Integer } }
///
/// let mut conn = SyncConnectionWrapper::<SqliteConnection>::establish(":memory:").await?;
/// diesel_locks::migrate_async(&mut conn).await?;
/// # diesel::sql_query("CREATE TABLE documents (id TEXT PRIMARY KEY, version INTEGER NOT NULL)").execute(&mut conn).await?;
/// let id = ObjectId::new("Document", "contract-17");
/// conn.with_object_lock(&id, async |conn| -> QueryResult<()> {
///     diesel::insert_into(documents::table)
///         .values((documents::id.eq("contract-17"), documents::version.eq(1)))
///         .execute(conn)
///         .await?;
///     Ok(())
/// })
/// .await?;
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`diesel-locks` has no asynchronous engine for `{Self}`",
    label = "not `AsyncPgConnection`, `AsyncMysqlConnection` or `SyncConnectionWrapper<SqliteConnection>`, or the engine's \
             feature is off",
    note = "pass `&mut *conn` for a pooled connection",
    note = "enable the engine's feature of `diesel-locks`: `async-postgres`, `async-mysql` or `async-sqlite`"
)]
#[doc(alias("mutex", "advisory lock", "distributed lock", "tokio"))]
pub trait AsyncObjectLockExt: HasAsyncEngine {
    /// Opens a transaction, waits for the lock, runs `f`, and commits. Returns the value of `f`. Behaves as
    /// [`ObjectLockExt::with_object_lock`](crate::ObjectLockExt::with_object_lock).
    ///
    /// # Errors
    ///
    /// As the blocking method.
    fn with_object_lock<'c, 'f, T, E, F>(
        &'c mut self,
        request: impl Into<LockRequest>,
        f: F,
    ) -> impl Future<Output = Result<T, E>> + Send + 'c
    where
        for<'r> F: AsyncFnOnce(&'r mut Self) -> Result<T, E>
            + Work<&'r mut Self, Result<T, E>, Future: Send>
            + Send
            + 'f,
        T: Send + 'f,
        E: From<Error> + Send + 'f,
        'f: 'c,
    {
        let request = request.into();
        Self::droppable(async move {
            let request = Request::new(request)?;
            unless_dropped!(self, |conn| run_or_unavailable(conn, &request, f))
        })
    }

    /// Runs `f` in a transaction that holds the lock, but does not wait. Returns `None` without running `f` if another
    /// transaction holds the lock. Behaves as
    /// [`ObjectLockExt::try_with_object_lock`](crate::ObjectLockExt::try_with_object_lock).
    ///
    /// # Errors
    ///
    /// As the blocking method.
    fn try_with_object_lock<'c, 'f, T, E, F>(
        &'c mut self,
        request: impl Into<LockRequest>,
        f: F,
    ) -> impl Future<Output = Result<Option<T>, E>> + Send + 'c
    where
        for<'r> F: AsyncFnOnce(&'r mut Self) -> Result<T, E>
            + Work<&'r mut Self, Result<T, E>, Future: Send>
            + Send
            + 'f,
        T: Send + 'f,
        E: From<Error> + Send + 'f,
        'f: 'c,
    {
        let request = request.into();
        Self::droppable(async move {
            let request = Request::without_wait(request, "try_with_object_lock")?;
            unless_dropped!(self, |conn| run::run(conn, &request, f))
        })
    }

    /// Acquires the lock in the open transaction, which holds it until it ends. Behaves as
    /// [`ObjectLockExt::lock_object`](crate::ObjectLockExt::lock_object).
    ///
    /// # Errors
    ///
    /// As the blocking method.
    fn lock_object<'c>(
        &'c mut self,
        request: impl Into<LockRequest>,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'c {
        let request = request.into();
        async move {
            let request = Request::new(request)?;
            match unless_dropped!(self, |conn| run::lock(conn, "lock_object", &request))? {
                LockOutcome::Acquired => Ok(()),
                LockOutcome::Unavailable => Err(request.unavailable()),
            }
        }
    }

    /// Acquires the lock in the open transaction, but does not wait. Returns whether it was acquired.
    /// Behaves as [`ObjectLockExt::try_lock_object`](crate::ObjectLockExt::try_lock_object).
    ///
    /// # Errors
    ///
    /// As the blocking method.
    fn try_lock_object<'c>(
        &'c mut self,
        request: impl Into<LockRequest>,
    ) -> impl Future<Output = Result<LockOutcome, Error>> + Send + 'c {
        let request = request.into();
        async move {
            let request = Request::without_wait(request, "try_lock_object")?;
            unless_dropped!(self, |conn| run::lock(conn, "try_lock_object", &request))
        }
    }

    /// Deletes the kept rows of objects that no transaction holds. Returns the number of rows deleted. Behaves as
    /// [`ObjectLockExt::purge_object_locks`](crate::ObjectLockExt::purge_object_locks).
    ///
    /// # Errors
    ///
    /// As the blocking method.
    fn purge_object_locks(&mut self) -> impl Future<Output = Result<usize, Error>> + Send + '_ {
        async move {
            if depth::depth(self)? > 0 {
                return Err(run::purge_in_transaction());
            }
            unless_dropped!(self, |conn| Self::LockEngine::purge_unlocked(conn))
        }
    }
}

#[diagnostic::do_not_recommend]
impl<C: HasAsyncEngine> AsyncObjectLockExt for C {}
