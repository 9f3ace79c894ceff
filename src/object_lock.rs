//! The methods on connections.

pub(crate) mod acquire;
pub(crate) mod backend;
mod events;
pub(crate) mod id;
pub(crate) mod request;
mod run;

use crate::object_lock::acquire::Request;
use crate::object_lock::backend::{LockOutcome, ObjectLockBackend};
use crate::object_lock::request::IntoLockRequests;
use crate::{Error, LockRequest, transaction::depth};

/// Exclusive locks on business objects, as methods of a connection.
///
/// Implemented for Diesel's `PgConnection`, `MysqlConnection` and `SqliteConnection` (features
/// `postgres`, `mysql`, `sqlite`); an r2d2 `PooledConnection` has the methods through its connection.
///
/// A lock is held by a transaction. It ends when that ends: by COMMIT, by ROLLBACK, or because the
/// connection, the process or the machine that held it is gone and the server notices. There is no
/// lease, no clock and no unlock. What stands behind it is a row in the table `diesel_locks_objects`
/// (see [`Retention`](crate::Retention)), an idea that Jesper Udby wrote down in 2010 as "a simple
/// database semaphore".
///
/// # The error type of a closure
///
/// A closure may return any error that is made from [`Error`] with `From`: Diesel's, this crate's,
/// `anyhow::Error`, the application's own. Rust finds out which from the function around it when the
/// call is its last expression. Where `?` follows the call instead, the closure has to say it, as with
/// Diesel's own [`transaction`](diesel::Connection::transaction): `|conn| -> QueryResult<()> { .. }`,
/// or `Ok::<_, diesel_locks::Error>(())` at its end.
///
/// # Isolation
///
/// What a closure reads is never older than the moment at which it got the lock. At top level the
/// transaction therefore runs at READ COMMITTED on PostgreSQL, MySQL and MariaDB, whatever the
/// session's default, and is an immediate one on SQLite. Inside a transaction of the application's,
/// which may have read before, the methods check that it can keep the promise, and return
/// [`Error::UnsuitableIsolation`] where it can't: at REPEATABLE READ and SERIALIZABLE (REPEATABLE READ is the
/// default on MySQL), and on SQLite in a deferred transaction that has read already while another
/// wrote.
///
/// # SQLite's `busy_timeout`
///
/// While it waits for a lock, the crate polls with a `busy_timeout` of its own and sets the connection's
/// back. COMMIT and the closure's statements run under the connection's, which is zero in Diesel: set
/// `PRAGMA busy_timeout` on every connection, before anything else, and `PRAGMA journal_mode = WAL`. In
/// the other journal modes COMMIT has to wait for readers, and fails with "database is locked" without a
/// `busy_timeout`.
///
/// # Two locks and deadlock
///
/// Two transactions that take two locks one after the other in opposite orders wait for each other. The
/// server notices (PostgreSQL after `deadlock_timeout`, 1 s; InnoDB at once, or after 1 s when one of
/// them waits behind a third), and one of them gets an error with
/// [`is_deadlock`](Error::is_deadlock). Take all locks at once with
/// [`with_object_locks`](Self::with_object_locks), which has one order for everybody. On SQLite there is
/// one writer at a time, and no deadlock.
pub trait ObjectLockExt: ObjectLockBackend {
    /// Opens a transaction, waits for the lock, runs `work`, and commits; rolls back when `work` returns
    /// an error or panics (the panic goes on). Either way the lock is free afterwards.
    ///
    /// `lock` is an id, or an [`LockRequest`](crate::LockRequest) that also says how long to wait and what
    /// becomes of the row. Different ids do not wait for each other, except on SQLite, which has one
    /// writer per database.
    ///
    /// In an open transaction it opens a savepoint. When the closure succeeds, the lock is held until
    /// the outer transaction ends. When it fails, the savepoint is rolled back; that frees the lock on
    /// PostgreSQL; on SQLite it stays until the outer transaction ends, and on MySQL and MariaDB it may.
    ///
    /// A transaction that already holds the lock gets it again at once.
    ///
    /// Round trips beyond those of a bare transaction, at top level: PostgreSQL none (BEGIN carries the
    /// lock); MySQL and MariaDB one for a kept lock whose row is there, none for a transient one that is
    /// free, eleven for one that has to be waited for.
    ///
    /// # Errors
    ///
    /// Those of `work`, and, made into the same type, those of this crate:
    /// [`Error::InvalidObjectId`] and [`Error::InvalidWait`] before anything is sent;
    /// [`Error::LockTimeout`], [`Error::Unavailable`] ([`Wait::No`](crate::Wait::No)), [`Error::UnsuitableIsolation`],
    /// [`Error::ReadOnly`], [`Error::MissingTables`], [`Error::InsufficientPrivilege`], [`Error::PreparedStatementMismatch`],
    /// [`Error::Deadlock`] (only in an open transaction, or from COMMIT) and other errors of the database
    /// with `work` not run; any error of COMMIT, with the work undone. At top level a deadlock while taking
    /// the lock is tried again: the transaction has done nothing yet.
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
    fn with_object_lock<T, E, F>(&mut self, lock: impl Into<LockRequest>, work: F) -> Result<T, E>
    where
        F: FnOnce(&mut Self) -> Result<T, E>,
        E: From<Error>,
    {
        run_or_held(self, &Request::new(lock.into())?, work)
    }

    /// [`with_object_lock`](Self::with_object_lock) without waiting: `None`, and `work` not run, when
    /// another transaction holds the lock. Answers within 50 ms, without an error in an outer
    /// transaction.
    ///
    /// On PostgreSQL a transient lock that is held is noticed after 10 ms (an INSERT can't be told not
    /// to wait); a kept one at once. On SQLite any other writer counts as a holder. The request's own
    /// [`Wait`](crate::Wait) is ignored.
    ///
    /// # Errors
    ///
    /// As [`with_object_lock`](Self::with_object_lock), but for [`Error::Unavailable`] and
    /// [`Error::LockTimeout`].
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
        lock: impl Into<LockRequest>,
        work: F,
    ) -> Result<Option<T>, E>
    where
        F: FnOnce(&mut Self) -> Result<T, E>,
        E: From<Error>,
    {
        let request = Request::new(lock.into())?.nowait();
        run::run(self, &request, work)
    }

    /// [`with_object_lock`](Self::with_object_lock) for several objects: all of them or none.
    ///
    /// They are taken in the order of their bytes, whatever the order given, and duplicates count once,
    /// so that callers of this method never deadlock with each other. [`Wait`](crate::Wait) is for all
    /// of them together. Without any id it is a plain transaction.
    ///
    /// There may be any number of them with [`Retention::Transient`](crate::Retention::Transient), and 1,000 with
    /// [`Retention::Kept`](crate::Retention::Kept).
    ///
    /// Round trips: PostgreSQL none for any number of them; MySQL and MariaDB none for up to 100 transient locks that
    /// are free, three for each 100 of more, and as many times as for one otherwise.
    ///
    /// # Errors
    ///
    /// As [`with_object_lock`](Self::with_object_lock); those about a lock name the first ten ids.
    /// [`Error::TooManyIds`] for more than 1,000 kept objects. In an open
    /// transaction on MySQL and MariaDB, locks taken before the one that was not had may stay held until
    /// that ends.
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
    fn with_object_locks<T, E, F>(&mut self, locks: impl IntoLockRequests, work: F) -> Result<T, E>
    where
        F: FnOnce(&mut Self) -> Result<T, E>,
        E: From<Error>,
    {
        run_or_held(self, &Request::new(locks.into_lock_request())?, work)
    }

    /// [`with_object_locks`](Self::with_object_locks) without waiting: `None`, and `work` not run, when
    /// another transaction holds one of them. With thousands of objects it takes longer than 50 ms.
    ///
    /// # Errors
    ///
    /// As [`try_with_object_lock`](Self::try_with_object_lock).
    fn try_with_object_locks<T, E, F>(
        &mut self,
        locks: impl IntoLockRequests,
        work: F,
    ) -> Result<Option<T>, E>
    where
        F: FnOnce(&mut Self) -> Result<T, E>,
        E: From<Error>,
    {
        let request = Request::new(locks.into_lock_request())?.nowait();
        run::run(self, &request, work)
    }

    /// Takes the lock in the transaction that is open, and holds it until that ends.
    ///
    /// It waits as the request says. Rolling back to a savepoint older than the lock frees it on
    /// PostgreSQL; on SQLite it does not, on MySQL and MariaDB it may.
    ///
    /// Best called before the transaction reads anything: on SQLite a deferred transaction that has read
    /// can't lock while another connection writes or after it has written; start it with
    /// `immediate_transaction`. On MySQL and MariaDB the session must be at READ COMMITTED, or the
    /// transaction one of [`with_object_lock`](Self::with_object_lock)'s: a level that `SET TRANSACTION`
    /// gave to a single transaction can't be seen, so that such a transaction is refused at the default
    /// level of the session, and one set to REPEATABLE READ in a session at READ COMMITTED is not
    /// noticed.
    ///
    /// After [`Error::LockTimeout`] or [`Error::Unavailable`] the transaction goes on as before on every engine
    /// (on PostgreSQL by a savepoint around the wait). After an error of another kind, and with
    /// [`Wait::Forever`](crate::Wait::Forever) after any, PostgreSQL lets only a rollback follow. With
    /// `innodb_rollback_on_timeout` set, InnoDB may roll back the transaction.
    ///
    /// One round trip on PostgreSQL (two with [`Wait::AtMost`](crate::Wait::AtMost)), and on MySQL and
    /// MariaDB for a kept lock whose row is there.
    ///
    /// # Errors
    ///
    /// [`Error::NotInTransaction`] outside a transaction; [`Error::Deadlock`] when the server chose this
    /// transaction as the victim; the others as for [`with_object_lock`](Self::with_object_lock).
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
    fn lock_object(&mut self, lock: impl Into<LockRequest>) -> Result<(), Error> {
        let request = Request::new(lock.into())?;
        match run::lock(self, "lock_object", &request)? {
            LockOutcome::Acquired => Ok(()),
            LockOutcome::Unavailable => Err(held(&request)),
        }
    }

    /// [`lock_object`](Self::lock_object) without waiting: `false` when another transaction holds the
    /// lock. Answers within 50 ms, and leaves the transaction as it was.
    ///
    /// # Errors
    ///
    /// As [`lock_object`](Self::lock_object), but for [`Error::Unavailable`] and [`Error::LockTimeout`].
    fn try_lock_object(&mut self, lock: impl Into<LockRequest>) -> Result<bool, Error> {
        let request = Request::new(lock.into())?.nowait();
        Ok(run::lock(self, "try_lock_object", &request)? == LockOutcome::Acquired)
    }

    /// Removes kept rows that nobody holds, and says how many.
    ///
    /// Others may lock meanwhile: a row that is held is left alone, one that is being removed delays
    /// them for the length of a short transaction (at most 500 rows each; 100 on PostgreSQL). On SQLite, where every
    /// transaction that writes holds the whole database, it waits for its turn.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyInTransaction`] inside an open transaction, whose end the removed rows would have to
    /// wait for; errors of the database.
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
                reason: "the removed rows would stay locked until it ends",
            });
        }
        Self::purge_unlocked(self)
    }
}

impl<C: ObjectLockBackend> ObjectLockExt for C {}

fn run_or_held<C, T, E, F>(conn: &mut C, request: &Request, work: F) -> Result<T, E>
where
    C: ObjectLockBackend,
    F: FnOnce(&mut C) -> Result<T, E>,
    E: From<Error>,
{
    run::run(conn, request, work)?.ok_or_else(|| held(request).into())
}

fn held(request: &Request) -> Error {
    Error::Unavailable {
        resource: request.resource(),
    }
}
