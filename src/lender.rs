//! What lends connections: a pool.

use std::ops::DerefMut;
use std::time::Duration;

use crate::Error;
use crate::engine::HasEngine;
use crate::stop::StopToken;

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

    /// How long [`lend`](Self::lend) waits for a connection without another limit.
    fn timeout(&self) -> Duration;

    /// The number of connections of the pool.
    fn max_size(&self) -> usize;
}
