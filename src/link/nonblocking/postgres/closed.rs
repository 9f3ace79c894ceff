//! A closed connection, which takes the place of one whose future was dropped: the real one is taken away from the
//! application, to roll back and to cancel what runs on it.
//!
//! diesel-async makes connections from a client of `tokio-postgres` alone, and that makes clients on connections to a server
//! alone. So this answers what both send to set up a connection, in memory.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use diesel_async::AsyncPgConnection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::unconstrained;
use tokio_postgres::{Config, NoTls};

/// More polls than a connection needs to be set up, each of which does all that can be done.
const MOST_POLLS: usize = 100;

/// `None` if the set-up needs more than [`Server`] answers.
pub(crate) fn connection() -> Option<AsyncPgConnection> {
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
    use diesel_async::SimpleAsyncConnection;

    use super::*;

    #[test]
    fn statements_fail_at_once() {
        let mut conn = connection().expect("a connection without a server");
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
