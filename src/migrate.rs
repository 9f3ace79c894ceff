//! Creates the tables, on one server while the others wait.

use crate::single_writer::SingleWriterBackend;
use crate::{Error, transaction::depth};

/// Creates or updates the tables of this crate; returns the versions of the migrations that it ran,
/// none when all had run before.
///
/// Call it when the application starts. Any number of servers may do so at the same moment: one runs
/// the migrations while the others wait. (Diesel itself takes no lock around migrations.) It keeps its
/// place in Diesel's own table `__diesel_schema_migrations`, under versions that sort before any
/// application's, so that `diesel migration revert` does not trip over them.
///
/// An application that would rather run them with its own finds them as [`migrations`](crate::migrations).
///
/// The user needs the right to create tables and, on PostgreSQL, functions; what it needs, and what an
/// application that is another user, stands in
/// [Rights that an application needs](crate::_documentation::rights).
///
/// # Errors
///
/// [`Error::AlreadyInTransaction`] inside an open transaction, [`Error::Migration`] when a migration fails.
/// [`Error::SeveralWriters`] where two who migrate at once would do harm (Group Replication with several primaries),
/// and on what only speaks like PostgreSQL or MySQL (`CockroachDB`, `YugabyteDB`, `TiDB`, Vitess). On Galera any
/// number of nodes may migrate.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use diesel::prelude::*;
///
/// let mut conn = SqliteConnection::establish(":memory:")?;
/// assert_eq!(diesel_locks::migrate(&mut conn)?.len(), 3);
/// assert_eq!(diesel_locks::migrate(&mut conn)?.len(), 0);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sqlite"))]
/// # fn main() {}
/// ```
pub fn migrate<C: MigrationBackend>(conn: &mut C) -> Result<Vec<String>, Error> {
    if depth::depth(conn)? > 0 {
        return Err(Error::AlreadyInTransaction {
            method: "migrate",
            reason: "MySQL and MariaDB would commit it",
        });
    }
    C::migrate(conn)
}

/// The migrations of an engine. Sealed, as [`SingleWriterBackend`] is. The backend traits of the primitives that have
/// tables extend it.
pub trait MigrationBackend: SingleWriterBackend {
    /// Runs the pending migrations while no other session does.
    fn migrate(conn: &mut Self) -> Result<Vec<String>, Error>;
}
