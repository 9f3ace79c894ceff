//! `AsyncMysqlConnection`.

use std::iter;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use diesel::dsl::select;
use diesel::sql_types::BigInt;
use diesel::{ConnectionError, IntoSql, QueryResult};
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

    /// The answers of the text protocol to one statement look like those to any other.
    async fn is_in_step(&mut self) -> bool {
        let number = fastrand::i64(..);
        let answer: QueryResult<Vec<i64>> = self.load(select(number.into_sql::<BigInt>())).await;
        answer.is_ok_and(|answer| answer == [number])
    }

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
        background::end(cancel_until_gone(token));
    }
}

/// The pauses before the first requests, in ms. Most connections are between two statements or in a short one.
const FIRST_PAUSES: [u64; 4] = [5, 20, 50, 100];

/// The pause before each later request. A server that restarts takes longer, so that one of the requests does not reach it.
const PAUSE: Duration = Duration::from_millis(200);

const MOST_REQUESTS: usize = 80;

/// Cancels what the session runs, until it has ended. A request has no effect on a session whose statement has not started,
/// so it is repeated.
///
/// A request names the session by its number only. A server that has restarted gives the same numbers to other sessions: so no
/// request follows one that did not reach the server. What was sent to the session ends it after its statement.
async fn cancel_until_gone(token: MysqlCancelToken) {
    let first = FIRST_PAUSES.into_iter().map(Duration::from_millis);
    for pause in first.chain(iter::repeat(PAUSE)).take(MOST_REQUESTS) {
        sleep(pause).await;
        let Some(requested) = background::request(token.cancel_query()).await else {
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
