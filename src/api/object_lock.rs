//! Object locks: the methods on connections. `pair!` makes both traits.

use crate::acts::cancel_guard::unless_dropped;
use crate::acts::object_lock::{lock, purge, run};
use crate::api::pair::pair;
use crate::values::lock_request::{LockOutcome, Request};
use crate::{Error, LockRequest};

pair! {
    /// Locks objects of the application for one transaction, exclusively or [shared](crate::LockRequest::shared). The objects need
    /// not exist in any table.
    ///
    /// ```
    /// use diesel::prelude::*;
    /// use diesel_locks::prelude::*;
    ///
    /// # let mut conn = SqliteConnection::establish(":memory:")?;
    /// # diesel_locks::migrate(&mut conn)?;
    /// let order = ObjectId::new("Order", 4711);
    /// conn.with_object_lock(&order, |_conn| -> QueryResult<()> {
    ///     Ok(()) // read, decide, write: no other transaction holds the order
    /// })?;
    ///
    /// let lines = conn.try_with_object_lock(&order, |_conn| QueryResult::Ok(42))?;
    /// assert_eq!(lines, Some(42)); // `None`: another transaction holds the order
    ///
    /// // On PostgreSQL, MySQL and MariaDB with `.isolation(IsolationLevel::ReadCommitted)`.
    /// conn.run_transaction(TransactionOptions::new(), |conn| -> QueryResult<()> {
    ///     conn.lock_object(&order)?;
    ///     let _is_free = conn.try_lock_object("statistics")?.is_acquired();
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
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
    /// error, [Errors by method](crate::Error#errors-by-method) what it returns. SQLite needs [two
    /// settings](crate::operation::sqlite).
    ///
    /// # The error type of a closure
    ///
    /// A closure may return any error type `E: From<diesel_locks::Error>`: Diesel's, this crate's, `anyhow::Error`, the
    /// application's. If `?` follows the call, name it at the closure: `|conn| -> diesel_locks::Result<_> { .. }` (see
    /// [`Result`](crate::Result)), or `|conn| -> Result<_, AppError> { .. }`.
    ///
    /// # Isolation
    ///
    /// A closure never reads data older than the moment at which it acquired the lock. At top level the transaction runs at READ
    /// COMMITTED on PostgreSQL, MySQL and MariaDB, whatever the session's default is, and as an immediate transaction on SQLite.
    ///
    /// In a transaction that is already open and does not see current data the methods return [`Error::UnsuitableIsolation`]: at
    /// REPEATABLE READ, which is MySQL's default, at SERIALIZABLE, and on SQLite in a deferred transaction that has read, if
    /// another connection is writing or has written since (Diesel's `immediate_transaction` is suitable). Open it by
    /// [`run_transaction`](crate::TransactionExt::run_transaction) at READ COMMITTED. Not detected on MySQL and MariaDB: a plain
    /// `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ` before the transaction, in a session at READ COMMITTED.
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
    /// use diesel_locks::{AsyncInspectExt, ListOptions, RetryPolicy};
    /// use std::time::Duration;
    ///
    /// const COLLATE: Semaphore = Semaphore::from_static("collate-logs", 10);
    ///
    /// let mut conn = SyncConnectionWrapper::<SqliteConnection>::establish(":memory:").await?;
    /// diesel_locks::migrate_async(&mut conn).await?;
    /// conn.with_object_lock("Document:contract-17", async |conn| -> QueryResult<usize> {
    ///     diesel::sql_query("SELECT 1").execute(conn).await // read, compare, write
    /// })
    /// .await?;
    ///
    /// if let Some(slot) = conn.try_acquire_slot(&COLLATE, LeaseOptions::new(Duration::from_secs(30))).await? {
    ///     conn.release_slot(slot).await?;
    /// }
    ///
    /// let passes = Sequence::new("pass").for_key(4711);
    /// let retried = TransactionOptions::new().retry(RetryPolicy::max_attempts(5));
    /// let number = conn.run_transaction(retried, async |conn| conn.next_number(&passes).await).await?;
    /// assert_eq!(conn.sequences(&ListOptions::new()).await?[0].last_number, number);
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
        /// Rolls back if `f` returns an error or panics; the panic continues. Of several objects it acquires
        /// [all locks or none](LockRequest::all).
        ///
        /// In an open transaction the method opens a savepoint, and the lock is held until the outer transaction ends. If `f`
        /// fails, the rollback to the savepoint releases it on PostgreSQL; on SQLite it does not, and on MySQL and MariaDB it may.
        ///
        /// Do not change the schema in `f`: on MySQL and MariaDB `CREATE TABLE` and `ALTER TABLE` commit the transaction and
        /// release the lock ([migrations](crate::migrate#the-applications-own-migrations)). On PostgreSQL `CREATE INDEX
        /// CONCURRENTLY` does not end while another session waits for this lock on a connection.
        ///
        /// # Errors
        ///
        /// - Before `f`: [`Error::LockTimeout`], [`Error::Unavailable`] with [`Wait::No`](crate::Wait::No), or
        ///   [others](crate::Error#errors-by-method). At top level a deadlock while the method acquires the lock is retried.
        /// - From `f`: its own error. The writes are rolled back.
        /// - At COMMIT (the writes are rolled back): [`Error::TransactionAborted`] if the server had already ended the
        ///   transaction (on SQLite what `f` wrote after `INSERT OR ROLLBACK`, or ROLLBACK as text, is committed);
        ///   [others](crate::Error#errors-by-method).
        /// - At COMMIT, if the connection was lost (the writes may be committed): [`Error::OutcomeUnknown`].
        #[doc(alias("with_lock", "with_advisory_lock", "mutex", "lock", "synchronized", "GET_LOCK"))]
        #[doc(alias("pg_advisory_xact_lock", "advisory_lock"))]
        fn with_object_lock(request: impl Into<LockRequest>; f) -> Result<T, E> {
            let request = request.into();
            |conn| {
                let request = Request::new(request)?;
                let done: Result<_, E> = unless_dropped!(conn, |conn| run(conn, &request, f));
                done?.ok_or_else(|| E::from(request.unavailable()))
            }
        }

        /// Runs `f` in a transaction that holds the lock, or returns `None` at once if another transaction holds it.
        ///
        /// Otherwise as [`with_object_lock`](Self::with_object_lock). Returns `None` within 50 ms, with thousands of ids later, and
        /// causes no error in an outer transaction. Not for a job that one server is to run: another whose timer fires after the end of
        /// this transaction runs it too ([`hold_at_least`](crate::LeaseOptions::hold_at_least)).
        ///
        /// [`Error::LockTimeout`] only if a limit of the session ends the statement. [`Error::ConflictingWait`] if the request has
        /// another wait than [`Wait::No`](crate::Wait::No).
        #[doc(alias("try_with_lock", "try_lock", "TryLock", "NOWAIT", "pg_try_advisory_xact_lock"))]
        fn try_with_object_lock(request: impl Into<LockRequest>; f) -> Result<Option<T>, E> {
            let request = request.into();
            |conn| {
                let request = Request::without_wait(request, "try_with_object_lock")?;
                unless_dropped!(conn, |conn| run(conn, &request, f))
            }
        }
    }

    engine {
        /// Acquires the lock, or those of several objects, in the open transaction, which holds them until it ends.
        ///
        /// Waits as the request says, without limit by default. A rollback to a savepoint older than the lock releases the lock on
        /// PostgreSQL; on SQLite it does not, and on MySQL and MariaDB it may. Call it before the transaction reads, at a suitable
        /// [isolation level](Self#isolation).
        ///
        /// # Errors
        ///
        /// [`Error::NotInTransaction`] outside of a transaction; [others](crate::Error#errors-by-method).
        /// [Whether the transaction is usable then](crate::operation::blocking#the-transaction-after-an-error) depends on the
        /// [`Wait`](crate::Wait) and the engine.
        #[doc(alias("acquire", "lock", "pg_advisory_xact_lock", "FOR UPDATE", "with_advisory_lock"))]
        fn lock_object(request: impl Into<LockRequest>) -> Result<(), Error> {
            let request = request.into();
            |engine| {
                let request = Request::new(request)?;
                match lock(engine, "lock_object", &request).await? {
                    LockOutcome::Acquired => Ok(()),
                    LockOutcome::Unavailable => Err(request.unavailable()),
                }
            }
        }

        /// Acquires the lock in the open transaction without waiting, and returns whether it was acquired.
        ///
        /// Otherwise as [`lock_object`](Self::lock_object). Returns within 50 ms. The transaction remains usable; MariaDB with
        /// `innodb_rollback_on_timeout` ends it: [`Error::TransactionAborted`].
        #[doc(alias("try_lock", "try_acquire", "TryLock", "pg_try_advisory_xact_lock", "NOWAIT"))]
        fn try_lock_object(request: impl Into<LockRequest>) -> Result<LockOutcome, Error> {
            let request = request.into();
            |engine| {
                let request = Request::without_wait(request, "try_lock_object")?;
                lock(engine, "try_lock_object", &request).await
            }
        }

        /// Deletes the kept rows of objects that no transaction holds. Returns the number of rows deleted.
        ///
        /// Waits for no lock: a held row is skipped. A row that is being deleted delays other sessions for one short transaction of
        /// at most 500 rows (100 on PostgreSQL). On SQLite it waits for other writers without limit, and deletes all rows at once.
        /// Fails in an open transaction, which would lock the deleted rows until it ends.
        #[doc(alias("cleanup", "delete_locks"))]
        fn purge_object_locks() -> Result<usize, Error> {
            |engine| unless_dropped!(engine, |engine| purge(engine))
        }
    }
}
