//! The pools of diesel-async.

#[cfg(feature = "deadpool")]
mod deadpool;
#[cfg(all(test, feature = "async-sqlite", feature = "bb8", feature = "deadpool"))]
mod tests;

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
use crate::error::{AsyncPoolError, PoolStep};
use crate::link::Link;
use crate::rt::caught;
use crate::rt::permits::Permit;
use crate::rt::stop_token::StopToken;
use crate::rt::task::spawn_apart;

/// Implements [`Pool`](crate::Pool) for bb8's pool of each kind of connection, and not once for all: that takes a trait of the
/// crate `bb8`, which diesel-async does not export.
#[cfg(feature = "bb8")]
macro_rules! lend_from_bb8 {
    ($($(#[$cfg:meta])* $conn:ty),+ $(,)?) => {$(
        $(#[$cfg])*
        impl crate::Pool for diesel_async::pooled_connection::bb8::Pool<$conn> {
            type Connection = $conn;
            type Style = crate::Async;
            type Lent = diesel_async::pooled_connection::bb8::PooledConnection<'static, $conn>;

            const BLOCKS: bool = false;

            async fn lend(
                &self,
                limit: Duration,
                stop: Option<&StopToken>,
                permit: Option<Permit>,
            ) -> crate::pools::Lending<Self::Lent> {
                let pool = self.clone();
                let taken = on_task(async move {
                    // All that are in the pool, and a new one.
                    for _ in 0..=pool.config().max_size {
                        let mut conn = pool.get_owned().await?;
                        if is_in_step(&mut *conn).await {
                            return Ok((conn, permit));
                        }
                    }
                    let timed_out = diesel_async::pooled_connection::bb8::RunError::TimedOut;
                    Err(AsyncPoolError::from(timed_out))
                });
                get(limit, stop, || None, taken).await
            }

            fn give_back_abandoned(conn: Self::Lent, permit: Option<Permit>) {
                give_back_abandoned(conn, permit);
            }

            fn droppable<T: Send>(
                work: impl Future<Output = T> + Send,
            ) -> impl Future<Output = T> + Send {
                <$conn as Link>::droppable(work)
            }

            fn spawn(
                _: &str,
                apart: bool,
                work: impl Future<Output = ()> + Send + 'static,
            ) -> std::io::Result<()> {
                spawn(apart, work);
                Ok(())
            }

            fn timeout(&self) -> Duration {
                self.config().connection_timeout
            }

            fn max_size(&self) -> usize {
                usize::try_from(self.config().max_size).unwrap_or(usize::MAX)
            }
        }
    )+};
}

#[cfg(feature = "bb8")]
lend_from_bb8!(
    #[cfg(feature = "async-postgres")]
    diesel_async::AsyncPgConnection,
    #[cfg(feature = "async-mysql")]
    diesel_async::AsyncMysqlConnection,
    #[cfg(feature = "async-sqlite")]
    diesel_async::sync_connection_wrapper::SyncConnectionWrapper<diesel::SqliteConnection>,
);

fn spawn(apart: bool, work: impl Future<Output = ()> + Send + 'static) {
    match Handle::try_current() {
        Ok(runtime) if !apart => drop(runtime.spawn(work)),
        // Or a destructor, on any thread.
        _ => spawn_apart(work),
    }
}

/// Takes a connection from the pool in a task of its own. If the caller is dropped, the task continues, and returns the
/// connection to the pool. A check of a connection must not be dropped: bb8 would take the connection for a good one, and lend
/// it again; on MySQL its next user would get the answer of the check.
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

fn give_back_abandoned<C: Link>(
    mut conn: impl DerefMut<Target = C> + Send + 'static,
    permit: Option<Permit>,
) {
    let stays_open = C::STAYS_OPEN && matches!(conn.status(), TransactionManagerStatus::InError);
    // Without a runtime it is closed at once.
    if stays_open && let Ok(runtime) = Handle::try_current() {
        runtime.spawn(async move {
            let _ended = timeout(LONGEST_END, caught(conn.until_ended())).await;
            drop(conn);
            drop(permit);
        });
    } else {
        drop(conn);
        drop(permit);
    }
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
        Ok(Err(AsyncPoolError::TimedOut { .. })) | Err(_) => {
            let error = AsyncPoolError::TimedOut {
                waited: Some(started.elapsed()),
                step: awaited(),
            };
            Err(error.into())
        }
        Ok(Err(error)) => Err(error.into()),
    }
}
