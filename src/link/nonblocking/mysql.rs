//! `AsyncMysqlConnection`.

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use diesel_async::{
    AnsiTransactionManager, AsyncConnection, AsyncMysqlConnection, MysqlCancelToken,
    SimpleAsyncConnection,
};
use tokio::time::sleep;

use super::client_server_link;
use crate::cancel::background;
use crate::link::Link;

impl Link for AsyncMysqlConnection {
    const EXECUTES_WITHOUT_ROWS: bool = true;

    client_server_link!();

    /// The server runs what is sent now after the statement that is running, and then ends the session: the client does not
    /// know any more which answer belongs to which statement. Nothing that the application sends afterwards takes effect.
    fn abandon(&mut self, statements: &[&str]) {
        let token = self.cancel_token();
        let mut sql = statements.join("; ");
        sql.push_str("; KILL CONNECTION_ID()");
        // Twice, because the request cancels one statement, which may be one of these.
        for _ in 0..2 {
            let sent = pin!(self.batch_execute(&sql));
            // It is sent at the first poll, unless the statement before is still being sent or its rows being read.
            let _ = sent.poll(&mut Context::from_waker(Waker::noop()));
        }
        *self.transaction_state() = AnsiTransactionManager::default();
        // A pool discards the connection.
        self.status().set_in_error();
        background::spawn(cancel_until_gone(token));
    }
}

/// The pauses before requests, in ms.
const PAUSES: [u64; 8] = [5, 20, 50, 100, 500, 2000, 5000, 10_000];

/// Cancels what the session runs, until it has ended. A request has no effect on a session whose statement has not started,
/// so it is repeated.
async fn cancel_until_gone(token: MysqlCancelToken) {
    for pause in PAUSES {
        sleep(Duration::from_millis(pause)).await;
        let Some(Err(error)) = background::request(token.cancel_query()).await else {
            continue;
        };
        // ER_NO_SUCH_THREAD
        if error.to_string().contains("(1094)") {
            return;
        }
        tracing::warn!(target: "diesel_locks::cancel", %error, "a statement can't be cancelled");
    }
}
