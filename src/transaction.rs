//! Transactions: the methods on connections.

pub(crate) mod backend;
pub(crate) mod depth;
mod events;
pub(crate) mod isolation_level;
pub(crate) mod options;
pub(crate) mod retry;
pub(crate) mod retryable;
pub(crate) mod run;

use std::thread::sleep;

use crate::transaction::backend::TransactionBackend;
use crate::transaction::retry::{Attempts, RetryReason};
use crate::transaction::run::TransactionFailure;
use crate::{Error, RetryPolicy, TransactionError, TransactionOptions};

/// Methods for transactions with an isolation level, an access mode and retries.
///
/// Implemented for Diesel's `PgConnection`, `MysqlConnection` and `SqliteConnection` (features `postgres`, `mysql`,
/// `sqlite`). An r2d2 `PooledConnection` has the methods through its connection.
///
/// # The error type of a closure
///
/// A closure may return any error that implements [`TransactionError`]; if `?` follows the call, name the type at the
/// closure: `|conn| -> diesel_locks::Result<_> { .. }` (see [`Result`](crate::Result)).
///
/// # Errors of concurrent transactions, and what to do
///
/// **The upgrade deadlock.** Two transactions read a row with a shared lock, then both update it: each
/// waits for the other's shared lock, even if both use the rows in the same order. It happens where reads lock: on InnoDB at SERIALIZABLE or with `.for_share()` (on MariaDB
/// `LOCK IN SHARE MODE`, which Diesel does not write), on PostgreSQL with `.for_share()`. The database ends
/// one of the two with [`Error::Deadlock`]. Read with the lock that the update needs:
/// `.for_update()`. On SQLite a transaction that has read can't update while another writes or after it has
/// written, and gets [`Error::StatementTimeout`] at once; `run_transaction` takes the write lock at its start.
///
/// **Locks in different orders.** `.for_update()` on two rows, in one transaction A then B, in the other B
/// then A, deadlocks too. Lock in one order everywhere (by id), or acquire object locks on all of them in one call,
/// which sorts them.
///
/// **Serialization failures.** Where reads see a snapshot instead of locking (PostgreSQL from REPEATABLE READ on),
/// no statement waits for a reader. Instead the database aborts a transaction whose result depends on data that it
/// could not see: [`Error::SerializationFailure`], from a statement or
/// from COMMIT. At SERIALIZABLE that can abort transactions that only read. Retry the
/// transaction from its first statement.
///
/// **Silently lost updates.** At READ COMMITTED, and on InnoDB at REPEATABLE READ, a plain read followed by
/// an update of the row that was read causes no error and overwrites an update in between. Read `.for_update()`,
/// let the database compute (`set(n.eq(n + 1))`), or take an object lock.
///
/// **MariaDB's `innodb_snapshot_isolation`,** on by default from 11.6 on, refuses that at REPEATABLE READ and
/// SERIALIZABLE: an update or locking read of a row that has changed since the transaction's snapshot fails
/// with [`Error::SerializationFailure`] (its error 1020), and the transaction is to be retried. At
/// SERIALIZABLE that includes `.for_update()` after a wait for another transaction: give such a transaction a
/// [`RetryPolicy`], or run it at READ COMMITTED, as this crate does for its own statements.
///
/// **Swallowed errors.** Propagate database errors. Some end the transaction: any error on PostgreSQL, a
/// deadlock on MySQL and MariaDB, `INSERT OR ROLLBACK` on SQLite. If the closure returns `Ok` after such an error, the
/// method returns [`Error::TransactionAborted`] and does not retry. It does the same if the closure sends COMMIT or ROLLBACK
/// as text, or a statement before which MySQL commits (`CREATE TABLE`), or leaves transactions of Diesel's open. Object locks,
/// slots and numbers requested after the end are refused with the same error: on MySQL and MariaDB, in a transaction
/// of this crate's, at once after a deadlock of which Diesel knows (not one in `batch_execute`), else at the latest at the closure's end;
/// on SQLite at the closure's end too, when a nested `transaction` of Diesel's was started after the end and has read or
/// written. What a closure writes after the end is rolled back too; on SQLite it is committed, statement by statement,
/// and with each nested `transaction`: an error of the closure's own hides that. A statement that is expected to
/// fail at times (a duplicate) goes into Diesel's `transaction`, which is a savepoint there.
///
/// In short: lock rows that you will update when you read them, in one order; keep transactions short; and give those
/// that the database may abort a [`RetryPolicy`]. A closure that is retried must not do what can't be undone (send a
/// mail): do that after the transaction.
///
/// `cargo run --release -p lessons`, in this crate's repository, shows deadlocks, lost updates and failures step
/// by step with two sessions; `-- --database-url` names the database.
#[diagnostic::on_unimplemented(
    message = "`diesel-locks` has no engine for `{Self}`",
    label = "not `PgConnection`, `MysqlConnection` or `SqliteConnection`, or the engine's feature is off",
    note = "pass `&mut *conn` for a pooled connection (`PooledConnection`, `Box`, `&mut &mut`)",
    note = "enable the engine's feature of `diesel-locks`: `postgres` for `PgConnection`, `mysql` for `MysqlConnection`, \
            `sqlite` for `SqliteConnection`"
)]
pub trait TransactionExt: TransactionBackend {
    /// Runs `f` in a transaction. Commits if `f` returns `Ok`; rolls back if `f` returns an error or panics (the panic
    /// continues).
    ///
    /// With a [`RetryPolicy`] the transaction is retried from its start when the database aborts it: `f` may then run several
    /// times. The last error is returned if no attempt is left. Each retry is a `tracing` event of level WARN with the reason,
    /// the number of the attempt and the pause.
    ///
    /// The isolation level and the access mode apply to this transaction only. They need no round trip of their own and leave
    /// nothing in the session of a pooled connection. Object locks, slots and sequences can be used inside, as the level allows:
    /// an object lock needs READ COMMITTED on PostgreSQL and MySQL.
    ///
    /// On SQLite the transaction is `BEGIN IMMEDIATE`, which waits for other writers (`busy_timeout`), so that no later
    /// statement fails because another connection writes. With [`read_only`](TransactionOptions::read_only) it is `BEGIN`, which
    /// does not wait.
    ///
    /// A panic in a nested `transaction` of Diesel's also rolls back all of `f`. This crate sends COMMIT and ROLLBACK itself,
    /// with a check that the transaction is still the same one: an
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
    /// - [`Error::Unsupported`] for an isolation level or mode that the engine does not have; nothing was sent.
    /// - [`Error::InvalidRetry`] for a policy without an attempt; nothing was sent.
    /// - [`Error::TransactionAborted`] if `f` returned `Ok` although its transaction had ended, and if it returned a retryable
    ///   error although `f` had ended the transaction: its writes may be committed. The second case is not detected after a
    ///   deadlock or a serialization failure on MySQL and MariaDB, which end the transaction, or after an error that aborted
    ///   another transaction on PostgreSQL: these are retried.
    /// - The error of `f`; the error of BEGIN or COMMIT as an [`Error`].
    ///
    /// If the connection is lost during COMMIT, the outcome is unknown. The error ([`Error::OutcomeUnknown`] on MySQL and
    /// MariaDB) is returned and never retried.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use diesel::prelude::*;
    /// use diesel_locks::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:")?;
    /// # diesel_locks::migrate(&mut conn)?;
    ///
    /// let transaction = TransactionOptions::new()
    ///     .isolation(IsolationLevel::Serializable)
    ///     .retry(RetryPolicy::max_attempts(5));
    /// let number = conn.run_transaction(transaction, |conn| {
    ///     conn.next_number(&Sequence::new("invoice"))
    /// })?;
    /// assert_eq!(number, 1);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
    fn run_transaction<T, E, F, Via>(
        &mut self,
        transaction: TransactionOptions,
        mut f: F,
    ) -> Result<T, E>
    where
        F: FnMut(&mut Self) -> Result<T, E>,
        E: TransactionError<Via>,
    {
        run(self, "run_transaction", transaction, |conn, _| f(conn))
    }

    /// Runs `f` in a transaction, as [`run_transaction`](Self::run_transaction), and passes it the number of the attempt, from
    /// 1.
    ///
    /// # Errors
    ///
    /// As [`run_transaction`](Self::run_transaction).
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use diesel::prelude::*;
    /// use diesel_locks::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:")?;
    ///
    /// let retry = TransactionOptions::new().retry(RetryPolicy::max_attempts(5));
    /// let attempts = conn.run_transaction_attempts(retry, |_conn, attempt| {
    ///     diesel::QueryResult::Ok(attempt)
    /// })?;
    /// assert_eq!(attempts, 1);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
    fn run_transaction_attempts<T, E, F, Via>(
        &mut self,
        transaction: TransactionOptions,
        f: F,
    ) -> Result<T, E>
    where
        F: FnMut(&mut Self, u32) -> Result<T, E>,
        E: TransactionError<Via>,
    {
        run(self, "run_transaction_attempts", transaction, f)
    }
}

#[diagnostic::do_not_recommend]
impl<C: TransactionBackend> TransactionExt for C {}

fn run<C, T, E, F, Via>(
    conn: &mut C,
    method: &'static str,
    transaction: TransactionOptions,
    mut work: F,
) -> Result<T, E>
where
    C: TransactionBackend,
    F: FnMut(&mut C, u32) -> Result<T, E>,
    E: TransactionError<Via>,
{
    let retry = transaction.retry.unwrap_or(RetryPolicy::max_attempts(1));
    retry.validate()?;
    C::validate(&transaction)?;
    if depth::depth(conn)? > 0 {
        return Err(E::from(Error::AlreadyInTransaction {
            method,
            reason: "its isolation level is set, and its earlier statements can't be retried; \
                  Diesel's transaction opens a savepoint",
        }));
    }
    let mut attempts = Attempts::new(retry);
    loop {
        let number = attempts.number();
        let failed = match run::run_once(conn, &transaction, |conn| work(conn, number)) {
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
            && !C::may_end_transactions(conn, reason)
        {
            return Err(run::closed_before_failure(reason).into());
        }
        let pause = reason
            .filter(|_| usable)
            .and_then(|reason| Some((reason, attempts.pause_after(reason)?)));
        let Some((reason, pause)) = pause else {
            return Err(failed.into_error());
        };
        C::prepare_retry(conn);
        events::record_retry(reason, number, pause);
        sleep(pause);
    }
}
