//! Connections of diesel-async, which are awaited.

#[cfg(feature = "async-mysql")]
mod mysql;
#[cfg(feature = "async-postgres")]
pub(crate) mod postgres;
#[cfg(feature = "async-sqlite")]
pub(crate) mod sqlite;

use diesel::QueryResult;
use diesel::connection::TransactionManagerStatus;
use diesel::deserialize::FromSqlRow;
use diesel::expression::QueryMetadata;
use diesel::query_builder::{AsQuery, QueryFragment, QueryId};
use diesel::result::Error;
use diesel_async::AsyncConnectionCore;
use futures_util::TryStreamExt;

/// The functions of [`Link`] that the connections to PostgreSQL and MySQL have alike.
#[cfg(any(feature = "async-postgres", feature = "async-mysql"))]
macro_rules! client_server_link {
    ($execute:path, $load:path) => {
        type Backend = <Self as diesel_async::AsyncConnectionCore>::Backend;

        async fn batch(&mut self, sql: &str) -> diesel::QueryResult<()> {
            diesel_async::SimpleAsyncConnection::batch_execute(self, sql).await
        }

        async fn execute<Q>(&mut self, statement: Q) -> diesel::QueryResult<usize>
        where
            Q: diesel::query_builder::QueryFragment<<Self as Link>::Backend>
                + diesel::query_builder::QueryId
                + Send,
        {
            $execute(self, statement).await
        }

        async fn load<Q, T>(&mut self, query: Q) -> diesel::QueryResult<Vec<T>>
        where
            Q: diesel::query_builder::AsQuery<
                    Query: diesel::query_builder::QueryFragment<<Self as Link>::Backend>
                               + diesel::query_builder::QueryId
                               + Send,
                > + Send,
            <Self as Link>::Backend: diesel::expression::QueryMetadata<Q::SqlType>,
            T: diesel::deserialize::FromSqlRow<Q::SqlType, <Self as Link>::Backend> + Send,
        {
            $load(self, query).await
        }

        fn status(&mut self) -> &mut diesel::connection::TransactionManagerStatus {
            crate::link::nonblocking::status(self)
        }

        async fn begin(&mut self, sql: &str) -> diesel::QueryResult<()> {
            diesel_async::AnsiTransactionManager::begin_transaction_sql(self, sql).await
        }

        async fn begin_nested(&mut self) -> diesel::QueryResult<()> {
            use diesel_async::TransactionManager;

            diesel_async::AnsiTransactionManager::begin_transaction(self).await
        }

        async fn commit(&mut self) -> diesel::QueryResult<()> {
            use diesel_async::TransactionManager;

            diesel_async::AnsiTransactionManager::commit_transaction(self).await
        }

        async fn roll_back(&mut self) -> diesel::QueryResult<()> {
            use diesel_async::TransactionManager;

            diesel_async::AnsiTransactionManager::rollback_transaction(self).await
        }
    };
}
#[cfg(any(feature = "async-postgres", feature = "async-mysql"))]
use client_server_link;

pub(crate) fn status<C>(conn: &mut C) -> &mut TransactionManagerStatus
where
    C: diesel_async::AsyncConnection,
{
    use diesel_async::TransactionManager;

    C::TransactionManager::transaction_manager_status_mut(conn)
}

async fn rows<C, Q, T>(conn: &mut C, query: Q) -> QueryResult<Vec<T>>
where
    C: AsyncConnectionCore,
    Q: AsQuery<Query: QueryFragment<C::Backend> + QueryId + Send> + Send,
    C::Backend: QueryMetadata<Q::SqlType>,
    T: FromSqlRow<Q::SqlType, C::Backend> + Send,
{
    let rows = AsyncConnectionCore::load(conn, query).await?;
    rows.and_then(|row| async move { T::build_from_row(&row).map_err(Error::DeserializationError) })
        .try_collect()
        .await
}
