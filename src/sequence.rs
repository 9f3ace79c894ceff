//! Sequences: the methods on connections.

#[cfg(feature = "_async")]
pub(crate) mod async_ext;
pub(crate) mod backend;
pub(crate) mod definition;

use std::ops::RangeInclusive;

use crate::engine::{HasBlockingEngine, HasEngine};
use crate::sequence::backend::{DrawRequest, SequenceBackend};
use crate::transaction::backend::TransactionBackend;
use crate::{Error, Sequence, transaction::depth};

/// Methods for gap-free sequences of numbers.
///
/// A number belongs to the transaction that drew it. If the transaction rolls back, the next draw returns the same
/// number: committed numbers have no gaps and no duplicates. A draw therefore blocks until the transaction of the
/// previous draw ends. Draw late, next to the statement that uses the number, and do nothing slow after it. Draws from
/// different sequences do not block each other (except on SQLite, which has one writer at a time).
///
/// Where gaps are acceptable, use a sequence of the database (`CREATE SEQUENCE`, `AUTO_INCREMENT`): its draws do not
/// block, and the numbers of a rolled back transaction are lost. Gap-free numbers are for records that are audited:
/// invoices, passes, pages of a ledger.
///
/// Draw in a transaction of [`run_transaction`](crate::TransactionExt::run_transaction), at READ COMMITTED on PostgreSQL. It
/// can retry: two transactions that draw from two sequences in opposite orders deadlock. On SQLite it waits for other
/// writers at its start, where Diesel's `transaction` fails with "database is locked" if it has read.
///
/// | | PostgreSQL | MySQL, MariaDB | SQLite |
/// |---|---|---|---|
/// | a draw waits for | the transaction of the previous draw | the transaction of the previous draw; the first draw of a process from a sequence also up to 5 s while another session waits for a new sequence | any other writer |
/// | until | `lock_timeout`, which is off by default: send `SET LOCAL lock_timeout = '2s'` in the transaction | `innodb_lock_wait_timeout`, 50 s by default | `busy_timeout`, which is 0 in Diesel: fails at once |
/// | then returns | [`Error::StatementTimeout`]; only ROLLBACK is accepted | [`Error::StatementTimeout`]; the transaction is usable, unless the server has `innodb_rollback_on_timeout` | [`Error::StatementTimeout`]; the transaction is usable |
/// | above READ COMMITTED | [`Error::SerializationFailure`] if another transaction has drawn since the snapshot | as at READ COMMITTED | the only level is SERIALIZABLE; a transaction that has read gets [`Error::StatementTimeout`] if another has written since |
/// | rolled back to a savepoint | the number is free; the lock too | the number is free; the lock stays until the transaction ends | the number is free |
///
/// There is no method to reset a sequence, because its numbers would repeat. An operator can change or delete its row in the
/// table `diesel_locks_sequences`.
#[diagnostic::on_unimplemented(
    message = "`diesel-locks` has no engine for `{Self}`",
    label = "not `PgConnection`, `MysqlConnection` or `SqliteConnection`, or the engine's feature is off",
    note = "pass `&mut *conn` for a pooled connection (`PooledConnection`, `Box`, `&mut &mut`)",
    note = "implement `diesel_locks::ConnectionWrapper` for an enum of connections or a struct around one",
    note = "enable the engine's feature of `diesel-locks`: `postgres` for `PgConnection`, `mysql` for `MysqlConnection`, \
            `sqlite` for `SqliteConnection`"
)]
#[doc(alias(
    "counter",
    "auto increment",
    "AUTO_INCREMENT",
    "invoice number",
    "gapless"
))]
#[doc(alias("numbering"))]
pub trait SequenceExt: HasBlockingEngine {
    /// Draws the next number.
    ///
    /// Blocks while another transaction that drew from this sequence is open, by default without limit on PostgreSQL. The
    /// number belongs to this transaction: it is used when the transaction commits, and free again when the transaction rolls
    /// back, the connection ends or the process crashes.
    ///
    /// `LAST_INSERT_ID()` and `last_insert_rowid()` keep the value of the application's last INSERT. After a failed draw on
    /// MariaDB the connection's cached statements are prepared again, as with
    /// [`run_transaction`](crate::TransactionExt::run_transaction).
    ///
    /// # Errors
    ///
    /// - [`Error::NotInTransaction`] outside of a transaction, where a drawn number could be lost.
    /// - [`Error::InvalidName`], [`Error::InvalidStart`]: nothing was sent.
    /// - [`Error::SequenceExhausted`] after `i64::MAX`; the transaction remains usable.
    /// - [`Error::StatementTimeout`] if the session's limit ended the wait; [`Error::Deadlock`];
    ///   [`Error::SerializationFailure`] on PostgreSQL above READ COMMITTED.
    /// - [`Error::SeveralWriters`]; the [common errors](crate::Error#common-errors).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use diesel::prelude::*;
    /// use diesel_locks::prelude::*;
    /// use diesel_locks::{IsolationLevel, RetryPolicy};
    /// # let mut conn = SqliteConnection::establish(":memory:")?;
    /// # diesel_locks::migrate(&mut conn)?;
    ///
    /// let passes = Sequence::new("pass").for_key(4711);
    /// // On PostgreSQL, MySQL and MariaDB add `.isolation(IsolationLevel::ReadCommitted)`.
    /// let retried = TransactionOptions::new().retry(RetryPolicy::max_attempts(5));
    /// let number = conn.run_transaction(retried, |conn| {
    ///     let number = conn.next_number(&passes)?;
    ///     // .. insert the pass
    ///     QueryResult::Ok(number)
    /// })?;
    /// assert_eq!(number, 1);
    ///
    /// let given_up: QueryResult<()> = conn.run_transaction(retried, |conn| {
    ///     assert_eq!(conn.next_number(&passes)?, 2);
    ///     Err(diesel::result::Error::RollbackTransaction)
    /// });
    /// assert!(given_up.is_err());
    /// assert_eq!(conn.last_number(&passes)?, Some(1));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("nextval", "counter", "increment", "auto increment", "AUTO_INCREMENT"))]
    #[doc(alias("invoice number", "gapless"))]
    fn next_number(&mut self, sequence: &Sequence) -> Result<i64, Error> {
        Self::block_on(draw(self, "next_number", sequence, 1))
    }

    /// Draws `count` consecutive numbers in one statement. Returns the range.
    ///
    /// Blocks as [`next_number`](Self::next_number).
    ///
    /// # Errors
    ///
    /// As [`next_number`](Self::next_number), and [`Error::InvalidCount`] for a count of 0. If fewer numbers are left, none is
    /// drawn.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use diesel::prelude::*;
    /// use diesel_locks::prelude::*;
    /// use diesel_locks::RetryPolicy;
    /// # let mut conn = SqliteConnection::establish(":memory:")?;
    /// # diesel_locks::migrate(&mut conn)?;
    ///
    /// let invoices = Sequence::new("invoice").start_with(1000);
    /// let retried = TransactionOptions::new().retry(RetryPolicy::max_attempts(5));
    /// let numbers = conn.run_transaction(retried, |conn| conn.next_numbers(&invoices, 100))?;
    /// assert_eq!(numbers, 1000..=1099);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("batch", "reserve", "allocate"))]
    fn next_numbers(
        &mut self,
        sequence: &Sequence,
        count: u32,
    ) -> Result<RangeInclusive<i64>, Error> {
        Self::block_on(draw_range(self, sequence, count))
    }

    /// Returns the last number drawn, by committed transactions or the open one; `None` before the first draw. Does not lock
    /// or block.
    ///
    /// The result does not predict the next number: other sessions may draw meanwhile, and their uncommitted draws are not
    /// visible. In a transaction with a snapshot the result is as old as the snapshot. On MySQL and MariaDB it may be the number
    /// before the first one, if the answer to the first draw could not be read and the transaction was committed.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], [`Error::InvalidStart`], the [common errors](crate::Error#common-errors).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use diesel::prelude::*;
    /// use diesel_locks::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:")?;
    /// # diesel_locks::migrate(&mut conn)?;
    ///
    /// assert_eq!(conn.last_number(&Sequence::new("invoice"))?, None);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("currval", "lastval", "current_number"))]
    fn last_number(&mut self, sequence: &Sequence) -> Result<Option<i64>, Error> {
        sequence.validate()?;
        Self::block_on(Self::LockEngine::last(self, sequence))
    }
}

#[diagnostic::do_not_recommend]
impl<C: HasBlockingEngine> SequenceExt for C {}

async fn draw_range<C: HasEngine>(
    conn: &mut C,
    sequence: &Sequence,
    count: u32,
) -> Result<RangeInclusive<i64>, Error> {
    if count == 0 {
        return Err(Error::InvalidCount {
            sequence: sequence.to_string(),
            count,
        });
    }
    let last = draw(conn, "next_numbers", sequence, count).await?;
    Ok(last - i64::from(count) + 1..=last)
}

async fn draw<C: HasEngine>(
    conn: &mut C,
    method: &'static str,
    sequence: &Sequence,
    count: u32,
) -> Result<i64, Error> {
    sequence.validate()?;
    if depth::depth(conn)? == 0 {
        return Err(Error::NotInTransaction { method });
    }
    C::LockEngine::assert_open(conn).await?;
    let exhausted = |last| Error::SequenceExhausted {
        sequence: sequence.to_string(),
        count,
        last,
    };
    let first = sequence.start();
    let initial_last = match first.checked_add(i64::from(count) - 1) {
        Some(last) => last,
        // Too many for the first draw. A sequence with a row continues from its number: the inserted value is
        // not used.
        None if C::LockEngine::last(conn, sequence).await?.is_some() => i64::MAX,
        None => return Err(exhausted(first - 1)),
    };
    let draw = DrawRequest {
        sequence,
        count: count.into(),
        initial_last,
        max_last: i64::MAX - i64::from(count),
    };
    if let Some(last) = C::LockEngine::draw(conn, &draw).await? {
        return Ok(last);
    }
    let last = C::LockEngine::last(conn, sequence)
        .await?
        .unwrap_or(first - 1);
    Err(exhausted(last))
}
