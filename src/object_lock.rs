//! Object locks: the methods on connections.

pub(crate) mod acquire;
#[cfg(feature = "_async")]
pub(crate) mod async_ext;
pub(crate) mod backend;
pub(crate) mod events;
pub(crate) mod id;
pub(crate) mod request;
pub(crate) mod run;

use crate::engine::HasBlockingEngine;
use crate::object_lock::acquire::Request;
use crate::object_lock::backend::{LockOutcome, ObjectLockBackend};
use crate::object_lock::run::run_or_unavailable;
use crate::poll::blocking;
use crate::{Error, LockRequest, transaction::depth};

/// Methods for exclusive locks on business objects.
///
/// A transaction holds the lock. The lock is released when the transaction ends: at COMMIT, at ROLLBACK, or when the
/// server notices that the connection, the process or the machine is gone, which can take hours without
/// [keepalives](crate::operation::blocking#a-client-that-vanishes). There is no lease, no clock and no unlock. A lock is a
/// row in the table `diesel_locks_objects`: see [`Retention`](crate::Retention).
///
/// | | opens a transaction, runs a closure | locks in the open transaction |
/// |---|---|---|
/// | waits | [`with_object_lock`](Self::with_object_lock) | [`lock_object`](Self::lock_object) |
/// | does not wait | [`try_with_object_lock`](Self::try_with_object_lock) | [`try_lock_object`](Self::try_lock_object) |
///
/// [Blocking](crate::operation::blocking) lists how long each method waits, and whether the transaction is usable after an
/// error. Connections to SQLite need [two settings](crate::operation::sqlite).
///
/// # Requests
///
/// The argument of the methods is an id (a string or an [`ObjectId`](crate::ObjectId)), or an array, a slice or a `Vec` of
/// ids, which waits without limit, or a [`LockRequest`] with the time to wait and the retention of the rows. Requests for
/// different ids do not wait for each other, except on SQLite, which has one writer per database. A transaction that holds
/// a lock acquires it again at once.
///
/// # The error type of a closure
///
/// A closure may return any error type `E: From<diesel_locks::Error>`: Diesel's error, this crate's, `anyhow::Error`, the
/// application's own. If the call is the last expression of a function, Rust infers the type from the
/// function. If `?` follows the call, name it at the closure, as with Diesel's
/// [`transaction`](diesel::Connection::transaction): `|conn| -> diesel_locks::Result<_> { .. }` (see
/// [`Result`](crate::Result)), or `|conn| -> Result<_, AppError> { .. }` for an error of the application.
///
/// # Isolation
///
/// A closure never reads data older than the moment at which it acquired the lock. At top level the transaction runs at READ
/// COMMITTED on PostgreSQL, MySQL and MariaDB, whatever the session's default is, and as an immediate transaction on SQLite.
///
/// A transaction that is already open may have read before. The methods check that it sees current data, and return
/// [`Error::UnsuitableIsolation`] if it does not: at REPEATABLE READ and SERIALIZABLE, and on SQLite in a deferred
/// transaction that has read before another connection wrote. REPEATABLE READ is MySQL's default: run such a transaction
/// with [`run_transaction`](crate::TransactionExt::run_transaction) at READ COMMITTED.
///
/// One case on MySQL and MariaDB is not detected: a plain `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`, which applies to
/// the next transaction, in a session at READ COMMITTED.
#[diagnostic::on_unimplemented(
    message = "`diesel-locks` has no engine for `{Self}`",
    label = "not `PgConnection`, `MysqlConnection` or `SqliteConnection`, or the engine's feature is off",
    note = "pass `&mut *conn` for a pooled connection (`PooledConnection`, `Box`, `&mut &mut`)",
    note = "implement `diesel_locks::ConnectionWrapper` for an enum of connections or a struct around one",
    note = "enable the engine's feature of `diesel-locks`: `postgres` for `PgConnection`, `mysql` for `MysqlConnection`, \
            `sqlite` for `SqliteConnection`"
)]
#[doc(alias(
    "mutex",
    "advisory lock",
    "advisory_lock",
    "named lock",
    "distributed lock"
))]
#[doc(alias("distributed_lock", "pessimistic lock", "business lock"))]
pub trait ObjectLockExt: HasBlockingEngine {
    /// Opens a transaction, waits for the lock, runs `f`, and commits. Returns the value of `f`.
    ///
    /// Rolls back if `f` returns an error or panics; the panic continues. The lock is released in both cases. Waits as the
    /// request says, without limit by default. Of several objects it acquires all locks or none: see [`LockRequest::all`].
    ///
    /// In an open transaction the method opens a savepoint. If `f` succeeds, the lock is held until the outer transaction
    /// ends. If `f` fails, the savepoint is rolled back. That releases the lock on PostgreSQL. On SQLite the lock is held until
    /// the outer transaction ends; on MySQL and MariaDB it may be.
    ///
    /// Do not change the schema in `f` on MySQL and MariaDB: `CREATE TABLE` and `ALTER TABLE` commit the transaction and
    /// release the lock, and migrations fail for good ([`migrate`](crate::migrate#the-applications-own-migrations)). On
    /// PostgreSQL, `CREATE INDEX CONCURRENTLY` waits for all sessions that wait for an object lock on a connection: sent while
    /// the lock is held for which they wait, it does not end.
    ///
    /// # Errors
    ///
    /// The [common errors](crate::Error#common-errors), converted to the error type of `f`, and:
    ///
    /// - Before `f` (`f` did not run, nothing is written): [`Error::LockTimeout`]; [`Error::Unavailable`] with
    ///   [`Wait::No`](crate::Wait::No); [`Error::InvalidObjectId`], [`Error::TooManyIds`], [`Error::InvalidWait`];
    ///   [`Error::SeveralWriters`] in a cluster. In an open transaction also [`Error::UnsuitableIsolation`],
    ///   [`Error::Deadlock`] and [`Error::PartlyLocked`] (several objects, MySQL and MariaDB). At top level a deadlock while
    ///   the method acquires the lock is retried: the transaction has done nothing yet.
    /// - From `f`: its own error. The writes are rolled back.
    /// - At COMMIT (`f` ran, the writes are rolled back): [`Error::TransactionAborted`] if the server had already ended the
    ///   transaction; [`Error::StatementTimeout`] on SQLite, and on MySQL and MariaDB if a backup or
    ///   `FLUSH TABLES WITH READ LOCK` delayed COMMIT longer than `lock_wait_timeout`; [`Error::Deadlock`] and [`Error::SerializationFailure`] in a
    ///   cluster; [`Error::Database`], for example for a deferred constraint.
    /// - At COMMIT, with an unknown outcome (`f` ran, the writes may be committed): [`Error::OutcomeUnknown`] on MySQL and
    ///   MariaDB, and [`Error::Database`] on PostgreSQL, if the connection was lost.
    ///
    /// On SQLite [`Error::TransactionAborted`] does not roll back what `f` wrote after `INSERT OR ROLLBACK` or ROLLBACK as text.
    ///
    /// ```
    /// use diesel::prelude::*;
    /// use diesel_locks::prelude::*;
    ///
    /// diesel::table! {
    ///     documents (id) {
    ///         id -> Text,
    ///         version -> Integer,
    ///     }
    /// }
    ///
    /// /// Stores a document, or a newer version of it. Several threads may call this for one document at the same time.
    /// fn register(conn: &mut SqliteConnection, id: &str, version: i32) -> QueryResult<bool> {
    ///     conn.with_object_lock(&ObjectId::new("Document", id), |conn| {
    ///         let known: Option<i32> =
    ///             documents::table.find(id).select(documents::version).first(conn).optional()?;
    ///         if known.is_some_and(|known| known >= version) {
    ///             return Ok(false);
    ///         }
    ///         diesel::replace_into(documents::table)
    ///             .values((documents::id.eq(id), documents::version.eq(version)))
    ///             .execute(conn)?;
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
    /// The connection can't be used beside the reference that the closure gets:
    ///
    /// ```compile_fail,E0500
    /// use diesel_locks::prelude::*;
    ///
    /// fn wrong<C: ObjectLockExt>(conn: &mut C) -> Result<(), diesel_locks::Error> {
    ///     conn.with_object_lock("a", |_| conn.lock_object("b"))
    /// }
    /// ```
    #[doc(alias("with_lock", "with_advisory_lock", "mutex", "lock", "synchronized"))]
    #[doc(alias("GET_LOCK", "pg_advisory_xact_lock", "advisory_lock"))]
    fn with_object_lock<T, E, F>(&mut self, request: impl Into<LockRequest>, f: F) -> Result<T, E>
    where
        F: FnOnce(&mut Self) -> Result<T, E>,
        E: From<Error>,
    {
        let request = Request::new(request.into())?;
        Self::block_on(run_or_unavailable(self, &request, blocking(&mut Some(f))))
    }

    /// Runs `f` in a transaction that holds the lock, as [`with_object_lock`](Self::with_object_lock), but does not wait.
    /// Returns `None` without running `f` if another transaction holds the lock, or one of several.
    ///
    /// Returns `None` within 50 ms, with thousands of ids later, and causes no error in an outer transaction. On PostgreSQL a
    /// held transient lock is detected after 10 ms (an INSERT has no NOWAIT), a held kept lock at once. On SQLite any other
    /// writer holds the lock.
    ///
    /// The lock excludes other transactions only while this one runs. It does not make a job run once: a server whose timer
    /// fires after the transaction has ended acquires the lock and runs the job again. For that use a lease with
    /// [`hold_at_least`](crate::LeaseOptions::hold_at_least).
    ///
    /// # Errors
    ///
    /// As [`with_object_lock`](Self::with_object_lock), except [`Error::Unavailable`]. [`Error::LockTimeout`] only if a limit
    /// of the session ends the statement. [`Error::ConflictingWait`] if the request has another wait than
    /// [`Wait::No`](crate::Wait::No).
    ///
    /// ```
    /// use diesel::prelude::*;
    /// use diesel_locks::prelude::*;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut conn = SqliteConnection::establish(":memory:")?;
    /// # diesel_locks::migrate(&mut conn)?;
    /// let order = ObjectId::new("Order", 4711);
    /// let lines = conn.try_with_object_lock(&order, |_conn| -> QueryResult<u32> {
    ///     Ok(42) // recompute the lines of the order
    /// })?;
    /// match lines {
    ///     Some(lines) => println!("{lines} lines"),
    ///     None => println!("another transaction is working on the order"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias(
        "try_with_lock",
        "try_lock",
        "TryLock",
        "NOWAIT",
        "pg_try_advisory_xact_lock"
    ))]
    fn try_with_object_lock<T, E, F>(
        &mut self,
        request: impl Into<LockRequest>,
        f: F,
    ) -> Result<Option<T>, E>
    where
        F: FnOnce(&mut Self) -> Result<T, E>,
        E: From<Error>,
    {
        let request = Request::without_wait(request.into(), "try_with_object_lock")?;
        Self::block_on(run::run(self, &request, blocking(&mut Some(f))))
    }

    /// Acquires the lock, or those of several objects, in the open transaction, which holds them until it ends.
    ///
    /// Waits as the request says, without limit by default. Rolling back to a savepoint older than the lock releases the lock
    /// on PostgreSQL. On SQLite it does not; on MySQL and MariaDB it may.
    ///
    /// Call it before the transaction reads, in a transaction at READ COMMITTED that this crate has started. In Diesel's
    /// `transaction` it fails with [`Error::UnsuitableIsolation`] at MySQL's default level, and on SQLite if the transaction
    /// has read and another connection is writing or has written since. On MySQL and MariaDB Diesel's `transaction` works if
    /// the session is at READ COMMITTED; on SQLite use `immediate_transaction`.
    ///
    /// Whether the transaction is usable after an error depends on the [`Wait`](crate::Wait) and the engine: see
    /// [Blocking](crate::operation::blocking#the-transaction-after-an-error).
    ///
    /// # Errors
    ///
    /// [`Error::NotInTransaction`] outside of a transaction. [`Error::LockTimeout`], [`Error::Unavailable`],
    /// [`Error::PartlyLocked`] (several objects, MySQL and MariaDB), [`Error::UnsuitableIsolation`], [`Error::Deadlock`], [`Error::SeveralWriters`], [`Error::InvalidObjectId`],
    /// [`Error::TooManyIds`], [`Error::InvalidWait`], and the [common errors](crate::Error#common-errors).
    ///
    /// The example runs on PostgreSQL, MySQL and MariaDB. SQLite has no READ COMMITTED ([`Error::Unsupported`]): leave the
    /// level out there. [`with_object_lock`](Self::with_object_lock) outside a transaction works on every engine.
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
    #[doc(alias("acquire", "lock", "pg_advisory_xact_lock", "FOR UPDATE"))]
    #[doc(alias("with_advisory_lock"))]
    fn lock_object(&mut self, request: impl Into<LockRequest>) -> Result<(), Error> {
        let request = Request::new(request.into())?;
        match Self::block_on(run::lock(self, "lock_object", &request))? {
            LockOutcome::Acquired => Ok(()),
            LockOutcome::Unavailable => Err(request.unavailable()),
        }
    }

    /// Acquires the lock in the open transaction, as [`lock_object`](Self::lock_object), but does not wait. Returns
    /// whether it was acquired: [`LockOutcome::Unavailable`] if another transaction holds the lock.
    ///
    /// Returns within 50 ms. The transaction remains usable. MariaDB with `innodb_rollback_on_timeout` ends it in place
    /// of that: [`Error::TransactionAborted`].
    ///
    /// # Errors
    ///
    /// As [`lock_object`](Self::lock_object), except [`Error::Unavailable`]. [`Error::LockTimeout`] only if a limit of the
    /// session ends the statement. [`Error::ConflictingWait`] if the request has another wait than
    /// [`Wait::No`](crate::Wait::No).
    #[doc(alias(
        "try_lock",
        "try_acquire",
        "TryLock",
        "pg_try_advisory_xact_lock",
        "NOWAIT"
    ))]
    fn try_lock_object(&mut self, request: impl Into<LockRequest>) -> Result<LockOutcome, Error> {
        let request = Request::without_wait(request.into(), "try_lock_object")?;
        Self::block_on(run::lock(self, "try_lock_object", &request))
    }

    /// Deletes the kept rows of objects that no transaction holds. Returns the number of rows deleted.
    ///
    /// Waits for no lock: a held row is skipped. On SQLite, where a writing transaction locks the whole database, it waits for
    /// other writers without limit. Other sessions may lock meanwhile; a row that is being deleted delays a waiter for one
    /// short transaction of at most 500 rows (100 on PostgreSQL).
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyInTransaction`] in an open transaction, which would lock the deleted rows until it ends;
    /// the [common errors](crate::Error#common-errors).
    ///
    /// ```
    /// use diesel::prelude::*;
    /// use diesel_locks::prelude::*;
    /// use diesel_locks::Retention;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut conn = SqliteConnection::establish(":memory:")?;
    /// # diesel_locks::migrate(&mut conn)?;
    /// let rates = LockRequest::new("exchange-rates").retention(Retention::Kept);
    /// conn.with_object_lock(rates, |_conn| -> QueryResult<()> { Ok(()) })?;
    /// assert_eq!(conn.purge_object_locks()?, 1);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("cleanup", "delete_locks"))]
    fn purge_object_locks(&mut self) -> Result<usize, Error> {
        if depth::depth(self)? > 0 {
            return Err(run::purge_in_transaction());
        }
        Self::block_on(Self::LockEngine::purge_unlocked(self))
    }
}

#[diagnostic::do_not_recommend]
impl<C: HasBlockingEngine> ObjectLockExt for C {}
