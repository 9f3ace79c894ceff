//! Transactions: the methods on connections.

#[cfg(feature = "_async")]
pub(crate) mod async_ext;
pub(crate) mod backend;
pub(crate) mod depth;
mod events;
pub(crate) mod isolation_level;
pub(crate) mod options;
pub(crate) mod retry;
pub(crate) mod retryable;
pub(crate) mod run;

use std::future::ready;

use crate::engine::{HasBlockingEngine, HasEngine};
use crate::poll::RepeatedWork;
use crate::timer::Timer;
use crate::transaction::backend::TransactionBackend;
use crate::transaction::retry::{Attempts, RetryReason};
use crate::transaction::run::TransactionFailure;
use crate::{Error, RetryPolicy, TransactionError, TransactionOptions};

/// Methods for transactions with an isolation level, an access mode and retries.
///
/// What they do that Diesel's `transaction` does not:
///
/// | | Diesel's `transaction` | [`run_transaction`](Self::run_transaction) |
/// |---|---|---|
/// | isolation level, read-only | the session's | [`TransactionOptions`], for this transaction only |
/// | after a deadlock, a serialization failure or SQLite's "database is locked" | returns the error | retries, with a [`RetryPolicy`] |
/// | the closure ignores an error with which the server ended the transaction | may return `Ok` | returns [`Error::TransactionAborted`] |
/// | SQLite | BEGIN: a later write may fail while another connection writes | `BEGIN IMMEDIATE`: waits at the start, up to `busy_timeout` (0 in Diesel) |
/// | in an open transaction | opens a savepoint | returns [`Error::AlreadyInTransaction`] |
///
/// # The error type of a closure
///
/// A closure may return any error that implements [`TransactionError`]. If `?` follows the call, name the type at the
/// closure: `|conn| -> diesel_locks::Result<_> { .. }` (see [`Result`](crate::Result)).
///
/// # How to write the closure
///
/// - Return every error of the database, with `?`. An `Ok` after an error that has ended the transaction becomes
///   [`Error::TransactionAborted`], and the transaction is rolled back. (On SQLite what the closure wrote after the end is
///   committed.) A statement that may fail, such as an INSERT of a duplicate, goes into Diesel's `transaction`, which is a
///   savepoint there.
/// - Do nothing that can't be undone, such as sending a mail: the closure may run again. Do it after the transaction.
/// - Read rows that you will update with `.for_update()`, in one order everywhere, for example by id.
/// - Keep it short, and do not send COMMIT, ROLLBACK, or on MySQL and MariaDB `CREATE TABLE`.
///
/// [Errors of concurrent transactions] in the guide says which error comes when on which engine, and how to avoid it.
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
    /// Runs `f` in a transaction. Commits if `f` returns `Ok`; rolls back if `f` returns an error or panics (the panic
    /// continues).
    ///
    /// With a [`RetryPolicy`] the transaction is retried from its start when the database aborts it: `f` may then run several
    /// times. Without one there is one attempt. The last error is returned if no attempt is left. Each retry is a `tracing`
    /// event of level WARN with the reason, the number of the attempt and the pause. If `f` needs that number, it counts in a
    /// variable that it captures.
    ///
    /// The isolation level and the access mode apply to this transaction only. They need no round trip of their own and leave
    /// nothing in the session of a pooled connection. Object locks, slots and sequences can be used inside. Object locks and
    /// slots need READ COMMITTED on PostgreSQL, MySQL and MariaDB, and no level on SQLite, which does not have it.
    ///
    /// On SQLite the transaction is `BEGIN IMMEDIATE`, which waits for other writers (`busy_timeout`), so that no later
    /// statement fails because another connection writes. With [`read_only`](TransactionOptions::read_only) it is `BEGIN`, which
    /// does not wait.
    ///
    /// A panic in a nested `transaction` of Diesel's also rolls back all of `f`. This crate sends COMMIT and ROLLBACK itself,
    /// with a check that the transaction is still the one that it has started: an
    /// [`Instrumentation`](diesel::connection::Instrumentation) sees them as queries, and not as `CommitTransaction` or
    /// `RollbackTransaction`.
    ///
    /// Before a retry on MySQL and MariaDB the connection's cached statements are prepared again, because a statement that
    /// failed while it returned rows would hang. This resets the size of Diesel's cache of prepared statements to its default.
    ///
    /// # Errors
    ///
    /// - [`Error::AlreadyInTransaction`] in an open transaction: its isolation level is set, and its earlier statements can't
    ///   be retried. Diesel's `transaction` opens a savepoint.
    /// - [`Error::Unsupported`] for an isolation level or mode that the engine does not have; nothing was sent. SQLite has
    ///   SERIALIZABLE only: leave the level out there.
    /// - [`Error::InvalidRetry`] for a policy without an attempt; nothing was sent.
    /// - [`Error::TransactionAborted`] if `f` returned `Ok` although its transaction had ended.
    /// - [`Error::TransactionAborted`] if `f` ended its transaction itself (by COMMIT as text, for example), and then returned a
    ///   retryable error: its writes may be committed. Not detected, and retried: on MySQL and MariaDB after a deadlock or a
    ///   serialization failure, which end a transaction too; on PostgreSQL if the error aborted another transaction that `f`
    ///   had started.
    /// - The error of `f`; the writes are rolled back.
    /// - The error of BEGIN or COMMIT as an [`Error`]. If the connection is lost during COMMIT, the outcome is unknown: the
    ///   error is [`Error::OutcomeUnknown`] on MySQL and MariaDB, [`Error::Database`] on PostgreSQL, and it is never retried.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
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
    ///         diesel::update(accounts::table.find(id))
    ///             .set(accounts::money.eq(accounts::money + change))
    ///             .execute(conn)?;
    ///     }
    ///     Ok(())
    /// })?;
    /// # let money: Vec<i32> = accounts::table.select(accounts::money).load(&mut conn)?;
    /// # assert_eq!(money, [70, 130]);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias(
        "retry",
        "transaction_with",
        "build_transaction",
        "deadlock",
        "serializable"
    ))]
    fn run_transaction<T, E, F, Via>(
        &mut self,
        transaction: TransactionOptions,
        mut f: F,
    ) -> Result<T, E>
    where
        F: FnMut(&mut Self) -> Result<T, E>,
        E: TransactionError<Via>,
    {
        let work = |conn: &mut Self| ready(f(conn));
        Self::block_on(run_attempts(self, transaction, work))
    }
}

#[diagnostic::do_not_recommend]
impl<C: HasBlockingEngine> TransactionExt for C {}

pub(crate) async fn run_attempts<C, T, E, F, Via>(
    conn: &mut C,
    transaction: TransactionOptions,
    mut work: F,
) -> Result<T, E>
where
    C: HasEngine,
    for<'r> F: RepeatedWork<&'r mut C, Result<T, E>>,
    E: TransactionError<Via>,
{
    let retry = transaction.retry.unwrap_or(RetryPolicy::max_attempts(1));
    retry.validate()?;
    C::LockEngine::validate(conn, &transaction)?;
    if depth::depth(conn)? > 0 {
        return Err(E::from(Error::AlreadyInTransaction {
            method: "run_transaction",
            reason: "its isolation level is set, and its earlier statements can't be retried; \
                  Diesel's transaction opens a savepoint",
        }));
    }
    let mut attempts = Attempts::new(retry);
    loop {
        let number = attempts.number();
        let failed = match run::run_once(conn, &transaction, &mut work).await {
            Ok(value) => return Ok(value),
            Err(failed) => failed,
        };
        let reason = match &failed {
            TransactionFailure::Transaction(error) => RetryReason::from_crate_error(error),
            TransactionFailure::Closure(error) | TransactionFailure::ClosureAfterEnd(error) => {
                error.database_error().and_then(RetryReason::find)
            }
        };
        // A connection whose rollback failed can't retry.
        let usable = depth::depth(conn).is_ok_and(|depth| depth == 0);
        if let TransactionFailure::ClosureAfterEnd(_) = &failed
            && let Some(reason) = reason.filter(|reason| retry.applies_to(*reason))
            && usable
            && !C::LockEngine::may_end_transactions(conn, reason).await
        {
            return Err(run::closed_before_failure(reason).into());
        }
        let pause = reason
            .filter(|_| usable)
            .and_then(|reason| Some((reason, attempts.pause_after(reason)?)));
        let Some((reason, pause)) = pause else {
            return Err(failed.into_error());
        };
        C::LockEngine::prepare_retry(conn);
        events::record_retry(reason, number, pause);
        C::LockTimer::pause(pause).await;
    }
}
