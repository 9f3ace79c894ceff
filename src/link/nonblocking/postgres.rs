//! `AsyncPgConnection`.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{PoisonError, RwLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use std::{io, iter, mem};

use diesel::QueryResult;
use diesel::connection::{TransactionDepthChange, TransactionManagerStatus};
use diesel::deserialize::FromSqlRow;
use diesel::expression::QueryMetadata;
use diesel::pg::Pg;
use diesel::query_builder::{AsQuery, Query, QueryFragment, QueryId};
use diesel_async::{
    AsyncConnectionCore, AsyncPgConnection, SimpleAsyncConnection, TransactionManager,
};
use futures_util::future::{Either, join, select};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::unconstrained;
use tokio::time::{sleep, timeout};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{CancelToken, Config, NoTls, Socket};

use crate::link::Link;
use crate::link::nonblocking::{cancel_in_turn, client_server_link, end_dropped, rows};
use crate::link::raw_sql::{ASSERT_BEGUN, untracked};

impl Link for AsyncPgConnection {
    client_server_link!();

    const TRANSACTION_CHECK: Option<&'static str> = Some(ASSERT_BEGUN);

    async fn execute<Q>(&mut self, statement: Q) -> QueryResult<usize>
    where
        Q: QueryFragment<Pg> + QueryId + Send,
    {
        let is_open = counts_transactions(self);
        let mut executing = &*self;
        tracked(self, is_open, executing.execute_returning_count(statement)).await
    }

    async fn load<Q, T>(&mut self, query: Q) -> QueryResult<Vec<T>>
    where
        Q: AsQuery<Query: QueryFragment<Pg> + QueryId + Send> + Send,
        Pg: QueryMetadata<Q::SqlType>,
        T: FromSqlRow<Q::SqlType, Pg> + Send,
    {
        let is_open = counts_transactions(self);
        let mut reading = &*self;
        tracked(self, is_open, rows(&mut reading, query)).await
    }

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
                end_dropped(cancel_blindly(self.cancel_token()));
                self.status().set_in_error();
            }
            return;
        }
        let statements = statements.iter().map(|sql| (*sql).to_owned()).collect();
        match closed_connection() {
            Some(closed) => end_dropped(end(mem::replace(self, closed), statements)),
            // A pool closes the connection, which rolls back when its statement has ended.
            None => end_dropped(cancel_blindly(self.cancel_token())),
        }
        self.status().set_in_error();
    }
}

fn counts_transactions(conn: &mut AsyncPgConnection) -> bool {
    conn.status()
        .transaction_depth()
        .is_ok_and(|depth| depth.is_some())
}

/// Runs the statement. Outside of a transaction, a query is sent with it that fails in one that diesel-async does not count, and so
/// has the statement fail.
async fn tracked<T>(
    mut conn: &AsyncPgConnection,
    is_open: bool,
    statement: impl Future<Output = QueryResult<T>>,
) -> QueryResult<T> {
    if is_open {
        return statement.await;
    }
    let (check, outcome) = join(conn.batch_execute(ASSERT_BEGUN), statement).await;
    match check.map_err(untracked) {
        Err(Ok(untracked)) => Err(untracked.into()),
        // Any other error of the check says nothing about the statement.
        _ => outcome,
    }
}

/// Whether the client refuses to send. If not, it sends an empty statement, which has no effect.
fn is_closed(conn: &mut AsyncPgConnection) -> bool {
    let sent = pin!(conn.batch_execute(""));
    let polled = sent.poll(&mut Context::from_waker(Waker::noop()));
    matches!(polled, Poll::Ready(Err(_)))
}

/// The first pause before a cancel request, and the longest. Most connections run a short statement, or none, and need no request.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The first pause when no other statement can be running: the statement itself is to be given time.
const OWN_PAUSE: Duration = Duration::from_secs(1);

/// How long a statement is waited for that does not end. The runtime of the connection may not run any more.
const LONGEST_END: Duration = Duration::from_secs(60);

/// How often a statement is sent again that was cancelled in place of the one before.
const MOST_REPETITIONS: u32 = 5;

/// Runs the statements after all that were sent before, which it cancels.
async fn end(mut conn: AsyncPgConnection, statements: Vec<String>) {
    let token = conn.cancel_token();
    let first_pauses = iter::once(FIRST_PAUSE).chain(iter::repeat(OWN_PAUSE));
    for (sql, first_pause) in statements.iter().zip(first_pauses) {
        for repetition in 0.. {
            let answer = cancel_until_answered(&mut conn, sql, &token, first_pause).await;
            let Some(answer) = answer else {
                tracing::warn!(target: "diesel_locks::cancel", "no answer to {sql}: the connection is closed");
                return;
            };
            let Err(error) = answer else {
                break;
            };
            if is_closed(&mut conn) {
                return cancel_blindly(token).await;
            }
            if repetition == MOST_REPETITIONS {
                tracing::warn!(target: "diesel_locks::cancel", %error, "a connection is closed");
                return;
            }
        }
    }
}

/// Runs a statement, and cancels what runs before it. `None` if the server does not answer for a minute.
async fn cancel_until_answered(
    conn: &mut AsyncPgConnection,
    sql: &str,
    token: &CancelToken,
    first_pause: Duration,
) -> Option<QueryResult<()>> {
    let cancelled = async {
        let mut pause = first_pause;
        loop {
            sleep(pause).await;
            cancel(token).await;
            pause = (pause * 4).min(LONGEST_PAUSE);
        }
    };
    let (answer, cancelled) = (pin!(conn.batch_execute(sql)), pin!(cancelled));
    let ended = timeout(LONGEST_END, select(answer, cancelled)).await;
    let Either::Left((answer, _)) = ended.ok()?;
    Some(answer)
}

/// Cancels the statement of a session whose connection is closed, so that nobody can say when it has ended.
async fn cancel_blindly(token: CancelToken) {
    for pause in [0, 50, 500] {
        sleep(Duration::from_millis(pause)).await;
        cancel(&token).await;
    }
}

async fn cancel(token: &CancelToken) {
    let encrypted = {
        let cancel = ENCRYPTED.read().unwrap_or_else(PoisonError::into_inner);
        cancel.as_ref().map(|cancel| cancel(token.clone()))
    };
    let request = async {
        match encrypted {
            Some(request) => request.await,
            None => token.cancel_query(NoTls).await,
        }
    };
    if let Some(Err(error)) = cancel_in_turn(request).await {
        tracing::warn!(target: "diesel_locks::cancel", %error, "a statement can't be cancelled");
    }
}

type Cancelling = Pin<Box<dyn Future<Output = Result<(), tokio_postgres::Error>> + Send>>;

type Cancel = Box<dyn Fn(CancelToken) -> Cancelling + Send + Sync>;

static ENCRYPTED: RwLock<Option<Cancel>> = RwLock::new(None);

/// Encrypts the requests by which a dropped future has PostgreSQL cancel its statement.
///
/// A request is a connection of its own, and diesel-async does not tell how a connection was encrypted. Call this once, when
/// the application starts, with the TLS connector of its connections. Without this call, [cancel
/// requests](crate::operation::dropped_futures#cancel-requests) are sent unencrypted, as libpq's `PQcancel` does. PostgreSQL accepts
/// them. They fail if the URL has `sslmode=require`: that is logged as a warning, with the target `diesel_locks::cancel`, and the
/// statement runs until it ends by itself. They have no effect, which nothing reports, if the URL has another `sslmode` and a proxy
/// requires TLS.
///
/// For the whole process; a later call replaces what an earlier one has set. MySQL and MariaDB need no such call: their
/// requests are encrypted as the connection is.
///
/// ```
/// # use tokio_postgres::NoTls;
/// # struct MakeRustlsConnect;
/// # impl MakeRustlsConnect { fn new(_: ()) -> NoTls { NoTls } }
/// # let client_config = ();
/// let tls = MakeRustlsConnect::new(client_config); // of tokio-postgres-rustls, for example
/// diesel_locks::set_cancel_tls(tls.clone());
/// // `tls` also goes into the `custom_setup` of the pool's `ManagerConfig`.
/// ```
///
/// [With diesel-async](https://github.com/diesel-locks/diesel-locks/blob/main/docs/async.md#tls) shows such a pool.
#[doc(alias("sslmode", "ssl", "rustls", "cancel_query"))]
pub fn set_cancel_tls<T>(tls: T)
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::TlsConnect: Send,
    T::Stream: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    let cancel = move |token: CancelToken| -> Cancelling {
        let tls = tls.clone();
        Box::pin(async move { token.cancel_query(tls).await })
    };
    *ENCRYPTED.write().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(cancel));
}

/// More polls than a connection needs to be set up, each of which does all that can be done.
const MOST_POLLS: usize = 100;

/// A closed connection, which takes the place of one whose future was dropped. `None` if the set-up needs more than [`Server`]
/// answers.
///
/// diesel-async makes connections from a client of `tokio-postgres` alone, and that makes clients on connections to a server
/// alone. So the server answers, in memory, what both send to set up a connection.
fn closed_connection() -> Option<AsyncPgConnection> {
    let mut set_up = pin!(unconstrained(set_up()));
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..MOST_POLLS {
        if let Poll::Ready(conn) = set_up.as_mut().poll(&mut context) {
            return conn;
        }
    }
    None
}

async fn set_up() -> Option<AsyncPgConnection> {
    let mut config = Config::new();
    config.user("closed");
    let connected = config.connect_raw(Server::default(), NoTls).await;
    let (client, mut server) = connected.ok()?;
    let mut conn = pin!(AsyncPgConnection::try_from(client));
    let conn = poll_fn(|context| {
        let polled = conn.as_mut().poll(context);
        if polled.is_pending() {
            let _ = server.poll_message(context);
        }
        polled
    });
    // The end of `server` closes it.
    conn.await.ok()
}

/// A server that accepts each user and each statement.
#[derive(Default)]
struct Server {
    is_started: bool,
    received: Vec<u8>,
    answers: Vec<u8>,
}

const AUTHENTICATION_OK: &[u8] = b"R\0\0\0\x08\0\0\0\0";
const READY_FOR_QUERY: &[u8] = b"Z\0\0\0\x05I";
const PARSE_COMPLETE: &[u8] = b"1\0\0\0\x04";
const NO_PARAMETERS: &[u8] = b"t\0\0\0\x06\0\0";
const NO_DATA: &[u8] = b"n\0\0\0\x04";
const BIND_COMPLETE: &[u8] = b"2\0\0\0\x04";
const COMMAND_COMPLETE: &[u8] = b"C\0\0\0\x08SET\0";
const CLOSE_COMPLETE: &[u8] = b"3\0\0\0\x04";

impl Server {
    /// Answers the complete messages.
    fn answer(&mut self) {
        loop {
            // The first message has no type.
            let of_type = usize::from(self.is_started);
            let Some(length) = self.received.get(of_type..of_type + 4) else {
                return;
            };
            let length = length
                .iter()
                .fold(0, |length, byte| length << 8 | usize::from(*byte));
            if self.received.len() < of_type + length {
                return;
            }
            let message: Vec<u8> = self.received.drain(..of_type + length).collect();
            let answers: &[&[u8]] = match message.first() {
                _ if !self.is_started => &[AUTHENTICATION_OK, READY_FOR_QUERY],
                Some(b'P') => &[PARSE_COMPLETE],
                Some(b'D') => &[NO_PARAMETERS, NO_DATA],
                Some(b'B') => &[BIND_COMPLETE],
                Some(b'E') => &[COMMAND_COMPLETE],
                Some(b'C') => &[CLOSE_COMPLETE],
                Some(b'S') => &[READY_FOR_QUERY],
                Some(b'Q') => &[COMMAND_COMPLETE, READY_FOR_QUERY],
                _ => &[],
            };
            self.is_started = true;
            for answer in answers {
                self.answers.extend_from_slice(answer);
            }
        }
    }
}

impl AsyncRead for Server {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let length = self.answers.len().min(buffer.remaining());
        if length == 0 {
            return Poll::Pending;
        }
        let answers: Vec<u8> = self.answers.drain(..length).collect();
        buffer.put_slice(&answers);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Server {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.received.extend_from_slice(bytes);
        self.answer();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use diesel::result::{DatabaseErrorKind, Error};

    use super::*;

    #[test]
    fn statements_fail_at_once() {
        let mut conn = closed_connection().expect("a connection without a server");
        let statement = pin!(conn.batch_execute("SELECT 1"));
        let Poll::Ready(Err(error)) = statement.poll(&mut Context::from_waker(Waker::noop()))
        else {
            panic!("the connection is open");
        };
        let Error::DatabaseError(kind, _) = error else {
            panic!("{error}");
        };
        assert!(matches!(
            kind,
            DatabaseErrorKind::ClosedConnection | DatabaseErrorKind::UnableToSendCommand
        ));
    }
}
