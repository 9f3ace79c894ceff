//! Connections that block: their futures are ready when they are polled for the first time.

use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use diesel::QueryResult;
use diesel::connection::{
    AnsiTransactionManager, CacheSize, Connection, InstrumentationEvent, LoadConnection,
    SimpleConnection, TransactionDepthChange, TransactionManager, TransactionManagerStatus,
};
use diesel::deserialize::FromSqlRow;
use diesel::expression::QueryMetadata;
use diesel::query_builder::{AsQuery, QueryFragment, QueryId};
use diesel::result::Error::{AlreadyInTransaction, DeserializationError};
#[cfg(feature = "_async")]
use diesel_async::AsyncConnection;
#[cfg(feature = "_async")]
use diesel_async::async_connection_wrapper::{AsyncConnectionWrapper, BlockOn};

use crate::Error;
use crate::link::Link;
#[cfg(feature = "_postgres")]
use crate::link::raw_sql::{ASSERT_BEGUN, untracked};

pub(crate) trait Blocking: LoadConnection + Send {
    /// As in `Link`. Otherwise it is diesel-async's `AsyncConnectionWrapper`, which waits for each statement on a runtime of its
    /// own, which no other crate can use to wait for a future.
    const IS_OF_DIESEL: bool = true;

    /// Whether Diesel sets the status after each statement outside of a transaction, and not in one that it does not count.
    const CORRECTS_STATUS: bool = false;

    /// As in `Link`.
    const TRANSACTION_CHECK: Option<&'static str> = None;

    fn begin_by(&mut self, sql: &str) -> QueryResult<()>;
}

#[cfg(feature = "postgres")]
impl Blocking for diesel::PgConnection {
    const CORRECTS_STATUS: bool = true;

    fn begin_by(&mut self, sql: &str) -> QueryResult<()> {
        AnsiTransactionManager::begin_transaction_sql(self, sql)
    }
}

#[cfg(feature = "mysql")]
impl Blocking for diesel::MysqlConnection {
    fn begin_by(&mut self, sql: &str) -> QueryResult<()> {
        AnsiTransactionManager::begin_transaction_sql(self, sql)
    }
}

#[cfg(feature = "sqlite")]
impl Blocking for diesel::SqliteConnection {
    fn begin_by(&mut self, sql: &str) -> QueryResult<()> {
        AnsiTransactionManager::begin_transaction_sql(self, sql)
    }
}

#[cfg(feature = "_async")]
impl<C: Link + AsyncConnection, B: BlockOn + Send> Blocking for AsyncConnectionWrapper<C, B> {
    const IS_OF_DIESEL: bool = false;
    const TRANSACTION_CHECK: Option<&'static str> = <C as Link>::TRANSACTION_CHECK;

    /// As `AnsiTransactionManager::begin_transaction_sql`, which this connection does not have.
    fn begin_by(&mut self, sql: &str) -> QueryResult<()> {
        if self.status().transaction_depth()?.is_some() {
            return Err(AlreadyInTransaction);
        }
        let event = InstrumentationEvent::begin_transaction(NonZeroU32::MIN);
        Connection::instrumentation(self).on_connection_event(event);
        SimpleConnection::batch_execute(self, sql)?;
        let status = self.status().transaction_state()?;
        status.change_transaction_depth(TransactionDepthChange::IncreaseDepth)
    }
}

/// Runs a statement. Fails if it has run in a transaction that Diesel does not count, as far as Diesel can tell.
///
/// After each statement, Diesel for PostgreSQL takes a connection for sound on which libpq reports no transaction, and leaves
/// its status as it is on which libpq reports one.
fn alone<C: Blocking, T>(
    conn: &mut C,
    statement: impl FnOnce(&mut C) -> QueryResult<T>,
) -> QueryResult<T> {
    let counts_none = matches!(conn.status().transaction_depth(), Ok(None));
    if !counts_none {
        return statement(conn);
    }
    #[cfg(feature = "_postgres")]
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
        Ok(Ok(_)) => {
            // What the statement has done is not to be committed with it: aborts the transaction.
            #[cfg(feature = "_postgres")]
            let _ = conn.batch_execute(ASSERT_BEGUN);
            None
        }
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

#[diagnostic::do_not_recommend]
impl<C: Blocking> Link for C {
    type Db = C::Backend;

    const IS_OF_DIESEL: bool = <C as Blocking>::IS_OF_DIESEL;
    const TRANSACTION_CHECK: Option<&'static str> = <C as Blocking>::TRANSACTION_CHECK;

    async fn batch(&mut self, sql: &str) -> QueryResult<()> {
        self.batch_execute(sql)
    }

    async fn execute<Q>(&mut self, statement: Q) -> QueryResult<usize>
    where
        Q: QueryFragment<C::Backend> + QueryId + Send,
    {
        alone(self, |conn| conn.execute_returning_count(&statement))
    }

    async fn load<Q, T>(&mut self, query: Q) -> QueryResult<Vec<T>>
    where
        Q: AsQuery<Query: QueryFragment<C::Backend> + QueryId + Send> + Send,
        C::Backend: QueryMetadata<Q::SqlType>,
        T: FromSqlRow<Q::SqlType, C::Backend> + Send,
    {
        alone(self, |conn| {
            let rows = LoadConnection::load(conn, query.as_query())?;
            rows.map(|row| T::build_from_row(&row?).map_err(DeserializationError))
                .collect()
        })
    }

    /// Diesel does not show the cache's size: this sets it to unbounded, Diesel's default.
    fn reset_statement_cache(&mut self) {
        if C::IS_OF_DIESEL {
            self.set_prepared_statement_cache_size(CacheSize::Disabled);
            self.set_prepared_statement_cache_size(CacheSize::Unbounded);
        }
    }

    fn status(&mut self) -> &mut TransactionManagerStatus {
        C::TransactionManager::transaction_manager_status_mut(self)
    }

    async fn begin(&mut self, sql: &str) -> QueryResult<()> {
        self.begin_by(sql)
    }

    async fn begin_nested(&mut self) -> QueryResult<()> {
        C::TransactionManager::begin_transaction(self)
    }

    async fn commit(&mut self) -> QueryResult<()> {
        C::TransactionManager::commit_transaction(self)
    }

    async fn roll_back(&mut self) -> QueryResult<()> {
        C::TransactionManager::rollback_transaction(self)
    }
}
