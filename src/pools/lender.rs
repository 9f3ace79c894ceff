//! The pools of which lock pools and renewers borrow connections, and how their methods wait.

#[cfg(all(
    any(feature = "bb8", feature = "deadpool"),
    any(
        feature = "async-postgres",
        feature = "async-mysql",
        feature = "async-sqlite"
    )
))]
mod asynchronous;
#[cfg(feature = "r2d2")]
pub(crate) mod r2d2;

use std::io;
use std::ops::DerefMut;
use std::time::Duration;

use crate::Error;
#[cfg(feature = "_async_pool")]
use crate::engine::HasAsyncEngine;
use crate::engine::HasEngine;
use crate::rt::stop_token::StopToken;

/// Lends connections. Sealed: the module is private.
#[cfg_attr(
    not(feature = "_async_pool"),
    allow(unreachable_pub, reason = "in the public trait `AsyncPool`")
)]
pub trait Lender: Send + Sync + 'static {
    type Connection: HasEngine + 'static;

    /// Whether its connections block. Then their futures are ready at once, and what runs in the background has a thread.
    type Style: Style;

    type Lent: DerefMut<Target = Self::Connection> + Send + 'static;

    /// Borrows a connection. Waits for one until the time-out of the pool or `limit`, whichever is shorter, or until the stop:
    /// then returns `None`. Returns `kept` with the connection. Otherwise drops it when the request has left the queue of the
    /// pool, which may be after the end of this call.
    fn lend<K: Send + 'static>(
        &self,
        limit: Duration,
        stop: Option<&StopToken>,
        kept: K,
    ) -> impl Future<Output = Result<Option<(Self::Lent, K)>, Error>> + Send;

    /// Returns a connection to the pool, and drops `kept` afterwards. One that a dropped future has abandoned stays open until
    /// the session has done what is left to do.
    fn give_back_abandoned<K: Send + 'static>(conn: Self::Lent, kept: K) {
        drop(conn);
        drop(kept);
    }

    /// Work that uses connections, as a future that is ready at once if these block.
    fn drive<T: Send>(work: impl Future<Output = T> + Send) -> impl Future<Output = T> + Send {
        work
    }

    /// Runs work in the background: on a thread with this name, or as a task of the caller's runtime, which drops it when it is
    /// shut down. `apart`: not on a runtime of the application. Drops the work if it can't be started.
    fn spawn(
        name: &str,
        apart: bool,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()>;

    /// The error of a request that got no connection in this time. `None` if only the pool itself can make it.
    fn timed_out(&self, waited: Duration) -> Option<Error>;

    /// How long [`lend`](Self::lend) waits for a connection at the longest.
    fn timeout(&self) -> Duration;

    fn max_size(&self) -> usize;
}

/// How the methods over a pool wait: [`Blocking`] or `Async`. Sealed.
pub trait Style: Send + Sync + 'static {
    /// Whether they block the thread.
    #[doc(hidden)]
    const BLOCKS: bool;
}

/// Methods block the thread: on r2d2's pool.
#[derive(Clone, Copy, Debug)]
pub enum Blocking {}

impl Style for Blocking {
    const BLOCKS: bool = true;
}

/// Methods return futures: on the pools of diesel-async. Feature `bb8` or `deadpool`.
#[cfg(feature = "_async_pool")]
#[derive(Clone, Copy, Debug)]
pub enum Async {}

#[cfg(feature = "_async_pool")]
impl Style for Async {
    const BLOCKS: bool = false;
}

/// A pool of connections: r2d2's, or an `AsyncPool`. Sealed.
pub trait Pool: Lender + Clone {}

impl<P: Lender + Clone> Pool for P {}

/// A pool of asynchronous connections.
///
/// One of diesel-async, with `AsyncPgConnection`, `AsyncMysqlConnection` or `SyncConnectionWrapper<SqliteConnection>` as `C`.
///
/// | feature | pool | how long a request waits for a connection |
/// |---|---|---|
/// | `bb8` | `diesel_async::pooled_connection::bb8::Pool<C>` | `connection_timeout`, 30 s by default |
/// | `deadpool` | `diesel_async::pooled_connection::deadpool::Pool<C>` | `Timeouts::wait`, but 200 ms at least, in which the pool opens or checks one; 30 s if it is not set |
///
/// Sealed. A pool that gives no connection is [`Error::AsyncPool`](crate::Error::AsyncPool), into which the error of the
/// application's own `pool.get().await?` is converted too, so that both are answered alike
/// ([`Error::is_busy`](crate::Error::is_busy)).
///
/// A request that has ended, because its time is up or its future was dropped, leaves the queue of deadpool. It stays in that
/// of bb8 0.9 for up to `connection_timeout`, because a check of a connection must not be dropped; a `LockPool` of four or more
/// connections leaves fewer such requests than the pool has connections. When a runtime is shut down while bb8 opens a
/// connection in it, that place of the pool is lost: use a pool in one runtime.
///
/// A connection that is in use when its future is dropped is not returned: see
/// [Dropped futures](crate::operation::dropped_futures).
#[cfg(feature = "_async_pool")]
#[diagnostic::on_unimplemented(
    message = "`diesel-locks` can't use `{Self}` as a pool of asynchronous connections",
    label = "not `bb8::Pool` or `deadpool::Pool` of `diesel_async::pooled_connection`, or a feature is off",
    note = "enable the features of `diesel-locks` for the pool (`bb8`, `deadpool`) and for its connections \
            (`async-postgres`, `async-mysql`, `async-sqlite`)"
)]
pub trait AsyncPool: Pool + Lender<Style = Async, Connection: HasAsyncEngine> {}
