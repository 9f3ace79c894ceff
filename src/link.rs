//! A connection as the engines see it, whether it blocks or not.

#![cfg_attr(
    not(all(
        feature = "async-postgres",
        feature = "async-mysql",
        feature = "async-sqlite"
    )),
    allow(
        dead_code,
        unused_imports,
        unused_macros,
        reason = "no engine needs all"
    )
)]

#[cfg(feature = "_pool")]
pub(crate) mod activity;
mod blocking;
pub(crate) mod depth;
#[cfg(feature = "_async")]
pub(crate) mod nonblocking;
pub(crate) mod raw_sql;

use std::future::ready;

use diesel::backend::Backend;
use diesel::connection::TransactionManagerStatus;
use diesel::deserialize::FromSqlRow;
use diesel::expression::QueryMetadata;
use diesel::query_builder::{AsQuery, Query, QueryFragment, QueryId};
use diesel::{OptionalExtension, QueryResult};

/// Sends statements. Transactions are counted as Diesel does it.
#[diagnostic::on_unimplemented(
    message = "`diesel-locks` does not know connections of the type `{Self}`",
    label = "not `PgConnection`, `MysqlConnection` or `SqliteConnection`, none of diesel-async, or the engine's feature is off"
)]
pub trait Link: Sized + Send {
    type Db: Backend;

    /// Whether it is a connection of Diesel over a client library. Then [`status`](Self::status) follows the server when SQL of the
    /// application ends a transaction, or an error aborts it; and on MySQL [`load`](Self::load) of a statement that returns no rows
    /// fails without executing it.
    const IS_OF_DIESEL: bool = false;

    /// A statement to send before others outside of a transaction, which fails in one that Diesel does not count. For
    /// connections that block, and whose client does not report transactions.
    const TRANSACTION_CHECK: Option<&'static str> = None;

    /// Sends several statements in one message.
    fn batch(&mut self, sql: &str) -> impl Future<Output = QueryResult<()>> + Send;

    fn execute<Q>(&mut self, statement: Q) -> impl Future<Output = QueryResult<usize>> + Send
    where
        Q: QueryFragment<Self::Db> + QueryId + Send;

    fn load<Q, T>(&mut self, query: Q) -> impl Future<Output = QueryResult<Vec<T>>> + Send
    where
        Q: AsQuery<Query: QueryFragment<Self::Db> + QueryId + Send> + Send,
        Self::Db: QueryMetadata<Q::SqlType>,
        T: FromSqlRow<Q::SqlType, Self::Db> + Send;

    fn get_result<Q, T>(&mut self, query: Q) -> impl Future<Output = QueryResult<T>> + Send
    where
        Q: AsQuery<Query: QueryFragment<Self::Db> + QueryId + Send> + Send,
        Self::Db: QueryMetadata<Q::SqlType>,
        T: FromSqlRow<Q::SqlType, Self::Db> + Send,
    {
        async {
            let rows = self.load(query).await?;
            let first = rows.into_iter().next();
            first.ok_or(diesel::result::Error::NotFound)
        }
    }

    fn get_optional<Q, T>(
        &mut self,
        query: Q,
    ) -> impl Future<Output = QueryResult<Option<T>>> + Send
    where
        Q: AsQuery<Query: QueryFragment<Self::Db> + QueryId + Send> + Send,
        Self::Db: QueryMetadata<Q::SqlType>,
        T: FromSqlRow<Q::SqlType, Self::Db> + Send,
    {
        async { self.get_result(query).await.optional() }
    }

    /// Empties the cache of prepared statements, if the client library can't use one again after an error.
    fn reset_statement_cache(&mut self) {}

    fn status(&mut self) -> &mut TransactionManagerStatus;

    fn begin(&mut self, sql: &str) -> impl Future<Output = QueryResult<()>> + Send;

    /// Begins a transaction by these statements, and runs a query in it. Sends both without waiting, if the client can.
    fn begin_and_load<Q, T>(
        &mut self,
        sql: &str,
        query: &Q,
    ) -> impl Future<Output = QueryResult<QueryResult<Vec<T>>>> + Send
    where
        Q: Query + QueryFragment<Self::Db> + QueryId + Send + Sync,
        Self::Db: QueryMetadata<Q::SqlType>,
        T: FromSqlRow<Q::SqlType, Self::Db> + Send,
    {
        async move {
            self.begin(sql).await?;
            Ok(self.load(query).await)
        }
    }

    /// Begins a transaction, or a savepoint in the open one.
    fn begin_nested(&mut self) -> impl Future<Output = QueryResult<()>> + Send;

    /// Commits the innermost transaction, or releases its savepoint.
    fn commit(&mut self) -> impl Future<Output = QueryResult<()>> + Send;

    /// Rolls back the innermost transaction, or to its savepoint.
    fn roll_back(&mut self) -> impl Future<Output = QueryResult<()>> + Send;

    /// Ends what a dropped future has started, without waiting for the server: cancels the statement that is running, runs
    /// these after it, and makes the connection unusable. Errors are ignored.
    fn abandon(&mut self, _statements: &[&str]) {}

    /// Whether a connection that was [abandoned](Self::abandon) is to stay open until the server has ended its session.
    #[cfg(feature = "_async_pool")]
    const STAYS_OPEN: bool = false;

    /// Returns when the server has ended the session of an abandoned connection, or has answered for long.
    #[cfg(feature = "_async_pool")]
    fn until_ended(&mut self) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// Whether the client takes the answer of the server to this statement for that, and not the answer to a statement
    /// whose future the application has dropped.
    fn is_in_step(&mut self) -> impl Future<Output = bool> + Send {
        ready(true)
    }

    /// The future of a method with a closure, which may be dropped while a statement of the closure runs.
    fn droppable<F: Future<Output: Send> + Send>(
        future: F,
    ) -> impl Future<Output = F::Output> + Send {
        future
    }
}

/// Commits the innermost transaction, or rolls it back after an error, which takes precedence over an error of the rollback:
/// if that fails, Diesel marks the connection as broken. For transactions that run nothing of the application.
pub(crate) async fn end<T, E>(conn: &mut impl Link, work: Result<T, E>) -> Result<T, E>
where
    E: From<diesel::result::Error>,
{
    if work.is_ok() {
        conn.commit().await.map_err(|error| match error {
            // Diesel's rollback after it has failed too.
            diesel::result::Error::RollbackErrorOnCommit { commit_error, .. } => *commit_error,
            error => error,
        })?;
    } else if let Err(error) = conn.roll_back().await {
        tracing::warn!(%error, "rollback failed");
    }
    work
}

/// What is done with the innermost savepoint.
#[derive(Clone, Copy, Debug)]
pub enum Savepoint {
    Begin,
    Release,
    RollBack,
}

pub(crate) async fn savepoint(conn: &mut impl Link, act: Savepoint) -> QueryResult<()> {
    match act {
        Savepoint::Begin => conn.begin_nested().await,
        Savepoint::Release => release(conn).await,
        Savepoint::RollBack => conn.roll_back().await,
    }
}

/// Releases the innermost savepoint. When that fails and Diesel counts the savepoint no longer, rolls back to it, so that
/// the transaction around it is usable and does not commit what the savepoint contains.
async fn release(conn: &mut impl Link) -> QueryResult<()> {
    let outer = depth::counted(conn.status()).map_or(0, |before| before.saturating_sub(1));
    let released = conn.commit().await;
    let is_outer = depth::counted(conn.status()).is_ok_and(|now| now == outer);
    if released.is_err() && outer > 0 && is_outer {
        // Diesel's name for it. It does not exist if the database has ended the transaction.
        let undo = format!("ROLLBACK TO SAVEPOINT diesel_savepoint_{outer}");
        if let Err(error) = conn.batch(&undo).await {
            tracing::debug!(%error, "no savepoint to roll back to");
        }
    }
    released
}
