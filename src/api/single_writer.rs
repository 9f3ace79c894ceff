//! Clusters with several writable nodes.

use crate::Error;
#[cfg(feature = "_async")]
use crate::acts::cancel_guard::unless_dropped;
#[cfg(feature = "_async")]
use crate::engine::HasAsyncEngine;
use crate::engine::HasBlockingEngine;

/// Declares that the application sends all writes to the node of this connection, although other nodes accept writes too.
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
///
/// On a cluster with several writable nodes (Galera, Group Replication with several primaries) a row lock on one node does
/// not exclude sessions on the others. The methods that lock ask the server whether it belongs to such a cluster: once per
/// connection, or at each call after a refusal. In transactions of this crate they lock on all nodes of Galera, which takes more time. Otherwise they return
/// [`Error::SeveralWriters`]. If all connections of an application lead to the same node, by its configuration or by a proxy with
/// one writer, call this function on each new connection: the methods then work as on a single server. After a fail-over, close
/// all connections to the old node before the first lock on the new node.
///
/// The declaration is stored in the session of MySQL or MariaDB until it ends or is reset. On PostgreSQL and SQLite the
/// function does nothing.
///
/// # Errors
///
/// Errors of the database.
#[doc(alias("Galera", "Group Replication", "cluster", "wsrep"))]
pub fn assume_single_writer<C: HasBlockingEngine>(conn: &mut C) -> Result<(), Error> {
    C::block_on(C::engine(conn)?.assume_single_writer())
}

/// [`assume_single_writer`] for a connection of diesel-async.
///
/// # Errors
///
/// As [`assume_single_writer`].
#[cfg(feature = "_async")]
pub async fn assume_single_writer_async<C: HasAsyncEngine>(conn: &mut C) -> Result<(), Error> {
    let mut engine = C::engine(conn)?;
    unless_dropped!(&mut *engine, |engine| engine.assume_single_writer())
}
