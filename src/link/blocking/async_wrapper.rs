//! diesel-async's `AsyncConnectionWrapper`. It waits for each statement on a runtime of its own, which no other crate can use
//! to wait for a future.

use std::num::NonZeroU32;

use diesel::QueryResult;
use diesel::connection::{
    Connection, InstrumentationEvent, SimpleConnection, TransactionDepthChange,
    TransactionManagerStatus,
};
use diesel::result::Error;
use diesel_async::async_connection_wrapper::{AsyncConnectionWrapper, BlockOn};

use super::blocking_functions;
use crate::engine::{HasBlockingEngine, HasEngine};
use crate::link::Link;
use crate::timer::thread::ThreadTimer;

macro_rules! wrapper_link {
    ($conn:ty) => {
        impl<B: BlockOn + Send> HasEngine for AsyncConnectionWrapper<$conn, B> {
            type LockEngine = <$conn as HasEngine>::LockEngine;
            type LockTimer = ThreadTimer;

            fn counted_transactions(conn: &mut Self) -> &mut TransactionManagerStatus {
                Link::status(conn)
            }
        }

        impl<B: BlockOn + Send> HasBlockingEngine for AsyncConnectionWrapper<$conn, B> {}

        impl<B: BlockOn + Send> Link for AsyncConnectionWrapper<$conn, B> {
            blocking_functions!();

            const KNOWS_SERVER_STATE: bool = <$conn as Link>::KNOWS_SERVER_STATE;
            const TRANSACTION_CHECK: Option<&'static str> = <$conn as Link>::TRANSACTION_CHECK;
            const EXECUTES_WITHOUT_ROWS: bool = <$conn as Link>::EXECUTES_WITHOUT_ROWS;

            /// As `AnsiTransactionManager::begin_transaction_sql`, which this connection does not have.
            async fn begin(&mut self, sql: &str) -> QueryResult<()> {
                if self.status().transaction_depth()?.is_some() {
                    return Err(Error::AlreadyInTransaction);
                }
                let event = InstrumentationEvent::begin_transaction(NonZeroU32::MIN);
                Connection::instrumentation(self).on_connection_event(event);
                self.batch_execute(sql)?;
                let status = self.status().transaction_state()?;
                status.change_transaction_depth(TransactionDepthChange::IncreaseDepth)
            }
        }
    };
}

#[cfg(feature = "async-postgres")]
wrapper_link!(diesel_async::AsyncPgConnection);
#[cfg(feature = "async-mysql")]
wrapper_link!(diesel_async::AsyncMysqlConnection);
#[cfg(feature = "async-sqlite")]
wrapper_link!(
    diesel_async::sync_connection_wrapper::SyncConnectionWrapper<diesel::SqliteConnection>
);
