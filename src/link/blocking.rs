//! Connections that block: their futures are ready when they are polled for the first time.

#[cfg(any(
    feature = "async-postgres",
    feature = "async-mysql",
    feature = "async-sqlite"
))]
mod async_wrapper;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod client_library;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use diesel::QueryResult;
use diesel::connection::{SimpleConnection, TransactionManagerStatus};

use super::Link;
use crate::Error;
#[cfg(feature = "async-postgres")]
use crate::engine::untracked::untracked;

/// Runs a statement. Fails if it has run in a transaction that Diesel does not count, as far as Diesel can tell.
///
/// After each statement, Diesel for PostgreSQL takes a connection for sound on which libpq reports no transaction, and leaves
/// its status as it is on which libpq reports one.
fn alone<C: Link + SimpleConnection, T>(
    conn: &mut C,
    statement: impl FnOnce(&mut C) -> QueryResult<T>,
) -> QueryResult<T> {
    let counts_none = matches!(conn.status().transaction_depth(), Ok(None));
    if !counts_none {
        return statement(conn);
    }
    #[cfg(feature = "async-postgres")]
    if let Some(check) = C::TRANSACTION_CHECK
        && let Err(Ok(untracked)) = conn.batch_execute(check).map_err(untracked)
    {
        return Err(untracked.into());
    }
    if !C::CORRECTS_STATUS {
        return statement(conn);
    }
    conn.status().set_in_error();
    let outcome = catch_unwind(AssertUnwindSafe(|| statement(conn)));
    if conn.status().transaction_depth().is_ok() {
        return outcome.unwrap_or_else(|panic| resume_unwind(panic));
    }
    let source = match outcome {
        Ok(Ok(_)) => None,
        // Of the statement, or of the connection.
        Ok(Err(error)) => {
            let answers = conn.batch_execute("").is_ok();
            if !answers || conn.status().transaction_depth().is_ok() {
                return Err(error);
            }
            Some(error)
        }
        Err(panic) => {
            *conn.status() = TransactionManagerStatus::default();
            resume_unwind(panic);
        }
    };
    *conn.status() = TransactionManagerStatus::default();
    Err(Error::UntrackedTransaction { source }.into())
}

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
            crate::link::blocking::alone(self, |conn| {
                diesel::Connection::execute_returning_count(conn, &statement)
            })
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

            crate::link::blocking::alone(self, |conn| {
                let rows = LoadConnection::<DefaultLoadingMode>::load(conn, query.as_query())?;
                rows.map(|row| T::build_from_row(&row?).map_err(DeserializationError))
                    .collect()
            })
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
