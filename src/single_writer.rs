//! Clusters with several writable nodes.

use crate::Error;
#[cfg(feature = "_async")]
use crate::cancel::unless_dropped;
#[cfg(feature = "_async")]
use crate::engine::HasAsyncEngine;
use crate::engine::HasBlockingEngine;
use crate::transaction::backend::TransactionBackend;

/// Declares that the application sends all writes to the node of this connection, although other nodes accept writes
/// too.
///
/// On a cluster with several writable nodes (Galera, Group Replication with several primaries) a lock on one node does
/// not exclude sessions on the others. The methods that lock check for such a cluster once per connection, and return
/// [`Error::SeveralWriters`]. If all connections of an application lead to the same node, by its configuration or by a
/// proxy with one writer, call this function on each new connection: the methods then work as on a single server. After
/// a fail-over, close all connections to the old node before the first lock on the new node.
///
/// The declaration is stored in the session of MySQL or MariaDB until it ends or is reset. On PostgreSQL and SQLite the
/// function does nothing.
///
/// # Errors
///
/// Errors of the database.
///
/// With an r2d2 pool:
///
/// ```
/// # #[cfg(all(feature = "mysql", feature = "r2d2"))]
/// # mod example {
/// use diesel::mysql::MysqlConnection;
/// use diesel::r2d2::{ConnectionManager, CustomizeConnection, Error, Pool};
///
/// #[derive(Debug)]
/// struct OneNode;
///
/// impl CustomizeConnection<MysqlConnection, Error> for OneNode {
///     fn on_acquire(&self, conn: &mut MysqlConnection) -> Result<(), Error> {
///         diesel_locks::assume_single_writer(conn).map_err(|error| Error::QueryError(error.into()))
///     }
/// }
///
/// # #[allow(dead_code)]
/// fn pool(url: &str) -> Pool<ConnectionManager<MysqlConnection>> {
///     Pool::builder()
///         .connection_customizer(Box::new(OneNode))
///         .build_unchecked(ConnectionManager::new(url))
/// }
/// # }
/// ```
#[doc(alias("Galera", "Group Replication", "cluster", "wsrep"))]
pub fn assume_single_writer<C: HasBlockingEngine>(conn: &mut C) -> Result<(), Error> {
    C::block_on(C::LockEngine::assume_single_writer(conn))
}

/// [`assume_single_writer`] for a connection of diesel-async.
///
/// # Errors
///
/// As [`assume_single_writer`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use diesel::prelude::*;
/// use diesel_async::AsyncConnection;
/// use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
///
/// let mut conn = SyncConnectionWrapper::<SqliteConnection>::establish(":memory:").await?;
/// diesel_locks::assume_single_writer_async(&mut conn).await?;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "_async")]
pub async fn assume_single_writer_async<C: HasAsyncEngine>(conn: &mut C) -> Result<(), Error> {
    unless_dropped!(conn, |conn| C::LockEngine::assume_single_writer(conn))
}
