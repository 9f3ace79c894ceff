//! Object locks: the methods on connections.

use crate::acts::cancel_guard::unless_dropped;
use crate::acts::object_lock;
use crate::acts::object_lock::run_or_unavailable;
use crate::acts::work::Work;
use crate::api::pair::pair;
use crate::engine::{Engine, HasEngine};
use crate::values::lock_request::LockOutcome;
use crate::values::lock_request::Request;
use crate::{Error, LockRequest};

pair! {
    /// Locks objects of the application exclusively, for one transaction. The objects need not exist in any table.
    ///
    /// ```
    /// use diesel::prelude::*;
    /// use diesel_locks::prelude::*;
    ///
    /// diesel::table! { documents (id) { id -> Text, version -> Integer } }
    ///
    /// /// Stores a document, or a newer version of it. Several threads may call this for one document at the same time.
    /// fn register(conn: &mut SqliteConnection, id: &str, version: i32) -> QueryResult<bool> {
    ///     conn.with_object_lock(&ObjectId::new("Document", id), |conn| {
    ///         let known: Option<i32> =
    ///             documents::table.find(id).select(documents::version).first(conn).optional()?;
    ///         if known.is_some_and(|known| known >= version) {
    ///             return Ok(false);
    ///         }
    ///         let row = (documents::id.eq(id), documents::version.eq(version));
    ///         diesel::replace_into(documents::table).values(row).execute(conn)?;
    ///         Ok(true)
    ///     })
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut conn = SqliteConnection::establish(":memory:")?;
    /// diesel_locks::migrate(&mut conn)?;
    /// # diesel::sql_query("CREATE TABLE documents (id TEXT PRIMARY KEY, version INTEGER NOT NULL)").execute(&mut conn)?;
    /// assert!(register(&mut conn, "contract-17", 2)?);
    /// assert!(!register(&mut conn, "contract-17", 1)?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// | | opens a transaction, runs a closure | locks in the open transaction |
    /// |---|---|---|
    /// | waits | [`with_object_lock`](Self::with_object_lock) | [`lock_object`](Self::lock_object) |
    /// | does not wait | [`try_with_object_lock`](Self::try_with_object_lock) | [`try_lock_object`](Self::try_lock_object) |
    ///
    /// The argument is an id (a string or an [`ObjectId`](crate::ObjectId)) or an array, a slice or a `Vec` of ids, which waits
    /// without limit, or a [`LockRequest`] with a time limit and the [`Retention`](crate::Retention) of the rows. Requests for
    /// different ids do not wait for each other, except on SQLite, which has one writer per database. A transaction that holds a
    /// lock acquires it again at once.
    ///
    /// A lock is released when its transaction ends: at COMMIT, at ROLLBACK, or when the server notices that the connection
    /// [is gone](crate::operation::blocking#a-client-that-vanishes). There is no lease, no clock and no unlock.
    ///
    /// [Blocking](crate::operation::blocking) lists how long each method waits, and whether the transaction is usable after an
    /// error, [Errors by method](crate::Error#errors-by-method) what it returns. SQLite needs
    /// [two settings](crate::operation::sqlite).
    ///
    /// # The error type of a closure
    ///
    /// A closure may return any error type `E: From<diesel_locks::Error>`: Diesel's error, this crate's, `anyhow::Error`, the
    /// application's own. If `?` follows the call, name it at the closure: `|conn| -> diesel_locks::Result<_> { .. }` (see
    /// [`Result`](crate::Result)), or `|conn| -> Result<_, AppError> { .. }`.
    ///
    /// # Isolation
    ///
    /// A closure never reads data older than the moment at which it acquired the lock. At top level the transaction runs at READ
    /// COMMITTED on PostgreSQL, MySQL and MariaDB, whatever the session's default is, and as an immediate transaction on SQLite.
    ///
    /// A transaction that is already open may have read before. The methods return [`Error::UnsuitableIsolation`] if it does not
    /// see current data: at REPEATABLE READ, which is MySQL's default, at SERIALIZABLE, and on SQLite in a deferred transaction
    /// that has read before another connection wrote. Open it by
    /// [`run_transaction`](crate::TransactionExt::run_transaction) at READ COMMITTED.
    ///
    /// Not detected on MySQL and MariaDB: a plain `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ` before the transaction, in a
    /// session at READ COMMITTED.
    #[doc(alias("mutex", "advisory lock", "advisory_lock", "named lock", "distributed lock", "distributed_lock"))]
    #[doc(alias("pessimistic lock", "business lock"))]
    pub trait ObjectLockExt;

    /// The methods of [`ObjectLockExt`](crate::ObjectLockExt) on connections of diesel-async, with `async` closures.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use diesel::prelude::*;
    /// use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
    /// use diesel_async::{AsyncConnection, RunQueryDsl};
    /// use diesel_locks::prelude::*;
    ///
    /// let mut conn = SyncConnectionWrapper::<SqliteConnection>::establish(":memory:").await?;
    /// diesel_locks::migrate_async(&mut conn).await?;
    /// conn.with_object_lock("Document:contract-17", async |conn| -> QueryResult<usize> {
    ///     diesel::sql_query("SELECT 1").execute(conn).await // read, compare, write
    /// })
    /// .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The futures of this and the other `Async..Ext` traits are `Send`, and may be
    /// [dropped](crate::operation::dropped_futures) at every `.await`. A closure may capture what is `Send`, also by reference; a
    /// function that takes one needs a [bound](crate::closures). A pooled connection (`bb8`, `deadpool`) has the methods too; a
    /// generic function takes `&mut *conn`.
    #[doc(alias("mutex", "advisory lock", "distributed lock", "tokio"))]
    pub trait AsyncObjectLockExt;

    closures {
        /// Opens a transaction, waits for the lock, runs `f`, and commits. Returns the value of `f`.
        ///
        /// Rolls back if `f` returns an error or panics; the panic continues. Of several objects it acquires all locks or none: see
        /// [`LockRequest::all`].
        ///
        /// In an open transaction the method opens a savepoint. If `f` succeeds, the lock is held until the outer transaction
        /// ends. If `f` fails, the rollback to the savepoint releases it on PostgreSQL; on SQLite the lock is held until the outer
        /// transaction ends, and on MySQL and MariaDB it may be.
        ///
        /// Do not change the schema in `f` on MySQL and MariaDB: `CREATE TABLE` and `ALTER TABLE` commit the transaction and
        /// release the lock, and migrations fail for good ([`migrate`](crate::migrate#the-applications-own-migrations)). On
        /// PostgreSQL, `CREATE INDEX CONCURRENTLY` waits for all sessions that wait for an object lock on a connection: sent while
        /// the lock is held for which they wait, it does not end.
        ///
        /// # Errors
        ///
        /// - Before `f` (nothing is written): [`Error::LockTimeout`], [`Error::Unavailable`] with
        ///   [`Wait::No`](crate::Wait::No), or [others](crate::Error#errors-by-method). At top level a deadlock while the method
        ///   acquires the lock is retried.
        /// - From `f`: its own error. The writes are rolled back.
        /// - At COMMIT (the writes are rolled back): [`Error::TransactionAborted`] if the server had already ended the
        ///   transaction (on SQLite what `f` wrote after `INSERT OR ROLLBACK`, or ROLLBACK as text, is committed);
        ///   [`Error::StatementTimeout`] on SQLite, and on MySQL and MariaDB if a backup or `FLUSH TABLES WITH READ LOCK` delayed
        ///   COMMIT longer than `lock_wait_timeout`; [`Error::Deadlock`] and [`Error::SerializationFailure`] in a cluster;
        ///   [`Error::Database`], for example for a deferred constraint.
        /// - At COMMIT, if the connection was lost (the writes may be committed): [`Error::OutcomeUnknown`].
        #[doc(alias("with_lock", "with_advisory_lock", "mutex", "lock", "synchronized", "GET_LOCK"))]
        #[doc(alias("pg_advisory_xact_lock", "advisory_lock"))]
        fn with_object_lock(request: impl Into<LockRequest>; f) -> Result<T, E> {
            let request = request.into();
            |conn| with_lock(conn, request, f).await
        }

        /// Runs `f` in a transaction that holds the lock, or returns `None` at once if another transaction holds it.
        ///
        /// Otherwise as [`with_object_lock`](Self::with_object_lock). Of several objects it acquires all locks or returns `None`.
        ///
        /// Returns `None` within 50 ms, with thousands of ids later, and causes no error in an outer transaction. On PostgreSQL a
        /// held transient lock is detected after 10 ms (an INSERT has no NOWAIT), a held kept lock at once. On SQLite any other
        /// writer holds the lock.
        ///
        /// To run a job once, use a lease with [`hold_at_least`](crate::LeaseOptions::hold_at_least): a server whose timer fires
        /// after this transaction has ended acquires the lock too.
        ///
        /// # Errors
        ///
        /// As [`with_object_lock`](Self::with_object_lock), except [`Error::Unavailable`]. [`Error::LockTimeout`] only if a limit
        /// of the session ends the statement. [`Error::ConflictingWait`] if the request has another wait than
        /// [`Wait::No`](crate::Wait::No).
        ///
        /// ```
        /// # use diesel::prelude::*;
        /// # use diesel_locks::prelude::*;
        /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
        /// # let mut conn = SqliteConnection::establish(":memory:")?;
        /// # diesel_locks::migrate(&mut conn)?;
        /// match conn.try_with_object_lock(ObjectId::new("Order", 4711), |_conn| QueryResult::Ok(42))? {
        ///     Some(lines) => println!("{lines} lines recomputed"),
        ///     None => println!("another transaction is working on the order"),
        /// }
        /// # Ok(())
        /// # }
        /// ```
        #[doc(alias("try_with_lock", "try_lock", "TryLock", "NOWAIT", "pg_try_advisory_xact_lock"))]
        fn try_with_object_lock(request: impl Into<LockRequest>; f) -> Result<Option<T>, E> {
            let request = request.into();
            |conn| try_with_lock(conn, request, f).await
        }
    }

    engine {
        /// Acquires the lock, or those of several objects, in the open transaction, which holds them until it ends.
        ///
        /// Waits as the request says, without limit by default. A rollback to a savepoint older than the lock releases the lock on
        /// PostgreSQL. On SQLite it does not; on MySQL and MariaDB it may.
        ///
        /// Call it before the transaction reads, in a transaction of this crate at READ COMMITTED. In Diesel's `transaction` it
        /// fails with [`Error::UnsuitableIsolation`] on MySQL and MariaDB unless the session is at READ COMMITTED, and on SQLite if
        /// the transaction has read and another connection is writing or has written since: use `immediate_transaction`.
        ///
        /// # Errors
        ///
        /// [`Error::NotInTransaction`] outside of a transaction; [others](crate::Error#errors-by-method).
        /// [Whether the transaction is usable then](crate::operation::blocking#the-transaction-after-an-error) depends on the
        /// [`Wait`](crate::Wait) and the engine.
        ///
        /// SQLite has no READ COMMITTED: leave the level out there.
        ///
        /// ```
        /// use diesel_locks::prelude::*;
        /// use diesel_locks::IsolationLevel;
        ///
        /// const READ_COMMITTED: TransactionOptions =
        ///     TransactionOptions::new().isolation(IsolationLevel::ReadCommitted);
        ///
        /// fn cancel<C>(conn: &mut C, order: i32) -> Result<(), diesel_locks::Error>
        /// where
        ///     C: ObjectLockExt + TransactionExt,
        /// {
        ///     conn.run_transaction(READ_COMMITTED, |conn| {
        ///         conn.lock_object(ObjectId::new("Order", order))?;
        ///         Ok(()) // read and write the order
        ///     })
        /// }
        /// ```
        #[doc(alias("acquire", "lock", "pg_advisory_xact_lock", "FOR UPDATE", "with_advisory_lock"))]
        fn lock_object(request: impl Into<LockRequest>) -> Result<(), Error> {
            let request = request.into();
            |engine| lock(engine, request).await
        }

        /// Acquires the lock in the open transaction without waiting, and returns whether it was acquired.
        ///
        /// Otherwise as [`lock_object`](Self::lock_object). Returns within 50 ms. The transaction remains usable; MariaDB with
        /// `innodb_rollback_on_timeout` ends it: [`Error::TransactionAborted`].
        ///
        /// # Errors
        ///
        /// As [`lock_object`](Self::lock_object), except [`Error::Unavailable`]. [`Error::LockTimeout`] and
        /// [`Error::ConflictingWait`] as for [`try_with_object_lock`](Self::try_with_object_lock).
        #[doc(alias("try_lock", "try_acquire", "TryLock", "pg_try_advisory_xact_lock", "NOWAIT"))]
        fn try_lock_object(request: impl Into<LockRequest>) -> Result<LockOutcome, Error> {
            let request = request.into();
            |engine| try_lock(engine, request).await
        }

        /// Deletes the kept rows of objects that no transaction holds. Returns the number of rows deleted.
        ///
        /// Waits for no lock: a held row is skipped. Other sessions may lock meanwhile; a row that is being deleted delays a waiter
        /// for one short transaction of at most 500 rows (100 on PostgreSQL).
        ///
        /// # Errors
        ///
        /// [`Error::AlreadyInTransaction`] in an open transaction, which would lock the deleted rows until it ends;
        /// the [common errors](crate::Error#common-errors).
        #[doc(alias("cleanup", "delete_locks"))]
        fn purge_object_locks() -> Result<usize, Error> {
            |engine| unless_dropped!(engine, |engine| object_lock::purge(engine))
        }
    }
}

async fn with_lock<C, T, E, F>(conn: &mut C, request: LockRequest, f: F) -> Result<T, E>
where
    C: HasEngine,
    for<'r> F: Work<&'r mut C, Result<T, E>>,
    E: From<Error>,
{
    let request = Request::new(request)?;
    unless_dropped!(conn, |conn| run_or_unavailable(conn, &request, f))
}

async fn try_with_lock<C, T, E, F>(conn: &mut C, request: LockRequest, f: F) -> Result<Option<T>, E>
where
    C: HasEngine,
    for<'r> F: Work<&'r mut C, Result<T, E>>,
    E: From<Error>,
{
    let request = Request::without_wait(request, "try_with_object_lock")?;
    unless_dropped!(conn, |conn| object_lock::run(conn, &request, f))
}

async fn lock(engine: &mut dyn Engine, request: LockRequest) -> Result<(), Error> {
    let request = Request::new(request)?;
    let locked = unless_dropped!(engine, |engine| object_lock::lock(
        engine,
        "lock_object",
        &request
    ));
    match locked? {
        LockOutcome::Acquired => Ok(()),
        LockOutcome::Unavailable => Err(request.unavailable()),
    }
}

async fn try_lock(engine: &mut dyn Engine, request: LockRequest) -> Result<LockOutcome, Error> {
    let request = Request::without_wait(request, "try_lock_object")?;
    unless_dropped!(engine, |engine| object_lock::lock(
        engine,
        "try_lock_object",
        &request
    ))
}
