//! The trait `AsyncSequenceExt`: the methods for sequences on a connection of diesel-async.

use std::ops::RangeInclusive;

use crate::cancel::unless_dropped;
use crate::engine::HasAsyncEngine;
use crate::sequence::backend::SequenceBackend;
use crate::sequence::{draw, draw_range};
use crate::{Error, Sequence};

/// The methods of [`SequenceExt`](crate::SequenceExt) on connections of diesel-async.
///
/// Import it with `use diesel_locks::prelude::*`. What the methods do, what they return and their errors are those of the
/// blocking methods of the same names. Each returns a future that is `Send`. A future may be dropped at every `.await`: see
/// [Dropped futures](crate::operation::dropped_futures). A number whose draw is dropped is not used: its transaction can't
/// be committed.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use diesel::prelude::*;
/// use diesel_async::AsyncConnection;
/// use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
/// use diesel_locks::prelude::*;
///
/// let mut conn = SyncConnectionWrapper::<SqliteConnection>::establish(":memory:").await?;
/// diesel_locks::migrate_async(&mut conn).await?;
/// let passes = Sequence::new("pass").for_key(4711);
/// let number = conn
///     .run_transaction(TransactionOptions::new(), async |conn| {
///         let number = conn.next_number(&passes).await?;
///         // .. insert the pass
///         diesel_locks::Result::<_>::Ok(number)
///     })
///     .await?;
/// assert_eq!(number, 1);
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`diesel-locks` has no asynchronous engine for `{Self}`",
    label = "not `AsyncPgConnection`, `AsyncMysqlConnection` or `SyncConnectionWrapper<SqliteConnection>`, or the engine's \
             feature is off",
    note = "pass `&mut *conn` for a pooled connection",
    note = "enable the engine's feature of `diesel-locks`: `async-postgres`, `async-mysql` or `async-sqlite`"
)]
#[doc(alias("counter", "invoice number", "gapless", "tokio"))]
pub trait AsyncSequenceExt: HasAsyncEngine {
    /// Draws the next number. Behaves as [`SequenceExt::next_number`](crate::SequenceExt::next_number).
    ///
    /// # Errors
    ///
    /// As the blocking method.
    fn next_number<'c>(
        &'c mut self,
        sequence: &'c Sequence,
    ) -> impl Future<Output = Result<i64, Error>> + Send + 'c {
        async move { unless_dropped!(self, |conn| draw(conn, "next_number", sequence, 1)) }
    }

    /// Draws `count` consecutive numbers in one statement. Returns the range. Behaves as
    /// [`SequenceExt::next_numbers`](crate::SequenceExt::next_numbers).
    ///
    /// # Errors
    ///
    /// As the blocking method.
    fn next_numbers<'c>(
        &'c mut self,
        sequence: &'c Sequence,
        count: u32,
    ) -> impl Future<Output = Result<RangeInclusive<i64>, Error>> + Send + 'c {
        async move { unless_dropped!(self, |conn| draw_range(conn, sequence, count)) }
    }

    /// Returns the last number drawn, by committed transactions or the open one; `None` before the first draw. Behaves as
    /// [`SequenceExt::last_number`](crate::SequenceExt::last_number).
    ///
    /// # Errors
    ///
    /// As the blocking method.
    fn last_number<'c>(
        &'c mut self,
        sequence: &'c Sequence,
    ) -> impl Future<Output = Result<Option<i64>, Error>> + Send + 'c {
        async move {
            sequence.validate()?;
            unless_dropped!(self, |conn| Self::LockEngine::last(conn, sequence))
        }
    }
}

#[diagnostic::do_not_recommend]
impl<C: HasAsyncEngine> AsyncSequenceExt for C {}
