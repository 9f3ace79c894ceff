//! `AsyncMysqlConnection`.

use std::pin::pin;
use std::task::{Context, Waker};

use diesel_async::{
    AnsiTransactionManager, AsyncConnection, AsyncMysqlConnection, SimpleAsyncConnection,
};
use tokio::runtime::Handle;

use super::client_server_link;
use crate::link::Link;

impl Link for AsyncMysqlConnection {
    const EXECUTES_WITHOUT_ROWS: bool = true;

    client_server_link!();

    /// Between two statements, the first of `statements` is sent at once. While a statement runs none can be: that is
    /// killed, and the transaction ends when the connection is closed.
    fn abandon(&mut self, statements: &[&str]) {
        let token = self.cancel_token();
        if let Some(sql) = statements.first() {
            let sent = pin!(self.batch_execute(sql));
            // It is sent at the first poll, unless the answer to an earlier statement is still to come.
            let _ = sent.poll(&mut Context::from_waker(Waker::noop()));
        }
        *self.transaction_state() = AnsiTransactionManager::default();
        // A pool discards the connection.
        self.status().set_in_error();
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move { token.cancel_query().await });
        }
    }
}
