//! `AsyncPgConnection`.

use std::iter;
use std::mem;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use diesel::QueryResult;
use diesel::connection::{TransactionDepthChange, TransactionManagerStatus};
use diesel::deserialize::FromSqlRow;
use diesel::expression::QueryMetadata;
use diesel::pg::Pg;
use diesel::query_builder::{AsQuery, Query, QueryFragment, QueryId};
use diesel_async::{AsyncConnectionCore, AsyncPgConnection, SimpleAsyncConnection};
use futures_util::future::join;
use tokio::time::{sleep, timeout};
use tokio_postgres::CancelToken;

use super::{client_server_link, rows};
use crate::cancel::{background, tls};
use crate::engine::untracked::{ASSERT_NO_TRANSACTION, untracked};
use crate::link::Link;

mod closed;

impl Link for AsyncPgConnection {
    client_server_link!(execute, load);

    const TRANSACTION_CHECK: Option<&'static str> = Some(ASSERT_NO_TRANSACTION);

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

    /// Takes the connection away, and leaves a closed one in its place: a pool discards that, and whoever goes on using it
    /// gets errors. So neither a cancel request nor what is sent here can meet another statement.
    fn abandon(&mut self, statements: &[&str]) {
        if is_closed(self) {
            // Its runtime may have ended before the future was dropped. The server does not notice during a statement.
            if !matches!(self.status(), TransactionManagerStatus::InError) {
                background::end(cancel_blindly(self.cancel_token()));
                self.status().set_in_error();
            }
            return;
        }
        let statements = statements.iter().map(|sql| (*sql).to_owned()).collect();
        match closed::connection() {
            Some(closed) => background::end(end(mem::replace(self, closed), statements)),
            // A pool closes the connection, which rolls back when its statement has ended.
            None => background::end(cancel_blindly(self.cancel_token())),
        }
        self.status().set_in_error();
    }
}

/// Runs a statement that changes rows. Outside of a transaction, a query is sent with it that fails in one that diesel-async
/// does not count, and so has the statement fail.
async fn execute<Q>(conn: &mut AsyncPgConnection, statement: Q) -> QueryResult<usize>
where
    Q: QueryFragment<Pg> + QueryId + Send,
{
    if counts_transactions(conn) {
        return conn.execute_returning_count(statement).await;
    }
    let (mut checking, mut executing) = (&*conn, &*conn);
    let check = checking.batch_execute(ASSERT_NO_TRANSACTION);
    let (check, count) = join(check, executing.execute_returning_count(statement)).await;
    tracked(check).and(count)
}

/// [`execute`] for a statement that returns rows.
async fn load<Q, T>(conn: &mut AsyncPgConnection, query: Q) -> QueryResult<Vec<T>>
where
    Q: AsQuery<Query: QueryFragment<Pg> + QueryId + Send> + Send,
    Pg: QueryMetadata<Q::SqlType>,
    T: FromSqlRow<Q::SqlType, Pg> + Send,
{
    if counts_transactions(conn) {
        return rows(conn, query).await;
    }
    let (mut checking, mut reading) = (&*conn, &*conn);
    let check = checking.batch_execute(ASSERT_NO_TRANSACTION);
    let (check, read) = join(check, rows(&mut reading, query)).await;
    tracked(check).and(read)
}

fn counts_transactions(conn: &mut AsyncPgConnection) -> bool {
    conn.status()
        .transaction_depth()
        .is_ok_and(|depth| depth.is_some())
}

/// Any other error of the check says nothing about the statement.
fn tracked(check: QueryResult<()>) -> QueryResult<()> {
    match check.map_err(untracked) {
        Err(Ok(untracked)) => Err(untracked.into()),
        _ => Ok(()),
    }
}

/// Whether the client refuses to send. If not, it sends an empty statement, which has no effect.
fn is_closed(conn: &mut AsyncPgConnection) -> bool {
    let sent = pin!(conn.batch_execute(""));
    let polled = sent.poll(&mut Context::from_waker(Waker::noop()));
    matches!(polled, Poll::Ready(Err(_)))
}

/// The first pause before a cancel request, and the longest. Most connections are between two statements or in a short one,
/// and need no request.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The first pause when no other statement can be running: the statement itself is to be given time.
const OWN_PAUSE: Duration = Duration::from_secs(1);

/// The requests for a statement that does not end. The runtime of the connection may not run any more.
const MOST_REQUESTS: u32 = 30;

/// How often a statement is sent again that was cancelled in place of the one before.
const MOST_REPETITIONS: u32 = 5;

/// Runs the statements after all that were sent before, which it cancels.
async fn end(mut conn: AsyncPgConnection, statements: Vec<String>) {
    let token = conn.cancel_token();
    let first_pauses = iter::once(FIRST_PAUSE).chain(iter::repeat(OWN_PAUSE));
    for (sql, first_pause) in statements.iter().zip(first_pauses) {
        let mut repetitions = 0;
        loop {
            let answer = cancel_until_answered(&mut conn, sql, &token, first_pause).await;
            let Some(answer) = answer else {
                tracing::warn!(target: "diesel_locks::cancel", "no answer to {sql}: the connection is closed");
                return;
            };
            let Err(error) = answer else {
                break;
            };
            repetitions += 1;
            if is_closed(&mut conn) {
                return cancel_blindly(token).await;
            }
            if repetitions > MOST_REPETITIONS {
                tracing::warn!(target: "diesel_locks::cancel", %error, "a connection is closed");
                return;
            }
        }
    }
}

/// Runs a statement, and cancels what runs before it. A request has no effect on a session whose statement has not
/// started, so it is repeated. `None` if the server does not answer for a minute.
async fn cancel_until_answered(
    conn: &mut AsyncPgConnection,
    sql: &str,
    token: &CancelToken,
    first_pause: Duration,
) -> Option<QueryResult<()>> {
    let mut answer = pin!(conn.batch_execute(sql));
    let mut pause = first_pause;
    for _ in 0..MOST_REQUESTS {
        if let Ok(answer) = timeout(pause, &mut answer).await {
            return Some(answer);
        }
        cancel(token).await;
        pause = (pause * 4).min(LONGEST_PAUSE);
    }
    None
}

/// Cancels the statement of a session whose connection is closed, so that nobody can say when it has ended.
async fn cancel_blindly(token: CancelToken) {
    for pause in [0, 50, 500] {
        sleep(Duration::from_millis(pause)).await;
        cancel(&token).await;
    }
}

async fn cancel(token: &CancelToken) {
    if let Some(Err(error)) = background::request(tls::cancel(token.clone())).await {
        tracing::warn!(target: "diesel_locks::cancel", %error, "a statement can't be cancelled");
    }
}
