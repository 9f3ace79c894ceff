//! What an engine implements for migrations.

use crate::Error;

/// The migrations of an engine. Sealed, as [`HasEngine`](crate::engine::HasEngine) is.
pub trait MigrationBackend<C> {
    /// Runs the pending migrations while no other session does. No transaction is open. Returns their versions.
    fn migrate(conn: &mut C) -> impl Future<Output = Result<Vec<String>, Error>> + Send;
}
