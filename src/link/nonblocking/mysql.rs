//! `AsyncMysqlConnection`.

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;
use std::{iter, mem};

use diesel::connection::TransactionManagerStatus;
use diesel::deserialize::FromSqlRow;
use diesel::dsl::select;
use diesel::expression::QueryMetadata;
use diesel::mysql::Mysql;
use diesel::query_builder::{AsQuery, QueryFragment, QueryId};
use diesel::sql_types::BigInt;
use diesel::{ConnectionError, IntoSql, QueryResult};
use diesel_async::{
    AnsiTransactionManager, AsyncConnection, AsyncConnectionCore, AsyncMysqlConnection,
    MysqlCancelToken, SimpleAsyncConnection, TransactionManager,
};
use tokio::task::unconstrained;
use tokio::time::sleep;

use crate::link::Link;
use crate::link::nonblocking::{cancel_in_turn, client_server_link, end_dropped, rows};

impl Link for AsyncMysqlConnection {
    client_server_link!();

    async fn execute<Q>(&mut self, statement: Q) -> QueryResult<usize>
    where
        Q: QueryFragment<Mysql> + QueryId + Send,
    {
        self.execute_returning_count(statement).await
    }

    async fn load<Q, T>(&mut self, query: Q) -> QueryResult<Vec<T>>
    where
        Q: AsQuery<Query: QueryFragment<Mysql> + QueryId + Send> + Send,
        Mysql: QueryMetadata<Q::SqlType>,
        T: FromSqlRow<Q::SqlType, Mysql> + Send,
    {
        rows(self, query).await
    }

    /// The answers of the text protocol to one statement look like those to any other.
    async fn is_in_step(&mut self) -> bool {
        let number = fastrand::i64(..);
        let query = select(number.into_sql::<BigInt>());
        // If this is dropped without an answer, that is not read any more, and a pool is to discard the connection.
        let before = mem::replace(self.status(), TransactionManagerStatus::InError);
        let answer: QueryResult<Vec<i64>> = rows(self, query).await;
        *self.status() = before;
        answer.is_ok_and(|answer| answer == [number])
    }

    /// The server runs what is sent now after the statement that is running, and then ends the session: the client does not
    /// know any more which answer belongs to which statement. Nothing that the application sends afterwards takes effect.
    fn abandon(&mut self, statements: &[&str]) {
        let token = self.cancel_token();
        let mut sql = statements.join("; ");
        sql.push_str("; KILL CONNECTION_ID()");
        let has_undo = statements != ["ROLLBACK"];
        // Twice, because the request cancels one statement, which may be one of these. If the application closes the connection
        // meanwhile, the server does not read the second: its answer to the first could not be sent.
        let mut messages = vec![sql.as_str(); 2];
        if has_undo {
            // The server skips what follows a statement that failed. Two requests may cancel two of these, if the table is locked.
            messages.push("ROLLBACK; KILL CONNECTION_ID()");
        }
        for message in messages {
            // The budget of the task that is dropped may be used up.
            let sent = pin!(unconstrained(self.batch_execute(message)));
            // It is sent at the first poll, unless the statement before is still being sent or its rows being read.
            let _ = sent.poll(&mut Context::from_waker(Waker::noop()));
        }
        *self.transaction_state() = AnsiTransactionManager::default();
        self.status().set_in_error();
        let first_pauses = if has_undo { UNDO_PAUSES } else { FIRST_PAUSES };
        end_dropped(cancel_until_gone(token, first_pauses));
    }

    /// When a server can't send the answer of the statement that is running, it ends the session and does not read what was
    /// sent after that statement: at once on a Unix socket. By TCP the first answer after the close counts as sent.
    #[cfg(feature = "_async_pool")]
    const STAYS_OPEN: bool = true;

    #[cfg(feature = "_async_pool")]
    async fn until_ended(&mut self) {
        for _ in 0..MOST_ANSWERS {
            let _answer_or_end = self.batch_execute("DO 0").await;
        }
    }
}

/// More than the messages that a dropped future and `abandon` have sent.
#[cfg(feature = "_async_pool")]
const MOST_ANSWERS: usize = 8;

/// The pauses before the first requests, in ms.
const FIRST_PAUSES: &[u64] = &[5, 20, 50, 100];

/// The same when a statement is sent that takes a lease back. A request during that statement would leave the slot held. It
/// takes a few ms. What runs before it waits for other sessions only while they add slots or have the table locked.
const UNDO_PAUSES: &[u64] = &[60];

/// The pause before each later request. A server that restarts takes longer, so that one of the requests does not reach it.
const PAUSE: Duration = Duration::from_millis(200);

const MOST_REQUESTS: usize = 80;

/// Cancels what the session runs, until it has ended.
///
/// A request names the session by its number only. A server that has restarted gives the same numbers to other sessions: so no
/// request follows one that did not reach the server. What was sent to the session ends it after its statement.
async fn cancel_until_gone(token: MysqlCancelToken, first_pauses: &[u64]) {
    let first = first_pauses.iter().copied().map(Duration::from_millis);
    for pause in first.chain(iter::repeat(PAUSE)).take(MOST_REQUESTS) {
        sleep(pause).await;
        let Some(requested) = cancel_in_turn(token.cancel_query()).await else {
            tracing::warn!(target: "diesel_locks::cancel", "a statement can't be cancelled: no answer");
            return;
        };
        if let Err(error) = requested {
            if names_session(&error) {
                return;
            }
            tracing::warn!(target: "diesel_locks::cancel", %error, "a statement can't be cancelled");
            if !is_answer(&error) {
                return;
            }
        }
    }
}

/// Whether the server has sent the error: it may have no room for one more connection.
fn is_answer(error: &ConnectionError) -> bool {
    matches!(error, ConnectionError::CouldntSetupConfiguration(_))
}

/// Whether the session has ended (`ER_NO_SUCH_THREAD`), or its number belongs to another user's (`ER_KILL_DENIED_ERROR`).
/// diesel-async hides the number of the error. Its text ends with the number of the session in each language of the server.
fn names_session(error: &ConnectionError) -> bool {
    is_answer(error)
        && error
            .to_string()
            .ends_with(|last: char| last.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use diesel::result::{DatabaseErrorKind, Error};

    use super::*;

    fn answer(text: &str) -> ConnectionError {
        let text = Box::new(text.to_owned());
        ConnectionError::CouldntSetupConfiguration(Error::DatabaseError(
            DatabaseErrorKind::Unknown,
            text,
        ))
    }

    #[test]
    fn end_of_a_session_is_known_in_any_language() {
        for text in [
            "Unknown thread id: 4711",
            "Unbekannte Thread-ID: 4711",
            "Finns ingen tråd med id 4711",
            "You are not owner of thread 4711",
        ] {
            assert!(names_session(&answer(text)), "{text}");
        }
        for text in ["Too many connections", "Zu viele Verbindungen"] {
            let error = answer(text);
            assert!(is_answer(&error) && !names_session(&error), "{text}");
        }
        let refused = "Input/output error: Connection refused (os error 111)".to_owned();
        let refused = ConnectionError::BadConnection(refused);
        assert!(!is_answer(&refused) && !names_session(&refused));
    }
}
