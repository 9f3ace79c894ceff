//! Waits without a connection. Here are the pools of which connections are borrowed for the attempts of waits.

#[cfg(all(
    any(feature = "bb8", feature = "deadpool"),
    any(
        feature = "async-postgres",
        feature = "async-mysql",
        feature = "async-sqlite"
    )
))]
mod asynchronous;
pub(crate) mod connections;
pub(crate) mod object_waits;
#[cfg(feature = "r2d2")]
pub(crate) mod r2d2;
pub(crate) mod slot_waits;

use std::io;
use std::ops::DerefMut;
use std::time::Duration;

use crate::Error;
use crate::engine::HasEngine;
use crate::rt::permits::Permit;
use crate::rt::stop_token::StopToken;

/// A pool of connections: of those of Diesel or of diesel-async.
///
/// | feature | pool | `Style` | how long a request waits for a connection |
/// |---|---|---|---|
/// | `r2d2` | `diesel::r2d2::Pool<ConnectionManager<C>>` | [`Blocking`] | `connection_timeout`, 30 s by default |
/// | `bb8` | `diesel_async::pooled_connection::bb8::Pool<C>` | `Async` | `connection_timeout`, 30 s by default |
/// | `deadpool` | `diesel_async::pooled_connection::deadpool::Pool<C>` | `Async` | `Timeouts::wait`, but 200 ms at least, in which the pool opens or checks one; 30 s if it is not set |
///
/// `C` is `AsyncPgConnection`, `AsyncMysqlConnection` or `SyncConnectionWrapper<SqliteConnection>` in the pools of diesel-async. A
/// function that is generic over them has the bound `Pool<Style = Async>`, and `Connection: AsyncSequenceExt`, for example, if
/// its closures use such methods. Sealed.
///
/// A pool of diesel-async that gives no connection is `Error::AsyncPool`, into which the error of the
/// application's own `pool.get().await?` is converted too, so that both are answered alike
/// ([`Error::is_busy`](crate::Error::is_busy)).
///
/// A request that has ended, because its time is up or its future was dropped, leaves the queue of deadpool. It stays in that
/// of bb8 0.9 for up to `connection_timeout`, because a check of a connection must not be dropped; a `LockPool` of four or more
/// connections leaves fewer such requests than the pool has connections.
///
/// A connection that is in use when its future is dropped is not returned: see `operation::dropped_futures`.
#[diagnostic::on_unimplemented(
    message = "`diesel-locks` can't use `{Self}` as a pool",
    label = "not `diesel::r2d2::Pool`, or `bb8::Pool` or `deadpool::Pool` of `diesel_async::pooled_connection`, or a feature is off",
    note = "enable the features of `diesel-locks` for the pool (`r2d2`, `bb8`, `deadpool`) and for its connections \
            (`postgres`, `mysql`, `sqlite`, `async-postgres`, `async-mysql`, `async-sqlite`)"
)]
pub trait Pool: Clone + Send + Sync + 'static {
    /// The connections of the pool.
    type Connection: HasEngine + 'static;

    /// How the methods over this pool wait: [`Blocking`] or `Async`.
    type Style;

    /// Whether its connections block. Then their futures are ready at once, and what runs in the background has a thread.
    #[doc(hidden)]
    const BLOCKS: bool;

    #[doc(hidden)]
    type Lent: DerefMut<Target = Self::Connection> + Send + 'static;

    /// Borrows a connection. Waits for one until the time-out of the pool or `limit`, whichever is shorter, or until the stop:
    /// then returns `None`. Returns the permit with the connection. Otherwise drops it when the request has left the queue of
    /// the pool, which may be after the end of this call.
    #[doc(hidden)]
    fn lend(
        &self,
        limit: Duration,
        stop: Option<&StopToken>,
        permit: Option<Permit>,
    ) -> impl Future<Output = Lending<Self::Lent>> + Send;

    /// Returns a connection to the pool, and drops the permit afterwards. One that a dropped future has abandoned stays open
    /// until the session has done what is left to do.
    #[doc(hidden)]
    fn give_back_abandoned(conn: Self::Lent, permit: Option<Permit>) {
        drop(conn);
        drop(permit);
    }

    /// Work that uses connections, as a future that is ready at once if these block.
    #[doc(hidden)]
    fn drive<T: Send>(work: impl Future<Output = T> + Send) -> impl Future<Output = T> + Send {
        work
    }

    /// The future of a method with a closure, which may be dropped while a statement of the closure runs.
    #[cfg(feature = "_async_pool")]
    #[doc(hidden)]
    fn droppable<T: Send>(work: impl Future<Output = T> + Send) -> impl Future<Output = T> + Send {
        work
    }

    /// Runs work in the background: on a thread with this name, or as a task of the caller's runtime, which drops it when it is
    /// shut down. `apart`: not on a runtime of the application. Drops the work if it can't be started.
    #[doc(hidden)]
    fn spawn(
        name: &str,
        apart: bool,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()>;

    /// How long [`lend`](Self::lend) waits for a connection at the longest.
    #[doc(hidden)]
    fn timeout(&self) -> Duration;

    #[doc(hidden)]
    fn max_size(&self) -> usize;
}

/// What a request for a connection gets: the connection with the permit of the request, or `None` after a stop.
pub(crate) type Lending<L> = Result<Option<(L, Option<Permit>)>, Error>;

/// The style of methods that block the thread: on r2d2's pool.
#[derive(Clone, Copy, Debug)]
pub enum Blocking {}

/// The style of methods that return futures: on the pools of diesel-async. Feature `bb8` or `deadpool`.
#[cfg(feature = "_async_pool")]
#[derive(Clone, Copy, Debug)]
pub enum Async {}
