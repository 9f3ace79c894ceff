//! Object locks: the methods on connections.

pub(crate) mod acquire;
pub(crate) mod backend;
pub(crate) mod events;
pub(crate) mod id;
pub(crate) mod request;
mod run;

use crate::object_lock::acquire::Request;
use crate::object_lock::backend::{LockOutcome, ObjectLockBackend};
use crate::object_lock::request::IntoLockRequests;
use crate::{Error, LockRequest, transaction::depth};

/// Methods for exclusive locks on business objects.
///
/// Implemented for Diesel's `PgConnection`, `MysqlConnection` and `SqliteConnection` (features `postgres`, `mysql`,
/// `sqlite`). An r2d2 `PooledConnection` has the methods through its connection.
///
/// A transaction holds the lock. The lock is released when the transaction ends: at COMMIT, at ROLLBACK, or when the
/// server notices that the connection, the process or the machine is gone. There is no lease, no clock and no unlock. A
/// lock is a row in the table `diesel_locks_objects` (see [`Retention`](crate::Retention)), an idea that Jesper Udby
/// described in 2010 as "a simple database semaphore".
///
/// # The error type of a closure
///
/// A closure may return any error that implements `From<Error>` for this crate's [`Error`]: Diesel's error, this crate's,
/// `anyhow::Error`, the application's own. If the call is the last expression of a function, Rust infers the type from the
/// function. If `?` follows the call, name it at the closure, as with Diesel's
/// [`transaction`](diesel::Connection::transaction): `|conn| -> diesel_locks::Result<_> { .. }` (see
/// [`Result`](crate::Result)), or `|conn| -> Result<_, AppError> { .. }` for an error of the application.
///
/// # Isolation
///
/// A closure never reads data older than the moment at which it acquired the lock. At top level the transaction therefore
/// runs at READ COMMITTED on PostgreSQL, MySQL and MariaDB, whatever the session's default is; on SQLite it is an
/// immediate transaction. An open transaction of the application may have read before. The methods check that it sees
/// current data, and return [`Error::UnsuitableIsolation`] if it does not: at REPEATABLE READ (the default on MySQL) and
/// SERIALIZABLE, and on SQLite in a deferred transaction that has read before another connection wrote.
///
/// # `busy_timeout` on SQLite
///
/// While the crate waits for a lock, it polls with its own `busy_timeout`, and then restores the connection's. COMMIT and
/// the statements of the closure run with the connection's `busy_timeout`, which is zero in Diesel. Set
/// `PRAGMA busy_timeout` on every connection before any other statement, and `PRAGMA journal_mode = WAL`. In the other
/// journal modes COMMIT has to wait for readers, and fails with "database is locked" without a `busy_timeout`.
///
/// # Several locks and deadlocks
///
/// Two transactions that acquire two locks one after the other in opposite orders block each other. The server detects
/// the deadlock (PostgreSQL after `deadlock_timeout`, 1 s; InnoDB at once, or after 1 s if one of them waits behind a
/// third), and one transaction gets an error with [`is_deadlock`](Error::is_deadlock). Acquire all locks in one call of
/// [`with_object_locks`](Self::with_object_locks), which always locks in the same order. SQLite has one writer at a time
/// and no deadlocks.
#[diagnostic::on_unimplemented(
    message = "`diesel-locks` has no engine for `{Self}`",
    label = "not `PgConnection`, `MysqlConnection` or `SqliteConnection`, or the engine's feature is off",
    note = "pass `&mut *conn` for a pooled connection (`PooledConnection`, `Box`, `&mut &mut`)",
    note = "enable the engine's feature of `diesel-locks`: `postgres` for `PgConnection`, `mysql` for `MysqlConnection`, \
            `sqlite` for `SqliteConnection`"
)]
pub trait ObjectLockExt: ObjectLockBackend {
    /// Opens a transaction, waits for the lock, runs `f`, and commits. Rolls back if `f` returns an error or panics; the panic
    /// continues. The lock is released in both cases.
    ///
    /// `request` is an object id, or a [`LockRequest`](crate::LockRequest) with the time to wait and the retention of the row.
    /// Requests for different ids do not wait for each other, except on SQLite, which has one writer per database.
    ///
    /// In an open transaction the method opens a savepoint. If `f` succeeds, the lock is held until the outer transaction
    /// ends. If `f` fails, the savepoint is rolled back. That releases the lock on PostgreSQL. On SQLite the lock is held until
    /// the outer transaction ends; on MySQL and MariaDB it may be.
    ///
    /// A transaction that already holds the lock acquires it again at once.
    ///
    /// Round trips in addition to a plain transaction, at top level: PostgreSQL none (BEGIN carries the lock); MySQL and
    /// MariaDB one for a kept lock with a row, none for a free transient lock, eleven for a lock that is waited for.
    ///
    /// # Errors
    ///
    /// Errors of `f`, and errors of this crate converted to the same type:
    ///
    /// - [`Error::InvalidObjectId`], [`Error::InvalidWait`]: nothing was sent.
    /// - [`Error::LockTimeout`]; [`Error::Unavailable`] with [`Wait::No`](crate::Wait::No); [`Error::UnsuitableIsolation`];
    ///   [`Error::ReadOnly`]; [`Error::MissingTables`]; [`Error::InsufficientPrivilege`];
    ///   [`Error::PreparedStatementMismatch`]; [`Error::Deadlock`] (only in an open transaction, or from COMMIT); other errors
    ///   of the database: `f` did not run.
    /// - Any error of COMMIT: the transaction is rolled back.
    ///
    /// At top level the crate retries after a deadlock while it acquires the lock: the transaction has done nothing yet.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
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
    /// /// Registers a document, or a newer version of it, although others do the same at the same time.
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
    /// let mut conn = SqliteConnection::establish(":memory:")?;
    /// diesel_locks::migrate(&mut conn)?;
    /// diesel::sql_query("CREATE TABLE documents (id TEXT PRIMARY KEY, version INTEGER NOT NULL)")
    ///     .execute(&mut conn)?;
    /// assert!(register(&mut conn, "DK0015966592", 2)?);
    /// assert!(!register(&mut conn, "DK0015966592", 1)?);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
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
    fn with_object_lock<T, E, F>(&mut self, request: impl Into<LockRequest>, f: F) -> Result<T, E>
    where
        F: FnOnce(&mut Self) -> Result<T, E>,
        E: From<Error>,
    {
        run_or_unavailable(self, &Request::new(request.into())?, f)
    }

    /// Runs `f` in a transaction that holds the lock, as [`with_object_lock`](Self::with_object_lock), but does not wait.
    /// Returns `None` without running `f` if another transaction holds the lock.
    ///
    /// Returns within 50 ms, and causes no error in an outer transaction. On PostgreSQL a held transient lock is detected after
    /// 10 ms (an INSERT has no NOWAIT), a held kept lock at once. On SQLite any other writer holds the lock. The
    /// [`Wait`](crate::Wait) of the request is ignored.
    ///
    /// # Errors
    ///
    /// As [`with_object_lock`](Self::with_object_lock), except [`Error::Unavailable`] and [`Error::LockTimeout`].
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use diesel::prelude::*;
    /// use diesel_locks::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:")?;
    /// # diesel_locks::migrate(&mut conn)?;
    ///
    /// let done = conn.try_with_object_lock("nightly-report", |_conn| -> QueryResult<u32> {
    ///     Ok(42) // the work
    /// })?;
    /// match done {
    ///     Some(lines) => println!("{lines} lines"),
    ///     None => println!("another node is at it"),
    /// }
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
    fn try_with_object_lock<T, E, F>(
        &mut self,
        request: impl Into<LockRequest>,
        f: F,
    ) -> Result<Option<T>, E>
    where
        F: FnOnce(&mut Self) -> Result<T, E>,
        E: From<Error>,
    {
        let request = Request::new(request.into())?.nowait();
        run::run(self, &request, f)
    }

    /// Runs `f` in a transaction that holds the locks on several objects: acquires all of them or none.
    ///
    /// The locks are acquired in the byte order of the ids, whatever their order in the request, and duplicates are removed:
    /// callers of this method never deadlock with each other. [`Wait`](crate::Wait) applies to all locks together. Without any
    /// id the method runs a plain transaction. Otherwise it behaves as [`with_object_lock`](Self::with_object_lock).
    ///
    /// One request can have any number of ids with [`Retention::Transient`](crate::Retention::Transient), and 1,000 with
    /// [`Retention::Kept`](crate::Retention::Kept).
    ///
    /// Round trips: PostgreSQL none for any number of ids; MySQL and MariaDB none for up to 100 free transient locks, three
    /// for each further 100, and otherwise those of one lock for each lock.
    ///
    /// # Errors
    ///
    /// As [`with_object_lock`](Self::with_object_lock); an error about a lock names the first ten ids.
    /// [`Error::TooManyIds`] for more than 1,000 kept objects. In an open transaction on MySQL and MariaDB, the locks acquired
    /// before the error may be held until the transaction ends.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use diesel::prelude::*;
    /// use diesel_locks::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:")?;
    /// # diesel_locks::migrate(&mut conn)?;
    ///
    /// let from = ObjectId::new("Account", 7);
    /// let to = ObjectId::new("Account", 3);
    /// conn.with_object_locks([&from, &to], |_conn| -> QueryResult<()> {
    ///     Ok(()) // move the money
    /// })?;
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
    fn with_object_locks<T, E, F>(&mut self, request: impl IntoLockRequests, f: F) -> Result<T, E>
    where
        F: FnOnce(&mut Self) -> Result<T, E>,
        E: From<Error>,
    {
        run_or_unavailable(self, &Request::new(request.into_lock_request())?, f)
    }

    /// Runs `f` in a transaction that holds the locks on several objects, as [`with_object_locks`](Self::with_object_locks),
    /// but does not wait. Returns `None` without running `f` if another transaction holds one of the locks.
    ///
    /// With thousands of objects the call takes longer than 50 ms.
    ///
    /// # Errors
    ///
    /// As [`try_with_object_lock`](Self::try_with_object_lock), and [`Error::TooManyIds`].
    fn try_with_object_locks<T, E, F>(
        &mut self,
        request: impl IntoLockRequests,
        f: F,
    ) -> Result<Option<T>, E>
    where
        F: FnOnce(&mut Self) -> Result<T, E>,
        E: From<Error>,
    {
        let request = Request::new(request.into_lock_request())?.nowait();
        run::run(self, &request, f)
    }

    /// Acquires the lock in the open transaction, which holds it until it ends.
    ///
    /// Waits as the request says. Rolling back to a savepoint older than the lock releases the lock on PostgreSQL. On SQLite it
    /// does not; on MySQL and MariaDB it may.
    ///
    /// Call it before the transaction reads. On SQLite a deferred transaction that has read can't lock while another connection
    /// writes or after it has written: start the transaction with `immediate_transaction`. On MySQL and MariaDB the session
    /// must be at READ COMMITTED, or the transaction must be one of this crate
    /// ([`run_transaction`](crate::TransactionExt::run_transaction), [`with_object_lock`](Self::with_object_lock)). The level of
    /// a plain `SET TRANSACTION` is not visible: such a transaction is refused if the session's level is unsuitable, and a
    /// transaction set to REPEATABLE READ in a session at READ COMMITTED is not detected.
    ///
    /// After [`Error::LockTimeout`] or [`Error::Unavailable`] the transaction remains usable on every engine (on PostgreSQL
    /// through a savepoint around the wait). After any other error, and with [`Wait::Forever`](crate::Wait::Forever) after any
    /// error, PostgreSQL accepts only a rollback. With `innodb_rollback_on_timeout` InnoDB may roll back the transaction.
    ///
    /// One round trip on PostgreSQL (two with [`Wait::AtMost`](crate::Wait::AtMost)), and on MySQL and MariaDB for a kept lock
    /// with a row.
    ///
    /// # Errors
    ///
    /// [`Error::NotInTransaction`] outside of a transaction. [`Error::Deadlock`] if the server chose this transaction as the
    /// victim. The other errors of [`with_object_lock`](Self::with_object_lock).
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use diesel::prelude::*;
    /// use diesel_locks::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:")?;
    /// # diesel_locks::migrate(&mut conn)?;
    ///
    /// conn.transaction(|conn| -> Result<(), diesel_locks::Error> {
    ///     conn.lock_object("BondBO:DK0015966592")?;
    ///     Ok(()) // the work
    /// })?;
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
    fn lock_object(&mut self, request: impl Into<LockRequest>) -> Result<(), Error> {
        let request = Request::new(request.into())?;
        match run::lock(self, "lock_object", &request)? {
            LockOutcome::Acquired => Ok(()),
            LockOutcome::Unavailable => Err(unavailable(&request)),
        }
    }

    /// Acquires the lock in the open transaction, as [`lock_object`](Self::lock_object), but does not wait. Returns `false` if
    /// another transaction holds the lock.
    ///
    /// Returns within 50 ms. The transaction remains usable.
    ///
    /// # Errors
    ///
    /// As [`lock_object`](Self::lock_object), except [`Error::Unavailable`] and [`Error::LockTimeout`].
    fn try_lock_object(&mut self, request: impl Into<LockRequest>) -> Result<bool, Error> {
        let request = Request::new(request.into())?.nowait();
        Ok(run::lock(self, "try_lock_object", &request)? == LockOutcome::Acquired)
    }

    /// Deletes the kept rows of objects that no transaction holds. Returns the number of rows deleted.
    ///
    /// Other sessions may lock meanwhile. A held row is skipped. A row that is being deleted delays a waiter for one short
    /// transaction of at most 500 rows (100 on PostgreSQL). On SQLite, where a writing transaction locks the whole database,
    /// the method waits for the write lock.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyInTransaction`] in an open transaction, which would lock the deleted rows until it ends; errors of the
    /// database.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use diesel::prelude::*;
    /// use diesel_locks::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:")?;
    /// # diesel_locks::migrate(&mut conn)?;
    ///
    /// let hot = LockRequest::new("exchange-rates").retention(Retention::Kept);
    /// conn.with_object_lock(hot, |_conn| -> QueryResult<()> { Ok(()) })?;
    /// assert_eq!(conn.purge_object_locks()?, 1);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
    fn purge_object_locks(&mut self) -> Result<usize, Error> {
        if depth::depth(self)? > 0 {
            return Err(Error::AlreadyInTransaction {
                method: "purge_object_locks",
                reason: "it would lock the deleted rows until it ends",
            });
        }
        Self::purge_unlocked(self)
    }
}

#[diagnostic::do_not_recommend]
impl<C: ObjectLockBackend> ObjectLockExt for C {}

fn run_or_unavailable<C, T, E, F>(conn: &mut C, request: &Request, f: F) -> Result<T, E>
where
    C: ObjectLockBackend,
    F: FnOnce(&mut C) -> Result<T, E>,
    E: From<Error>,
{
    run::run(conn, request, f)?.ok_or_else(|| unavailable(request).into())
}

fn unavailable(request: &Request) -> Error {
    Error::Unavailable {
        resource: request.resource(),
    }
}
