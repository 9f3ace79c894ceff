//! The pools of diesel-async.

use std::future::pending;
use std::panic::resume_unwind;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};

use crate::Error;
use crate::error::async_pool::{AsyncPoolError, PoolStep};
use crate::link::Link;
use crate::poll::caught;
use crate::stop::StopToken;

#[cfg(feature = "bb8")]
mod bb8;
#[cfg(feature = "deadpool")]
mod deadpool;
#[cfg(feature = "deadpool")]
mod in_turn;

/// Implements [`Lender`](super::Lender) and [`AsyncPool`](crate::AsyncPool) by a macro for each engine: the pools themselves
/// are implemented for connections with traits that diesel-async does not export.
macro_rules! for_each_connection {
    ($implement:ident) => {
        #[cfg(feature = "async-postgres")]
        $implement!(diesel_async::AsyncPgConnection);
        #[cfg(feature = "async-mysql")]
        $implement!(diesel_async::AsyncMysqlConnection);
        #[cfg(feature = "async-sqlite")]
        $implement!(
            diesel_async::sync_connection_wrapper::SyncConnectionWrapper<
                diesel::sqlite::SqliteConnection,
            >
        );
    };
}
use for_each_connection;

/// Takes a connection from the pool in a task of its own. If the caller is dropped, the task continues, and returns the connection
/// to the pool. A check of a connection must not be dropped: bb8 would take the connection for a good one, and lend it again. One
/// of which the server does not answer would so be lent for ever, and one to MySQL would get the answer of the check next. On
/// SQLite diesel-async panics on a runtime with one thread.
async fn on_task<T: Send + 'static>(taken: impl Future<Output = T> + Send + 'static) -> T {
    match tokio::spawn(taken).await {
        Ok(taken) => taken,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime is shut down: it drops the caller too.
            Err(_) => pending().await,
        },
    }
}

/// Whether the connection can be lent. If not, marks it as broken: the pool discards it, and does not notice by itself that a
/// statement of the application was dropped on it (MySQL).
async fn is_in_step<C: Link>(conn: &mut C) -> bool {
    let is_in_step = caught(conn.is_in_step()).await.unwrap_or(false);
    if !is_in_step {
        tracing::debug!(
            "a connection of the pool is discarded: it returns answers to other statements"
        );
        conn.status().set_in_error();
    }
    is_in_step
}

/// The error of a request that waited for its turn before the pool's queue, for this time.
fn timed_out(waited: Duration) -> Error {
    AsyncPoolError::TimedOut {
        waited: Some(waited),
        step: Some(PoolStep::Queue),
    }
    .into()
}

/// Waits for a connection until the time is up; returns `None` after a stop. `awaited` tells what is waited for then.
async fn get<T>(
    limit: Duration,
    stop: Option<&StopToken>,
    awaited: impl Fn() -> Option<PoolStep>,
    connection: impl Future<Output = Result<T, AsyncPoolError>> + Send,
) -> Result<Option<T>, Error> {
    let started = Instant::now();
    let connection = pin!(tokio::time::timeout(limit, connection));
    let got = match stop {
        None => connection.await,
        Some(stop) => match select(connection, pin!(stop.stopped())).await {
            Either::Left((got, _)) => got,
            Either::Right(((), _)) => return Ok(None),
        },
    };
    match got {
        Ok(Ok(connection)) => Ok(Some(connection)),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(AsyncPoolError::TimedOut {
            waited: Some(started.elapsed()),
            step: awaited(),
        }
        .into()),
    }
}

#[cfg(all(test, feature = "async-sqlite", feature = "bb8", feature = "deadpool"))]
mod tests;
