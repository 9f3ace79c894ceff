// A pool of connections to SQLite, in WAL mode and with a busy timeout. The examples of the documentation include this file
// too.

use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool, PoolError};
use diesel_locks::operation::sqlite::PrepareConnection;

/// Two connections are enough for a renewer.
pub(crate) fn pool(url: &str) -> Result<Pool<ConnectionManager<SqliteConnection>>, PoolError> {
    Pool::builder()
        .max_size(2)
        .connection_customizer(Box::new(PrepareConnection))
        .build(ConnectionManager::new(url))
}
