//! What lends connections: a pool.

use std::ops::DerefMut;
use std::time::Duration;

use crate::Error;
use crate::engine::HasEngine;
use crate::stop::StopToken;

#[cfg(feature = "r2d2")]
pub(crate) mod blocking;
#[cfg(all(
    any(feature = "bb8", feature = "deadpool"),
    any(
        feature = "async-postgres",
        feature = "async-mysql",
        feature = "async-sqlite"
    )
))]
pub(crate) mod nonblocking;

/// Lends connections. Sealed: the module is private.
#[cfg_attr(
    not(feature = "_async_pool"),
    allow(unreachable_pub, reason = "in the public trait `AsyncPool`")
)]
pub trait Lender: Send + Sync + 'static {
    /// The connection.
    type Connection: HasEngine + 'static;

    /// A connection that is lent until this is dropped.
    type Lent: DerefMut<Target = Self::Connection> + Send + 'static;

    /// Borrows a connection. Waits for one until the time-out of the pool or `limit`, whichever is shorter, or until the stop:
    /// then returns `None`.
    fn lend(
        &self,
        limit: Duration,
        stop: Option<&StopToken>,
    ) -> impl Future<Output = Result<Option<Self::Lent>, Error>> + Send;

    /// [`lend`](Self::lend), and returns `kept` with the connection. Otherwise drops it when the request has left the queue
    /// of the pool, which may be after the end of this call.
    fn lend_keeping<K: Send + 'static>(
        &self,
        limit: Duration,
        stop: Option<&StopToken>,
        kept: K,
    ) -> impl Future<Output = Result<Option<(Self::Lent, K)>, Error>> + Send {
        async move {
            let lent = self.lend(limit, stop).await?;
            Ok(lent.map(|conn| (conn, kept)))
        }
    }

    /// Returns a connection to the pool, and drops `kept` afterwards. If a dropped future has abandoned it, the connection stays
    /// open until the session has done what is left to do.
    fn give_back_abandoned<K: Send + 'static>(conn: Self::Lent, kept: K) {
        drop(conn);
        drop(kept);
    }

    /// The error of a request that got no connection in this time. `None` if only the pool itself can make it.
    fn timed_out(&self, waited: Duration) -> Option<Error>;

    /// How long [`lend`](Self::lend) waits for a connection at the longest.
    fn timeout(&self) -> Duration;

    /// The number of connections of the pool.
    fn max_size(&self) -> usize;
}
