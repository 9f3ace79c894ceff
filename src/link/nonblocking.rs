//! Connections of diesel-async, which are awaited.

#[cfg(feature = "async-mysql")]
mod mysql;
#[cfg(feature = "async-postgres")]
pub(crate) mod postgres;
#[cfg(feature = "async-sqlite")]
pub(crate) mod sqlite;

use std::pin::Pin;
use std::task::{Context, Poll};

use diesel::QueryResult;
use diesel::connection::TransactionManagerStatus;
use diesel::deserialize::FromSqlRow;
use diesel::expression::QueryMetadata;
use diesel::query_builder::{AsQuery, QueryFragment, QueryId};
use diesel::result::Error;
use diesel_async::AsyncConnectionCore;
use futures_util::TryStreamExt;

/// The functions of [`Link`] that the connections to PostgreSQL and MySQL have alike. `TransactionManager` is in scope.
#[cfg(any(feature = "async-postgres", feature = "async-mysql"))]
macro_rules! client_server_link {
    () => {
        type Backend = <Self as diesel_async::AsyncConnectionCore>::Backend;

        async fn batch(&mut self, sql: &str) -> diesel::QueryResult<()> {
            diesel_async::SimpleAsyncConnection::batch_execute(self, sql).await
        }

        fn status(&mut self) -> &mut diesel::connection::TransactionManagerStatus {
            crate::link::nonblocking::status(self)
        }

        async fn begin(&mut self, sql: &str) -> diesel::QueryResult<()> {
            diesel_async::AnsiTransactionManager::begin_transaction_sql(self, sql).await
        }

        async fn begin_nested(&mut self) -> diesel::QueryResult<()> {
            diesel_async::AnsiTransactionManager::begin_transaction(self).await
        }

        async fn commit(&mut self) -> diesel::QueryResult<()> {
            diesel_async::AnsiTransactionManager::commit_transaction(self).await
        }

        async fn roll_back(&mut self) -> diesel::QueryResult<()> {
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

/// A future. If it is dropped before it is ready, a function gets it.
pub(crate) struct DroppedBy<F, D: FnMut(Pin<Box<F>>)> {
    future: Option<Pin<Box<F>>>,
    drop: D,
}

impl<F, D: FnMut(Pin<Box<F>>)> DroppedBy<F, D> {
    pub(crate) fn new(future: F, drop: D) -> Self {
        let future = Some(Box::pin(future));
        Self { future, drop }
    }
}

impl<F: Future, D: FnMut(Pin<Box<F>>) + Unpin> Future for DroppedBy<F, D> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // A future that panics can't be polled again, so `drop` must not find it.
        let mut future = self.future.take().expect("a future that was not ready");
        let polled = future.as_mut().poll(context);
        if polled.is_pending() {
            self.future = Some(future);
        }
        polled
    }
}

impl<F, D: FnMut(Pin<Box<F>>)> Drop for DroppedBy<F, D> {
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            (self.drop)(future);
        }
    }
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
