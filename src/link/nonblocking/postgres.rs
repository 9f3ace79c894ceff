//! `AsyncPgConnection`.

use std::pin::pin;
use std::task::{Context, Waker};

use diesel::QueryResult;
use diesel::connection::TransactionDepthChange;
use diesel::deserialize::FromSqlRow;
use diesel::expression::QueryMetadata;
use diesel::pg::Pg;
use diesel::query_builder::{Query, QueryFragment, QueryId};
use futures_util::future::join;

use diesel_async::SimpleAsyncConnection;
use diesel_async::{AnsiTransactionManager, AsyncConnection, AsyncPgConnection};
use tokio::runtime::Handle;
use tokio_postgres::NoTls;

use super::{client_server_link, rows};
use crate::link::Link;

impl Link for AsyncPgConnection {
    client_server_link!();

    async fn begin_and_load<Q, T>(
        &mut self,
        sql: &str,
        query: &Q,
    ) -> QueryResult<QueryResult<Vec<T>>>
    where
        Q: Query + QueryFragment<Pg> + QueryId + Send + Sync,
        Pg: QueryMetadata<Q::SqlType>,
        T: FromSqlRow<Q::SqlType, Pg> + Send,
    {
        self.status().transaction_state()?;
        let (mut beginning, mut reading) = (&*self, &*self);
        let sent = join(beginning.batch_execute(sql), rows(&mut reading, query));
        let (begun, rows) = sent.await;
        begun?;
        let state = self.status().transaction_state()?;
        state.change_transaction_depth(TransactionDepthChange::IncreaseDepth)?;
        Ok(rows)
    }

    /// The client sends what it is given without waiting for the answers before, and reads past answers that nobody
    /// expects. So a statement that is sent now runs after all that were sent before.
    fn abandon(&mut self, statements: &[&str]) {
        send(self, statements);
        *self.transaction_state() = AnsiTransactionManager::default();
        // A pool discards the connection. Otherwise its next user could get the cancel request.
        self.status().set_in_error();
        if let Ok(runtime) = Handle::try_current() {
            let token = self.cancel_token();
            runtime.spawn(async move { token.cancel_query(NoTls).await });
            // The request cancels one statement: that which runs when it arrives. It may be one of these.
            send(self, statements);
        }
    }
}

fn send(conn: &AsyncPgConnection, statements: &[&str]) {
    for sql in statements {
        let mut conn = conn;
        let sent = pin!(conn.batch_execute(sql));
        // It is sent at the first poll.
        let _ = sent.poll(&mut Context::from_waker(Waker::noop()));
    }
}
