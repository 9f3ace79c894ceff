//! The pools of diesel-async.

use std::future::pending;
use std::ops::DerefMut;
use std::panic::resume_unwind;
use std::pin::pin;
use std::time::{Duration, Instant};

use diesel::connection::TransactionManagerStatus;
use futures_util::future::{Either, select};
use tokio::runtime::Handle;
use tokio::time::timeout;

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

/// How long the check of a connection takes at the longest. Its task has no other limit.
const LONGEST_CHECK: Duration = Duration::from_secs(10);

/// Whether the connection can be lent. If not, marks it as broken: the pool discards it, and does not notice by itself that a
/// statement of the application was dropped on it (MySQL).
async fn is_in_step<C: Link>(conn: &mut C) -> bool {
    let checked = timeout(LONGEST_CHECK, caught(conn.is_in_step())).await;
    let is_in_step = matches!(checked, Ok(Ok(true)));
    if !is_in_step {
        tracing::debug!(
            "a connection of the pool is discarded: it returns no answer, or that to another statement"
        );
        conn.status().set_in_error();
    }
    is_in_step
}

/// How long an abandoned connection stays open at the longest.
const LONGEST_END: Duration = Duration::from_secs(1);

/// Returns a connection to its pool, after the end of its session if [`Link::STAYS_OPEN`].
fn give_back_abandoned<C, K>(mut conn: impl DerefMut<Target = C> + Send + 'static, kept: K)
where
    C: Link,
    K: Send + 'static,
{
    let stays_open = C::STAYS_OPEN && matches!(conn.status(), TransactionManagerStatus::InError);
    // Without a runtime it is closed at once.
    if stays_open && let Ok(runtime) = Handle::try_current() {
        runtime.spawn(async move {
            let _ended = timeout(LONGEST_END, caught(conn.until_ended())).await;
            drop(conn);
            drop(kept);
        });
    } else {
        drop(conn);
        drop(kept);
    }
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
    let connection = pin!(timeout(limit, connection));
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
