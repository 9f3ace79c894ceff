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
/// | `deadpool` | `diesel_async::pooled_connection::deadpool::Pool<C>` | `Timeouts::wait`; 30 s if it is not set |
///
/// Sealed. A pool that gives no connection is [`Error::AsyncPool`](crate::Error::AsyncPool).
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
