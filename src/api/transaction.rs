//! Transactions: the methods on connections.

use std::future::ready;

#[cfg(feature = "_async")]
use crate::acts::cancel_guard::unless_dropped;
#[cfg(feature = "_async")]
use crate::acts::closures::RepeatedWork;
use crate::acts::retries::run_attempts;
#[cfg(feature = "_async")]
use crate::engine::HasAsyncEngine;
use crate::engine::HasBlockingEngine;
use crate::{TransactionError, TransactionRequest};

/// Runs transactions with an isolation level, an access mode and retries.
///
/// ```
/// use diesel::prelude::*;
/// use diesel_locks::prelude::*;
/// use diesel_locks::{IsolationLevel, RetryPolicy};
/// # let mut conn = SqliteConnection::establish(":memory:")?;
/// # diesel_locks::migrate(&mut conn)?;
///
/// diesel::table! { accounts (id) { id -> Integer, money -> Integer } }
///
/// # diesel::sql_query("CREATE TABLE accounts (id INTEGER PRIMARY KEY, money INTEGER NOT NULL)").execute(&mut conn)?;
/// # diesel::sql_query("INSERT INTO accounts VALUES (1, 100), (2, 100)").execute(&mut conn)?;
/// const TRANSFER: TransactionOptions = TransactionOptions::new()
///     .isolation(IsolationLevel::Serializable)
///     .retry(RetryPolicy::max_attempts(5));
///
/// conn.run_transaction(TRANSFER, |conn| -> QueryResult<()> {
///     for (id, change) in [(1, -30), (2, 30)] {
///         let money = accounts::money.eq(accounts::money + change);
///         diesel::update(accounts::table.find(id)).set(money).execute(conn)?;
///     }
///     Ok(())
/// })?;
/// # let money: Vec<i32> = accounts::table.select(accounts::money).load(&mut conn)?;
/// # assert_eq!(money, [70, 130]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// | | Diesel's `transaction` | [`run_transaction`](Self::run_transaction) |
/// |---|---|---|
/// | isolation level, read-only | the session's | [`TransactionOptions`](crate::TransactionOptions), for this transaction only |
/// | after a deadlock, a serialization failure or SQLite's "database is locked" | returns the error | retries, with a [`RetryPolicy`](crate::RetryPolicy) |
/// | the closure ignores an error with which the server ended the transaction | may return `Ok` | returns [`Error::TransactionAborted`](crate::Error::TransactionAborted) |
/// | SQLite | BEGIN: a later write may fail while another connection writes | `BEGIN IMMEDIATE`: waits at the start, up to `busy_timeout` (0 in Diesel) |
/// | in an open transaction | opens a savepoint | returns [`Error::AlreadyInTransaction`](crate::Error::AlreadyInTransaction) |
///
/// # How to write the closure
///
/// - It may return any error that implements [`TransactionError`]. If `?` follows the call, name the type at the closure:
///   `|conn| -> diesel_locks::Result<_> { .. }` (see [`Result`](crate::Result)).
/// - Return every error of the database, with `?`. A statement that may fail, such as an INSERT of a duplicate, goes into Diesel's
///   `transaction`, which is a savepoint there.
/// - Do nothing that can't be undone, such as sending a mail: the closure may run again.
/// - Read rows that you will update with `.for_update()`, in one order everywhere: see [Errors of concurrent transactions].
/// - Keep it short, and do not send COMMIT, ROLLBACK, or on MySQL and MariaDB `CREATE TABLE`.
///
/// [Errors of concurrent transactions]: https://github.com/diesel-locks/diesel-locks/blob/main/docs/guide.md#errors-of-concurrent-transactions
#[diagnostic::on_unimplemented(
    message = "`diesel-locks` has no engine for `{Self}`",
    label = "not `PgConnection`, `MysqlConnection` or `SqliteConnection`, or the engine's feature is off",
    note = "pass `&mut *conn` for a pooled connection (`PooledConnection`, `Box`, `&mut &mut`)",
    note = "implement `diesel_locks::ConnectionWrapper` for an enum of connections or a struct around one",
    note = "enable the engine's feature of `diesel-locks`: `postgres` for `PgConnection`, `mysql` for `MysqlConnection`, \
            `sqlite` for `SqliteConnection`"
)]
#[doc(alias("retry", "isolation", "serializable"))]
pub trait TransactionExt: HasBlockingEngine {
    /// Runs `f` in a transaction. Commits if `f` returns `Ok`; rolls back if it returns an error or panics, also in a nested
    /// `transaction` of Diesel's.
    ///
    /// With a [`RetryPolicy`](crate::RetryPolicy) the transaction is retried from its start when the database aborts it: `f` may
    /// then run several times. The last error is returned if no attempt is left. Each retry is an
    /// [event](crate::operation::events).
    ///
    /// [`LockRequest::retry`](crate::LockRequest::retry) in place of options: each attempt acquires object locks first.
    ///
    /// The isolation level and the access mode need no round trip of their own. Object locks and slots inside need READ COMMITTED
    /// on PostgreSQL, MySQL and MariaDB, and no level on SQLite, which does not have it.
    ///
    /// This crate sends COMMIT and ROLLBACK itself: an [`Instrumentation`](diesel::connection::Instrumentation) sees them as
    /// queries, and not as `CommitTransaction` or `RollbackTransaction`. Before a retry on MySQL and MariaDB Diesel's cache of
    /// prepared statements is emptied, because a statement that failed while it returned rows would hang; its size is the default
    /// afterwards.
    ///
    /// # Errors
    ///
    /// - [`Error::AlreadyInTransaction`](crate::Error::AlreadyInTransaction) in an open transaction: its isolation level is set,
    ///   and its earlier statements can't be retried.
    /// - [`Error::Unsupported`](crate::Error::Unsupported) for an isolation level or mode that the engine does not have; nothing
    ///   was sent. SQLite has SERIALIZABLE only: leave the level out there.
    /// - [`Error::TransactionAborted`](crate::Error::TransactionAborted) if `f` returned `Ok` although its transaction had ended,
    ///   or if `f` ended it (by COMMIT as text, for example) and then returned a retryable error. [Guarantees] says what is
    ///   committed then. The second is not detected, and the transaction is retried, on MySQL and MariaDB if the error is a deadlock
    ///   or a serialization failure, and on PostgreSQL if it aborted another transaction that `f` had begun.
    /// - The error of `f`; the writes are rolled back.
    /// - The error of BEGIN or COMMIT as an [`Error`](crate::Error): [`OutcomeUnknown`](crate::Error::OutcomeUnknown) if the
    ///   connection was lost during COMMIT, which is never retried. After another error of which
    ///   [`is_connection_lost`](crate::Error::is_connection_lost) is true nothing is committed: run the transaction again on
    ///   another connection. `LockPool::run_transaction` does so with a
    ///   [`RetryPolicy`](crate::RetryPolicy).
    ///
    /// [Guarantees]: https://github.com/diesel-locks/diesel-locks/blob/main/docs/guarantees.md#transactions
    #[doc(alias("retry", "build_transaction", "deadlock", "serializable"))]
    #[doc(alias("transaction_with"))]
    fn run_transaction<T, E, F, Via>(
        &mut self,
        transaction: impl Into<TransactionRequest>,
        mut f: F,
    ) -> Result<T, E>
    where
        F: FnMut(&mut Self) -> Result<T, E>,
        E: TransactionError<Via>,
    {
        let work = |conn: &mut Self| ready(f(conn));
        Self::block_on(run_attempts(self, transaction.into(), work))
    }
}

#[diagnostic::do_not_recommend]
impl<C: HasBlockingEngine> TransactionExt for C {}

/// The method of [`TransactionExt`] on connections of diesel-async, with `async` [closures](crate::closures):
/// [example](crate::AsyncObjectLockExt).
#[cfg(feature = "_async")]
#[diagnostic::on_unimplemented(
    message = "`diesel-locks` has no asynchronous engine for `{Self}`",
    label = "not `AsyncPgConnection`, `AsyncMysqlConnection` or `SyncConnectionWrapper<SqliteConnection>`, or the engine's \
             feature is off",
    note = "pass `&mut *conn` for a pooled connection",
    note = "enable the engine's feature of `diesel-locks`: `async-postgres`, `async-mysql` or `async-sqlite`"
)]
#[doc(alias("retry", "deadlock", "serializable", "tokio"))]
pub trait AsyncTransactionExt: HasAsyncEngine {
    /// Runs `f` in a transaction, as [`TransactionExt::run_transaction`], without blocking the thread.
    ///
    /// # Errors
    ///
    /// Those of [`TransactionExt::run_transaction`].
    fn run_transaction<T, E, F, Via>(
        &mut self,
        transaction: impl Into<TransactionRequest>,
        f: F,
    ) -> impl Future<Output = Result<T, E>> + Send
    where
        for<'r> F: RepeatedWork<&'r mut Self, Result<T, E>, Future: Send> + Send,
        T: Send,
        E: TransactionError<Via> + Send,
    {
        let transaction = transaction.into();
        Self::droppable(
            async move { unless_dropped!(self, |conn| run_attempts(conn, transaction, f)) },
        )
    }
}

#[cfg(feature = "_async")]
#[diagnostic::do_not_recommend]
impl<C: HasAsyncEngine> AsyncTransactionExt for C {}
