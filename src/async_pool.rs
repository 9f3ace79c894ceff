//! Pools of asynchronous connections.

use crate::engine::HasAsyncEngine;
use crate::lender::Lender;

/// A pool of asynchronous connections.
///
/// Implemented for the pools of diesel-async, with `AsyncPgConnection`, `AsyncMysqlConnection` or
/// `SyncConnectionWrapper<SqliteConnection>` as `C`. A `Connection` of the pool is that `C`.
///
/// | feature | pool | how long a request waits for a connection |
/// |---|---|---|
/// | `bb8` | `diesel_async::pooled_connection::bb8::Pool<C>` | `connection_timeout`, 30 s by default |
/// | `deadpool` | `diesel_async::pooled_connection::deadpool::Pool<C>` | `Timeouts::wait`, but 200 ms at least, in which the pool opens or checks one; 30 s if it is not set |
///
/// Sealed. A pool that gives no connection is [`Error::AsyncPool`](crate::Error::AsyncPool). What an application gets when it
/// takes a connection itself (`pool.get().await?`) is converted into that error too, so that it is answered alike
/// ([`Error::is_busy`](crate::Error::is_busy)).
///
/// A request that has ended, because its time is up or its future was dropped, leaves the queue of deadpool. With bb8 0.9
/// such a request stays in the pool's queue for up to `connection_timeout`, because a check of a connection must not be
/// dropped. An `AsyncLockPool` of four or more connections leaves fewer such requests than the pool has connections.
/// When a runtime is shut down while bb8 opens a connection in it, that place of the pool is lost: use a pool in one runtime.
///
/// A connection that is in use when its future is dropped is not returned to the pool: see
/// [Dropped futures](crate::operation::dropped_futures).
#[diagnostic::on_unimplemented(
    message = "`diesel-locks` can't use `{Self}` as a pool of asynchronous connections",
    label = "not `bb8::Pool` or `deadpool::Pool` of `diesel_async::pooled_connection`, or a feature is off",
    note = "enable the features of `diesel-locks` for the pool (`bb8`, `deadpool`) and for its connections \
            (`async-postgres`, `async-mysql`, `async-sqlite`)"
)]
pub trait AsyncPool: Lender<Connection: HasAsyncEngine> + Clone {}
