//! The trait `AsyncTransactionExt`: the methods for transactions on a connection of diesel-async.

use crate::cancel::unless_dropped;
use crate::engine::HasAsyncEngine;
use crate::poll::RepeatedWork;
use crate::transaction::run_attempts;
use crate::{TransactionError, TransactionOptions};

/// The methods of [`TransactionExt`](crate::TransactionExt) on connections of diesel-async.
///
/// Import it with `use diesel_locks::prelude::*`. What the methods do, what they return and their errors are those of the
/// blocking methods of the same names. Each returns a future that is `Send`; the closures are `async`. A closure can't change
/// a variable that it captures, because of a limit of `async` closures that are called more than once: use an atomic or a
/// `Mutex`. Before a retry the task sleeps, not its thread. A future may be dropped at every `.await`: see
/// [Dropped futures](crate::operation::dropped_futures).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use diesel::prelude::*;
/// use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
/// use diesel_async::{AsyncConnection, RunQueryDsl};
/// use diesel_locks::RetryPolicy;
/// use diesel_locks::prelude::*;
///
/// diesel::table! { accounts (id) { id -> Integer, money -> Integer } }
///
/// let mut conn = SyncConnectionWrapper::<SqliteConnection>::establish(":memory:").await?;
/// # diesel::sql_query("CREATE TABLE accounts (id INTEGER PRIMARY KEY, money INTEGER NOT NULL)").execute(&mut conn).await?;
/// # diesel::sql_query("INSERT INTO accounts VALUES (1, 100), (2, 100)").execute(&mut conn).await?;
/// let retried = TransactionOptions::new().retry(RetryPolicy::max_attempts(5));
/// conn.run_transaction(retried, async |conn| -> QueryResult<()> {
///     for (id, change) in [(1, -30), (2, 30)] {
///         diesel::update(accounts::table.find(id))
///             .set(accounts::money.eq(accounts::money + change))
///             .execute(conn)
///             .await?;
///     }
///     Ok(())
/// })
/// .await?;
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
#[doc(alias("retry", "deadlock", "serializable", "tokio"))]
pub trait AsyncTransactionExt: HasAsyncEngine {
    /// Runs `f` in a transaction with these options, and again after an error that a retry may cure. Behaves as
    /// [`TransactionExt::run_transaction`](crate::TransactionExt::run_transaction).
    ///
    /// # Errors
    ///
    /// As the blocking method.
    fn run_transaction<'c, 'f, T, E, F, Via>(
        &'c mut self,
        transaction: TransactionOptions,
        f: F,
    ) -> impl Future<Output = Result<T, E>> + Send + 'c
    where
        for<'r> F: AsyncFnMut(&'r mut Self) -> Result<T, E>
            + RepeatedWork<&'r mut Self, Result<T, E>, Future: Send>
            + Send
            + 'f,
        T: Send + 'f,
        E: TransactionError<Via> + Send + 'f,
        Via: 'c,
        'f: 'c,
    {
        Self::droppable(
            async move { unless_dropped!(self, |conn| run_attempts(conn, transaction, f)) },
        )
    }
}

#[diagnostic::do_not_recommend]
impl<C: HasAsyncEngine> AsyncTransactionExt for C {}
