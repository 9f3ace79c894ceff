//! Clusters in which several nodes take writes.

use crate::Error;
use crate::transaction::backend::TransactionBackend;

/// Says of this connection that the application sends all its writes to one node, though others could take some.
///
/// Where several nodes take writes (Galera, Group Replication with several primaries) a lock on one of them excludes
/// nobody on the others. The methods that would lock nothing find that out once per connection, and return
/// [`Error::SeveralWriters`]. An application whose connections all lead to the same node, by its own configuration
/// or by a proxy with one writer, says so on each connection when it is made; then everything works as on a server
/// that stands alone. After a fail-over to another node, connections to the old one must be gone before the first lock
/// is taken on the new one.
///
/// The session of MySQL or MariaDB remembers it until it ends or is reset. On PostgreSQL and SQLite it does nothing.
///
/// # Errors
///
/// What the database fails with.
///
/// With a pool of r2d2's:
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
pub fn assume_single_writer<C: SingleWriterBackend>(conn: &mut C) -> Result<(), Error> {
    C::assume_single_writer(conn)
}

/// How an engine stores in the session that all writes go to one server. Sealed, as [`TransactionBackend`] is.
pub trait SingleWriterBackend: TransactionBackend {
    /// Does nothing on engines that have one writer anyway.
    fn assume_single_writer(_: &mut Self) -> Result<(), Error> {
        Ok(())
    }
}
