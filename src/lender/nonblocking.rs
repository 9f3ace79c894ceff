//! The pools of diesel-async.

use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};

use crate::Error;
use crate::error::async_pool::AsyncPoolError;
use crate::stop::StopToken;

#[cfg(feature = "bb8")]
mod bb8;
#[cfg(feature = "deadpool")]
mod deadpool;

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

/// Waits for a connection until the time is up; returns `None` after a stop.
async fn get<T>(
    limit: Duration,
    stop: Option<&StopToken>,
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
            waited: started.elapsed(),
        }
        .into()),
    }
}

#[cfg(all(test, feature = "async-sqlite", feature = "bb8", feature = "deadpool"))]
mod tests;
