//! Connections that block: their futures are ready when they are polled for the first time.

#[cfg(any(
    feature = "async-postgres",
    feature = "async-mysql",
    feature = "async-sqlite"
))]
mod async_wrapper;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod client_library;

/// The functions of [`Link`](super::Link) that all these connections have alike.
macro_rules! blocking_functions {
    () => {
        type Backend = <Self as diesel::Connection>::Backend;

        async fn batch(&mut self, sql: &str) -> diesel::QueryResult<()> {
            diesel::connection::SimpleConnection::batch_execute(self, sql)
        }

        async fn execute<Q>(&mut self, statement: Q) -> diesel::QueryResult<usize>
        where
            Q: diesel::query_builder::QueryFragment<<Self as Link>::Backend>
                + diesel::query_builder::QueryId
                + Send,
        {
            diesel::Connection::execute_returning_count(self, &statement)
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
            use diesel::connection::{DefaultLoadingMode, LoadConnection};
            use diesel::result::Error::DeserializationError;

            let rows = LoadConnection::<DefaultLoadingMode>::load(self, query.as_query())?;
            rows.map(|row| T::build_from_row(&row?).map_err(DeserializationError))
                .collect()
        }

        fn status(&mut self) -> &mut diesel::connection::TransactionManagerStatus {
            use diesel::connection::TransactionManager;

            <Self as diesel::Connection>::TransactionManager::transaction_manager_status_mut(self)
        }

        async fn begin_nested(&mut self) -> diesel::QueryResult<()> {
            use diesel::connection::TransactionManager;

            <Self as diesel::Connection>::TransactionManager::begin_transaction(self)
        }

        async fn commit(&mut self) -> diesel::QueryResult<()> {
            use diesel::connection::TransactionManager;

            <Self as diesel::Connection>::TransactionManager::commit_transaction(self)
        }

        async fn roll_back(&mut self) -> diesel::QueryResult<()> {
            use diesel::connection::TransactionManager;

            <Self as diesel::Connection>::TransactionManager::rollback_transaction(self)
        }
    };
}
use blocking_functions;
