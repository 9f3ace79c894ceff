//! The methods on connections for transactions.

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

/// Transactions with an isolation level, an access mode and retries, as methods on Diesel's connections.
///
/// Bring it in with `use diesel_locks::prelude::*`. It is implemented for `PgConnection`,
/// `MysqlConnection` and `SqliteConnection`, and for no type of your own.
///
/// # Which errors to expect of the database, and what to do
///
/// **The upgrade deadlock.** Two transactions read a row with a shared lock, then both update it: each
/// waits for the other's shared lock, for ever, and it does not help that both touch things in the same
/// order. It happens where reads lock: on InnoDB at SERIALIZABLE or with `.for_share()` (on MariaDB
/// `LOCK IN SHARE MODE`, which Diesel does not write), on PostgreSQL with `.for_share()`. The database ends
/// one of the two with [`Error::Deadlock`]. The remedy is to read with the lock that will be needed:
/// `.for_update()`. On SQLite a transaction that began by reading can't update while another writes or has
/// written since, and gets [`Error::StatementTimeout`] at once; `run_transaction` begins with the right
/// to write.
///
/// **Locks in different orders.** `.for_update()` on two rows, in one transaction A then B, in the other B
/// then A, deadlocks all the same. Lock in one order everywhere (by id), or take an object lock on all of
/// them, which sorts them.
///
/// **Failures at COMMIT and before.** Where reads do not lock but see a snapshot (PostgreSQL from
/// REPEATABLE READ on), nothing waits for a reader; instead the database ends a transaction whose
/// outcome would depend on what it could not see: [`Error::SerializationFailure`], from a statement or
/// from COMMIT. At SERIALIZABLE that can hit transactions that only read. Nothing is wrong with such a
/// transaction: it is to be tried again, from its first statement.
///
/// **Silently lost updates.** At READ COMMITTED, and on InnoDB at REPEATABLE READ, a plain read followed by
/// an update of what was read fails nowhere and loses the update that came between. Read `.for_update()`,
/// let the database compute (`set(n.eq(n + 1))`), or take an object lock.
///
/// **MariaDB's `innodb_snapshot_isolation`,** on by default from 11.6 on, refuses that at REPEATABLE READ and
/// SERIALIZABLE: an update or locking read of a row that has changed since the transaction's snapshot fails
/// with [`Error::SerializationFailure`] (its error 1020), and the transaction is to be tried again. At
/// SERIALIZABLE that hits `.for_update()` too when it has waited for another: give such a transaction a
/// [`RetryPolicy`], or run it at READ COMMITTED, as this crate's own statements are.
///
/// **Swallowed errors.** Hand the database's errors on. Some end the transaction: any error on PostgreSQL, a
/// deadlock on MySQL and MariaDB, `INSERT OR ROLLBACK` on SQLite. A closure that returns `Ok` all the same gets
/// [`Error::TransactionAborted`], and is not tried again. So does one that has sent COMMIT or ROLLBACK as text, or a
/// statement before which MySQL commits (`CREATE TABLE`), or leaves transactions of Diesel's open. Object locks,
/// slots and numbers asked for after the end are refused with the same error: on MySQL and MariaDB, in a transaction
/// of this crate's, at once after a deadlock of which Diesel knows (not one in `batch_execute`), else at the latest at the closure's end;
/// on SQLite at the closure's end too, when a nested `transaction` of Diesel's was begun after the end and has read or
/// written. What a closure writes after the end is rolled back too; on SQLite it is committed, statement by statement,
/// and with each nested `transaction`: an error of the closure's own hides that. A statement that is expected to
/// fail at times (a duplicate) goes into Diesel's `transaction`, which is a savepoint there.
///
/// So: lock what you will change when you read it, in one order; keep transactions short; and give those
/// that can be victims a [`RetryPolicy`]. A closure that is tried again must not do what can't be undone
/// (send a mail): do that after the transaction.
///
/// `cargo run --release -p lessons`, in this crate's repository, plays deadlocks, losses and failures step
/// by step with two sessions; `-- --database-url` names the database.
pub trait TransactionExt: TransactionBackend {
    /// Runs `work` in a transaction, commits when it returns `Ok`, and rolls back when it returns an
    /// error or panics (the panic goes on).
    ///
    /// With [`RetryPolicy`] it begins again, from the start, when the database gave the transaction up; `work`
    /// may then run several times. The last error is returned when there is no next attempt. Each retry is
    /// a `tracing` event of level WARN with the reason, the attempt's number and the pause.
    ///
    /// A panic in a nested `transaction` of Diesel's rolls back all of `work` too. COMMIT is sent by this crate, with what
    /// finds out whether the transaction is still the same, and so is ROLLBACK: an
    /// [`Instrumentation`](diesel::connection::Instrumentation) sees queries with them, and neither `CommitTransaction`
    /// nor `RollbackTransaction`.
    ///
    /// Before another attempt on MySQL and MariaDB the connection's cached statements are prepared anew, as one
    /// that failed in place of its rows would hang; a size that was set for Diesel's cache of prepared
    /// statements is its default again then.
    ///
    /// The level and the access mode are those of this transaction only; nothing is left in the session,
    /// which on MySQL and MariaDB means that a pooled connection is not changed. They take no round trip
    /// of their own. Object locks, slots and sequences work inside, as the level allows: an object lock
    /// asks for READ COMMITTED on PostgreSQL and MySQL.
    ///
    /// On SQLite it is `BEGIN IMMEDIATE`, which waits for whoever writes (`busy_timeout`), so that no
    /// later statement can find that it is too late to write; with
    /// [`read_only`](TransactionOptions::read_only) it is `BEGIN`, which waits for nobody.
    ///
    /// # Errors
    ///
    /// - [`Error::AlreadyInTransaction`] inside an open transaction: its isolation level is set, and what it has
    ///   done before can't be tried again from here. Diesel's `transaction` makes a savepoint.
    /// - [`Error::Unsupported`] for a level or mode that the engine does not have; nothing was sent.
    /// - [`Error::InvalidRetry`] for no attempt; nothing was sent.
    /// - [`Error::TransactionAborted`] when `work` returned `Ok` although its transaction had ended before; and
    ///   when it would be tried again, although `work` had ended the transaction: what it did may be committed. After
    ///   a deadlock or a serialization failure on MySQL and MariaDB, which end the transaction, and after an error that
    ///   aborted another transaction on PostgreSQL, that can't be told: it is tried again.
    /// - What `work` returned; what BEGIN or COMMIT failed with, as an [`Error`].
    ///
    /// When the connection is lost during COMMIT, nobody knows whether the transaction is committed: the
    /// error (on MySQL and MariaDB [`Error::OutcomeUnknown`]) is returned, and not tried again.
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
        mut work: F,
    ) -> Result<T, E>
    where
        F: FnMut(&mut Self) -> Result<T, E>,
        E: TransactionError<Via>,
    {
        run(self, "run_transaction", transaction, |conn, _| work(conn))
    }

    /// The same, with the number of the attempt, from 1 on, for the closure.
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
        work: F,
    ) -> Result<T, E>
    where
        F: FnMut(&mut Self, u32) -> Result<T, E>,
        E: TransactionError<Via>,
    {
        run(self, "run_transaction_attempts", transaction, work)
    }
}

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
            reason: "its isolation level is set, and what it has done can't be tried again from here; \
                  Diesel's transaction makes a savepoint",
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
        // A connection whose rollback failed can't begin again.
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
