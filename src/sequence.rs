//! The methods on connections for sequences.

pub(crate) mod backend;
pub(crate) mod definition;

use std::ops::RangeInclusive;

use crate::sequence::backend::{DrawRequest, SequenceBackend};
use crate::{Error, Sequence, transaction::depth};

/// Gap-free numbers, as methods on Diesel's connections.
///
/// Bring it in with `use diesel_locks::prelude::*`. It is implemented for `PgConnection`,
/// `MysqlConnection` and `SqliteConnection`, and for no type of your own.
///
/// A number belongs to the transaction that drew it. When that rolls back, for whatever reason, the next
/// one gets the number; so in the end there are neither gaps nor repeats. The price: draws from one
/// sequence queue until the transaction that drew commits. Draw late, next to the statement that uses the
/// number, and do nothing slow after it. Different sequences do not wait for each other (on SQLite, which
/// has one writer at a time, everything that writes does).
///
/// Take a sequence of the database (`CREATE SEQUENCE`, `AUTO_INCREMENT`) where gaps do no harm: its draws
/// wait for nobody, and what a rolled back transaction drew is lost. Gap-free numbers are for what
/// somebody counts afterwards: invoices, passes, pages of a ledger.
///
/// Two transactions that draw from two sequences in opposite orders wait for each other, and the database
/// breaks the deadlock: draw in the same order everywhere, or let
/// [`run_transaction`](crate::TransactionExt::run_transaction) try again.
///
/// | | PostgreSQL | MySQL, MariaDB | SQLite |
/// |---|---|---|---|
/// | a draw takes | one round trip | MariaDB one, MySQL two, and three more in a transaction of Diesel's; two more for the first draw from a sequence in a process | one statement |
/// | a draw waits | for the transaction that drew before; `lock_timeout` ends it | the same; `innodb_lock_wait_timeout` (50 s) | for whoever writes; `busy_timeout` |
/// | above READ COMMITTED | [`Error::SerializationFailure`] when another has drawn since the snapshot | as at READ COMMITTED | there is SERIALIZABLE only; a transaction that has read before gets [`Error::StatementTimeout`] when another has written since |
/// | rolled back to a savepoint | the number is free; the lock too | the number is free; the lock stays until the transaction ends | the number is free |
///
/// The idea, and the test that numbers are not lost, come from a system for passes of meetings that Jesper
/// Udby wrote about: database sequences left gaps, and making one for each meeting was slow and
/// deadlocked.
pub trait SequenceExt: SequenceBackend {
    /// Draws the next number.
    ///
    /// Waits while another transaction that drew from this sequence is open. The number is this
    /// transaction's: used with its commit, free again with its rollback, the end of the connection or a
    /// crash.
    ///
    /// `LAST_INSERT_ID()` and `last_insert_rowid()` stay those of the application's last INSERT.
    ///
    /// After a draw that failed on MariaDB the connection's cached statements are prepared anew, as with
    /// [`run_transaction`](crate::TransactionExt::run_transaction).
    ///
    /// # Errors
    ///
    /// [`Error::NotInTransaction`] outside of a transaction, where a number that was drawn could be lost;
    /// [`Error::InvalidName`], [`Error::InvalidStart`]; [`Error::SequenceExhausted`] after
    /// `i64::MAX`, which leaves the transaction usable; [`Error::Deadlock`],
    /// [`Error::SerializationFailure`], [`Error::StatementTimeout`] when the session's limit ended the wait;
    /// [`Error::ReadOnly`]; [`Error::MissingTables`], [`Error::InsufficientPrivilege`], [`Error::PreparedStatementMismatch`]; other
    /// errors of the database.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use diesel::prelude::*;
    /// use diesel_locks::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:")?;
    /// # diesel_locks::migrate(&mut conn)?;
    ///
    /// let passes = Sequence::new("pass").for_key(4711);
    /// let number = conn.transaction(|conn| {
    ///     let number = conn.next_number(&passes)?;
    ///     // .. insert the pass
    ///     diesel::QueryResult::Ok(number)
    /// })?;
    /// assert_eq!(number, 1);
    ///
    /// let given_up: Result<(), _> = conn.transaction(|conn| {
    ///     assert_eq!(conn.next_number(&passes)?, 2);
    ///     Err(diesel::result::Error::RollbackTransaction)
    /// });
    /// assert!(given_up.is_err());
    /// assert_eq!(conn.last_number(&passes)?, Some(1));
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
    fn next_number(&mut self, sequence: &Sequence) -> Result<i64, Error> {
        draw(self, "next_number", sequence, 1)
    }

    /// Draws several numbers in a row, in one statement: [`next_number`](Self::next_number) `count` times.
    ///
    /// # Errors
    ///
    /// As [`next_number`](Self::next_number), and [`Error::InvalidCount`] for none. When there are not
    /// that many left, none is drawn.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use diesel::prelude::*;
    /// use diesel_locks::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:")?;
    /// # diesel_locks::migrate(&mut conn)?;
    ///
    /// let invoices = Sequence::new("invoice").start_with(1000);
    /// let numbers = conn.transaction(|conn| conn.next_numbers(&invoices, 100))?;
    /// assert_eq!(numbers, 1000..=1099);
    /// # Ok::<_, diesel_locks::Error>(())?;
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
    fn next_numbers(
        &mut self,
        sequence: &Sequence,
        count: u32,
    ) -> Result<RangeInclusive<i64>, Error> {
        if count == 0 {
            return Err(Error::InvalidCount {
                sequence: sequence.to_string(),
                count,
            });
        }
        let last = draw(self, "next_numbers", sequence, count)?;
        Ok(last - i64::from(count) + 1..=last)
    }

    /// The number drawn last, without locking and without waiting: of the draws that are committed, and of
    /// those of the transaction that is open. `None` before the first.
    ///
    /// It says nothing about the next number: others may draw meanwhile, and a draw that is not committed
    /// yet is not seen. In a transaction with a snapshot it is as old as the snapshot.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], [`Error::InvalidStart`], [`Error::MissingTables`], [`Error::InsufficientPrivilege`],
    /// [`Error::PreparedStatementMismatch`], other errors of the database.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use diesel::prelude::*;
    /// use diesel_locks::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:")?;
    /// # diesel_locks::migrate(&mut conn)?;
    ///
    /// assert_eq!(conn.last_number(&Sequence::new("invoice"))?, None);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
    fn last_number(&mut self, sequence: &Sequence) -> Result<Option<i64>, Error> {
        sequence.validate()?;
        Self::last(self, sequence)
    }
}

impl<C: SequenceBackend> SequenceExt for C {}

fn draw<C: SequenceBackend>(
    conn: &mut C,
    method: &'static str,
    sequence: &Sequence,
    count: u32,
) -> Result<i64, Error> {
    sequence.validate()?;
    if depth::depth(conn)? == 0 {
        return Err(Error::NotInTransaction { method });
    }
    C::assert_open(conn)?;
    let exhausted = |last| Error::SequenceExhausted {
        sequence: sequence.to_string(),
        count,
        last,
    };
    let first = sequence.start();
    let initial_last = match first.checked_add(i64::from(count) - 1) {
        Some(last) => last,
        // Too many for the very first draw; a sequence that has begun goes on from where it is, and its row
        // is there: what would be inserted does not matter.
        None if C::last(conn, sequence)?.is_some() => i64::MAX,
        None => return Err(exhausted(first - 1)),
    };
    let draw = DrawRequest {
        sequence,
        count: count.into(),
        initial_last,
        max_last: i64::MAX - i64::from(count),
    };
    if let Some(last) = C::draw(conn, &draw)? {
        return Ok(last);
    }
    let last = C::last(conn, sequence)?.unwrap_or(first - 1);
    Err(exhausted(last))
}
