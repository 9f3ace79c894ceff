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

/// A pool for a new database with the tables, which is in the directory until that is dropped.
#[allow(dead_code, reason = "for the examples of the documentation")]
pub(crate) fn database() -> (Pool<ConnectionManager<SqliteConnection>>, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("app.db").display().to_string();
    let pool = pool(&path).expect("a pool");
    diesel_locks::migrate(&mut pool.get().expect("a connection")).expect("no tables yet");
    (pool, directory)
}
