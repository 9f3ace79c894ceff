//! Gap-free sequences: the methods on connections. `pair!` makes both traits.

use std::ops::RangeInclusive;

use crate::acts::cancel_guard::unless_dropped;
use crate::acts::transaction::assert_in_transaction;
use crate::api::pair::pair;
use crate::engine::Engine;
use crate::engine::sequence_queries::DrawRequest;
use crate::{Error, Sequence};

pair! {
    /// Draws numbers without gaps, for records that are audited: invoices, passes, pages of a ledger.
    ///
    /// ```
    /// use diesel::prelude::*;
    /// use diesel_locks::RetryPolicy;
    /// use diesel_locks::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:")?;
    /// # diesel_locks::migrate(&mut conn)?;
    ///
    /// let passes = Sequence::new("pass").for_key(4711);
    /// // On PostgreSQL, MySQL and MariaDB add `.isolation(IsolationLevel::ReadCommitted)`.
    /// let retried = TransactionOptions::new().retry(RetryPolicy::max_attempts(5));
    /// let number = conn.run_transaction(retried, |conn| conn.next_number(&passes))?; // insert the pass there
    /// assert_eq!(number, 1);
    ///
    /// let given_up: QueryResult<()> = conn.run_transaction(retried, |conn| {
    ///     assert_eq!(conn.next_numbers(&passes, 100)?, 2..=101);
    ///     Err(diesel::result::Error::RollbackTransaction)
    /// });
    /// assert!(given_up.is_err());
    /// assert_eq!(conn.last_number(&passes)?, Some(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A number belongs to the transaction that drew it. If the transaction rolls back, its connection ends or its process crashes,
    /// the next draw returns the same number: committed numbers have no gaps and no duplicates. So a draw blocks until the
    /// transaction of the previous draw ends. Draw late, next to the statement that uses the number. Draws from different sequences
    /// do not block each other, except on SQLite, which has one writer at a time. Where gaps do no harm, use a sequence of the
    /// database (`CREATE SEQUENCE`, `AUTO_INCREMENT`).
    ///
    /// Draw in a transaction of [`run_transaction`](crate::TransactionExt::run_transaction), at READ COMMITTED (not on SQLite). It
    /// can retry: two transactions that draw from two sequences in opposite orders deadlock. On SQLite it waits for other
    /// writers at its start, where Diesel's `transaction` fails with "database is locked" if it has read.
    ///
    /// By default a draw waits without limit on PostgreSQL (send `SET LOCAL lock_timeout = '2s'` in the transaction), 50 s on MySQL
    /// and MariaDB. [Blocking](crate::operation::blocking) has all limits, and says when the transaction is usable afterwards.
    /// [Errors by method](crate::Error#errors-by-method).
    ///
    /// | | PostgreSQL | MySQL, MariaDB | SQLite |
    /// |---|---|---|---|
    /// | above READ COMMITTED | [`Error::SerializationFailure`] if another transaction has drawn since the snapshot | as at READ COMMITTED; with `innodb_snapshot_isolation` (MariaDB, on by default in 11.8) as on PostgreSQL | the only level is SERIALIZABLE; a transaction that has read gets [`Error::StatementTimeout`] if another has written since |
    /// | rolled back to a savepoint | the number is free; the lock too | the number is free; the lock stays until the transaction ends | the number is free |
    ///
    /// No method resets a sequence, because its numbers would repeat. An operator can change or delete its row in the table
    /// `diesel_locks_sequences`.
    #[doc(alias("counter", "auto increment", "AUTO_INCREMENT", "invoice number", "gapless", "numbering"))]
    pub trait SequenceExt;

    /// The methods of [`SequenceExt`](crate::SequenceExt) on connections of diesel-async: [example](crate::AsyncObjectLockExt).
    ///
    /// A number whose draw is [dropped](crate::operation::dropped_futures) is not used: its transaction can't be committed.
    #[doc(alias("counter", "invoice number", "gapless", "tokio"))]
    pub trait AsyncSequenceExt;

    engine {
        /// Draws the next number in the open transaction.
        ///
        /// `LAST_INSERT_ID()` and `last_insert_rowid()` keep the value of the application's last INSERT. After a failed draw on
        /// MariaDB the connection's cached statements are prepared again, as before a
        /// [retry](crate::TransactionExt::run_transaction).
        ///
        /// # Errors
        ///
        /// [`Error::NotInTransaction`] outside of a transaction, where a drawn number could be lost. [`Error::SequenceExhausted`]
        /// after `i64::MAX`; the transaction remains usable. [Others](crate::Error#errors-by-method).
        #[doc(alias("nextval", "counter", "increment", "auto increment", "AUTO_INCREMENT", "gapless"))]
        fn next_number(sequence: &Sequence) -> Result<i64, Error> {
            |engine| unless_dropped!(engine, |engine| draw(engine, "next_number", sequence, 1))
        }

        /// Draws `count` consecutive numbers, at least one, by one statement, and returns their range.
        ///
        /// If fewer numbers are left, none is drawn.
        #[doc(alias("batch", "reserve", "allocate"))]
        fn next_numbers(sequence: &Sequence, count: u32) -> Result<RangeInclusive<i64>, Error> {
            |engine| unless_dropped!(engine, |engine| draw_range(engine, sequence, count))
        }

        /// Returns the last number drawn, by committed transactions or the open one; `None` before the first draw. Never blocks.
        ///
        /// Other sessions may draw meanwhile, and their uncommitted draws are not visible. In a transaction with a snapshot it is
        /// as old as the snapshot. On MySQL and MariaDB it may be the number before the first one, if the answer to the first draw
        /// could not be read and the transaction was committed.
        #[doc(alias("currval", "lastval", "current_number"))]
        fn last_number(sequence: &Sequence) -> Result<Option<i64>, Error> {
            |engine| unless_dropped!(engine, |engine| async {
                sequence.validate()?;
                engine.last(sequence).await
            })
        }
    }
}

async fn draw_range(
    engine: &mut dyn Engine,
    sequence: &Sequence,
    count: u32,
) -> Result<RangeInclusive<i64>, Error> {
    if count == 0 {
        return Err(Error::InvalidCount {
            sequence: sequence.to_string(),
            count,
        });
    }
    let last = draw(engine, "next_numbers", sequence, count).await?;
    Ok(last - i64::from(count) + 1..=last)
}

async fn draw(
    engine: &mut dyn Engine,
    method: &'static str,
    sequence: &Sequence,
    count: u32,
) -> Result<i64, Error> {
    sequence.validate()?;
    assert_in_transaction(engine, method).await?;
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
        None if engine.last(sequence).await?.is_some() => i64::MAX,
        None => return Err(exhausted(first - 1)),
    };
    let draw = DrawRequest {
        sequence,
        count: count.into(),
        initial_last,
        max_last: i64::MAX - i64::from(count),
    };
    if let Some(last) = engine.draw(&draw).await? {
        return Ok(last);
    }
    let last = engine.last(sequence).await?.unwrap_or(first - 1);
    Err(exhausted(last))
}
