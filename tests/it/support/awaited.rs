//! Connections of diesel-async on which the bodies run: they block for the application, and await for this crate.

use std::sync::LazyLock;

use diesel::connection::{
    CacheSize, Connection, Instrumentation, LoadConnection, SimpleConnection, TransactionManager,
    TransactionManagerStatus,
};
use diesel::expression::QueryMetadata;
use diesel::migration::MigrationConnection;
use diesel::prelude::*;
use diesel::query_builder::{Query, QueryFragment, QueryId};
use diesel::r2d2::R2D2Connection;
use diesel_async::AsyncConnection;
use diesel_async::async_connection_wrapper::{AsyncConnectionWrapper, BlockOn};
use diesel_locks::{ConnectionWrapper, InnerConnection};
use tokio::runtime::{Builder, Runtime};
use tokio::task::block_in_place;

use super::backend::{EngineConnection, TestConnection};

/// The runtime of all these connections. Its threads run no body.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.expect("a runtime")
});

/// Waits for a future on the thread of the body, also in a closure that a future has called.
fn wait_for<F: Future>(future: F) -> F::Output {
    block_in_place(|| RUNTIME.block_on(future))
}

/// The [`RUNTIME`] for diesel-async.
pub(crate) struct SharedRuntime;

impl BlockOn for SharedRuntime {
    fn block_on<F: Future>(&self, future: F) -> F::Output {
        wait_for(future)
    }

    fn get_runtime() -> Self {
        Self
    }
}

/// A connection of diesel-async. Diesel's methods wait for each statement. The methods of this crate run as one future over
/// the connection inside, and wait for that.
pub(crate) type Awaited<C> = Around<AsyncConnectionWrapper<C, SharedRuntime>>;

/// A struct of an application around the connection with which diesel-async blocks.
pub(crate) type AroundBlocking<C> = Around<AsyncConnectionWrapper<C>>;

/// A connection that is `C` for Diesel.
pub(crate) struct Around<C>(C);

impl<C: AsyncConnection> ConnectionWrapper for Awaited<C>
where
    for<'a> InnerConnection<'a>: From<&'a mut C>,
{
    fn inner_connection(&mut self) -> InnerConnection<'_> {
        let inner: &mut C = &mut self.0;
        inner.into()
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        wait_for(future)
    }
}

impl<C: AsyncConnection> ConnectionWrapper for AroundBlocking<C>
where
    for<'a> InnerConnection<'a>: From<&'a mut AsyncConnectionWrapper<C>>,
{
    fn inner_connection(&mut self) -> InnerConnection<'_> {
        (&mut self.0).into()
    }
}

// As an application names it by Diesel's feature `i-implement-a-third-party-backend-and-opt-into-breaking-changes`.
impl<C> diesel::internal::derives::multiconnection::ConnectionSealed for Around<C> {}

impl<C: SimpleConnection> SimpleConnection for Around<C> {
    fn batch_execute(&mut self, query: &str) -> QueryResult<()> {
        self.0.batch_execute(query)
    }
}

impl<C: Connection> Connection for Around<C> {
    type Backend = C::Backend;
    type TransactionManager = Transactions;

    fn establish(url: &str) -> ConnectionResult<Self> {
        C::establish(url).map(Self)
    }

    fn execute_returning_count<T>(&mut self, source: &T) -> QueryResult<usize>
    where
        T: QueryFragment<Self::Backend> + QueryId,
    {
        self.0.execute_returning_count(source)
    }

    fn transaction_state(
        &mut self,
    ) -> &mut <Transactions as TransactionManager<Self>>::TransactionStateData {
        self.0.transaction_state()
    }

    fn instrumentation(&mut self) -> &mut dyn Instrumentation {
        self.0.instrumentation()
    }

    fn set_instrumentation(&mut self, instrumentation: impl Instrumentation) {
        self.0.set_instrumentation(instrumentation);
    }

    fn set_prepared_statement_cache_size(&mut self, size: CacheSize) {
        self.0.set_prepared_statement_cache_size(size);
    }
}

impl<C: LoadConnection> LoadConnection for Around<C> {
    type Cursor<'conn, 'query>
        = C::Cursor<'conn, 'query>
    where
        C: 'conn;
    type Row<'conn, 'query>
        = C::Row<'conn, 'query>
    where
        C: 'conn;

    fn load<'conn, 'query, T>(
        &'conn mut self,
        source: T,
    ) -> QueryResult<Self::Cursor<'conn, 'query>>
    where
        T: Query + QueryFragment<Self::Backend> + QueryId + 'query,
        Self::Backend: QueryMetadata<T::SqlType>,
    {
        self.0.load(source)
    }
}

impl<C: R2D2Connection> R2D2Connection for Around<C> {
    fn ping(&mut self) -> QueryResult<()> {
        self.0.ping()
    }

    fn is_broken(&mut self) -> bool {
        self.0.is_broken()
    }
}

impl<C: EngineConnection> EngineConnection for Around<C>
where
    Self: TestConnection,
{
    const NOTICES_DEADLOCKS: bool = C::NOTICES_DEADLOCKS;
}

impl<C: MigrationConnection> MigrationConnection for Around<C> {
    fn setup(&mut self) -> QueryResult<usize> {
        self.0.setup()
    }
}

/// The transactions of the connection inside.
pub(crate) struct Transactions;

impl<C: Connection> TransactionManager<Around<C>> for Transactions {
    type TransactionStateData =
        <C::TransactionManager as TransactionManager<C>>::TransactionStateData;

    fn begin_transaction(conn: &mut Around<C>) -> QueryResult<()> {
        C::TransactionManager::begin_transaction(&mut conn.0)
    }

    fn rollback_transaction(conn: &mut Around<C>) -> QueryResult<()> {
        C::TransactionManager::rollback_transaction(&mut conn.0)
    }

    fn commit_transaction(conn: &mut Around<C>) -> QueryResult<()> {
        C::TransactionManager::commit_transaction(&mut conn.0)
    }

    fn transaction_manager_status_mut(conn: &mut Around<C>) -> &mut TransactionManagerStatus {
        C::TransactionManager::transaction_manager_status_mut(&mut conn.0)
    }
}
